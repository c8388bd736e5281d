"""What the index keeps of a pod: little more than its names, because pods of one template share everything else."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import orjson
import pytest

from extender.compose.foundation import make_index
from extender.wire.objects.kinds import NODES, PODS
from tests.builders import Json, node_json, pod_json, settings, spread, term

NODE_COUNT = 100
FIRST, MORE = 1_000, 2_000  # the first fill the tables, whose growth in steps would blur the figure


def one_template(number: int) -> Json:
    return _bound(number, app="web")


def own_template(number: int) -> Json:
    """Two constraints of its own."""
    return _bound(number, app=f"app-{number}")


def _bound(number: int, app: str) -> Json:
    fields: Json = {"apart": [term("host", app=app)], "spreads": [spread("zone", app=app)]}
    uid = f"3f1b7a52-6f0c-4a53-9d1c-{number:012d}"
    return pod_json(f"web-7d9f8b6c5-{number:05d}", on=f"n{number % NODE_COUNT}", uid=uid, app=app, **fields)


@pytest.mark.parametrize(
    ("made", "most"),
    [
        pytest.param(one_template, 600, id="a further pod of a template"),
        pytest.param(own_template, 8_000, id="a pod with a template of its own"),
    ],
)
def test_a_placed_pod_takes_few_bytes(made: Callable[[int], Json], most: int) -> None:
    index = make_index(settings())
    for number in range(NODE_COUNT):
        index.upsert(NODES.decode_object(orjson.dumps(node_json(f"n{number}", zone=f"z{number % 4}"))))

    def place(first: int, after: int) -> None:
        for number in range(first, after):
            index.upsert(PODS.decode_object(orjson.dumps(made(number))))
        gc.collect()

    place(0, FIRST)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        place(FIRST, FIRST + MORE)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / MORE <= most
