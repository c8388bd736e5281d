"""What reading pods leaves in memory once they are gone: the caches of the wire are bounded in bytes."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import orjson
import pytest

from extender.model.bounded import BoundedCache, SharedTexts
from extender.model.objects import PodSignature
from extender.wire.objects import trim
from extender.wire.objects.kinds import NODES, PODS
from tests.builders import REQUIRED, Json, node_json, term

MEBI = 2**20


def retained(line_of: Callable[[int], bytes], count: int) -> int:
    """Bytes that are held after so many pods were read, one after the other, and dropped."""
    PODS.decode_object(line_of(-1))
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(count):
            PODS.decode_object(line_of(number))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def big(spec: Json, **meta: Json) -> Json:
    """A pod of these fields."""
    return {"metadata": {"name": "big", "namespace": "ns", **meta}, "spec": spec}


def apart(terms: list[Json]) -> Json:
    """A spec with required anti-affinity."""
    return {"affinity": {"podAntiAffinity": {REQUIRED: terms}}}


def terms_of(number: int) -> Json:
    """4,000 terms, half a megabyte."""
    return big(apart([term(app=f"a{number}-{each}") for each in range(4_000)]))


def labels_of(number: int) -> Json:
    """A megabyte of labels."""
    return big({}, labels={f"k{number}-{each}": "x" * 40 for each in range(16_000)})


def tolerations_of(number: int) -> Json:
    """Half a megabyte of tolerations."""
    each = [{"key": f"k{number}-{at}", "operator": "Exists", "effect": "NoSchedule"} for at in range(6_000)]
    return big({"tolerations": each})


def resources_of(number: int) -> Json:
    """Half a megabyte of requests."""
    requests = {f"example.com/r{number}-{each}": "1" for each in range(16_000)}
    return big({"containers": [{"resources": {"requests": requests}}]})


@pytest.mark.parametrize("body_of", [terms_of, labels_of, tolerations_of, resources_of])
def test_a_pod_of_a_megabyte_leaves_nothing_when_it_is_gone(body_of: Callable[[int], Json]) -> None:
    assert retained(lambda number: orjson.dumps(body_of(number)), 5) < MEBI // 4


def test_a_long_rejection_is_kept_as_its_start_and_still_distinguished_from_another() -> None:
    def rejection(message: str) -> str:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        body = big({}) | {"status": {"conditions": [condition]}}
        return PODS.decode_object(orjson.dumps(body)).rejection

    texts = [rejection("x" * 100_000 + end) for end in "aba"]
    assert (texts[0] == texts[2], texts[0] == texts[1], len(texts[0]) < 600) == (True, False, True)
    assert rejection("short") == "Unschedulable: short"


def test_many_small_templates_leave_no_more_than_the_caches_may_hold() -> None:
    def line_of(number: int) -> bytes:
        return orjson.dumps(big(apart([term(app=f"a{number}")]), labels={"app": f"a{number}"}))

    assert retained(line_of, 8_000) < 16 * MEBI


def test_a_long_quantity_is_not_cached() -> None:
    def line_of(number: int) -> bytes:
        return orjson.dumps(big({"containers": [{"resources": {"requests": {"cpu": "0" * 50_000 + str(number + 2)}}}]}))

    assert retained(line_of, 100) < 2 * MEBI


def test_many_nodes_with_resources_of_their_own_leave_no_more_than_the_cache_may_hold() -> None:
    tracemalloc.start()
    try:
        for number in range(200):
            offered = {f"example.com/r{number}-{each}": "1" for each in range(500)}
            NODES.decode_object(orjson.dumps(node_json("n", allocatable=offered)))
        assert tracemalloc.get_traced_memory()[0] < 3 * MEBI
    finally:
        tracemalloc.stop()


def test_a_template_that_left_the_cache_is_the_same_object_while_a_pod_has_it() -> None:
    def read(number: int) -> Json:
        return big({}, labels={"app": f"kept-{number}", "filler": "x" * 60})

    held = [PODS.decode_object(orjson.dumps(read(number))) for number in range(8_000)]
    again = [PODS.decode_object(orjson.dumps(read(number))) for number in range(8_000)]
    assert all(one.signature is other.signature for one, other in zip(held, again, strict=True))


def test_templates_in_use_that_do_not_fit_do_not_evict_each_other_at_each_look_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pods of 20,000 templates come in turns in a large cluster: each template would be evicted before it is needed again."""

    class Counted(BoundedCache[trim.Template, PodSignature]):
        puts = 0

        def put(self, key: trim.Template, value: PodSignature, size: int) -> None:
            self.puts += 1
            super().put(key, value, size)

    cache = Counted(100_000, 16)
    monkeypatch.setattr(trim, "_SIGNATURES", cache)
    bodies = [orjson.dumps(big({}, labels={"turn": f"{number}"})) for number in range(200)]
    first = [PODS.decode_object(body) for body in bodies]
    assert (cache.puts, len(cache) < 200) == (200, True)
    again = [PODS.decode_object(body) for body in bodies]
    assert cache.puts == 200
    assert all(new.signature is old.signature for new, old in zip(again, first, strict=True))


def test_texts_that_no_object_has_any_more_are_held_in_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 would keep each of them for good, had it been interned."""
    monkeypatch.setattr(SharedTexts, "MOST", 100)
    texts = SharedTexts()
    monkeypatch.setattr(trim, "shared", texts.__getitem__)
    for number in range(1000):
        line = orjson.dumps(big({"nodeName": f"n{number}"}, labels={f"k{number}": f"v{number}", "x" * 300: "y"}))
        found = PODS.decode_object(line)
        assert found.node is texts[f"n{number}"]
        assert len(texts) <= 100
    assert all(len(each) <= SharedTexts.LONGEST for each in texts)


def test_equal_names_of_pods_are_one_object() -> None:
    one, other = (PODS.decode_object(orjson.dumps(big({"nodeName": "n1"}, labels={"n": f"{n}"}))) for n in range(2))
    assert one.node is other.node
