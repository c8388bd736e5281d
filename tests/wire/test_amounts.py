"""Amounts of resources as the wire reads them: at once, or in steps where an object is large."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.wire.objects.constraints import parse_label_selector
from extender.wire.objects.kinds import DISRUPTION_BUDGETS, NODES, PODS, RESOURCE_QUOTAS, Kind
from tests.builders import Json, resizing

AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "x.io/a"]), st.integers(0, 5), max_size=3)
MANY = 5000


def a_pod(containers: Sequence[Json], init: Sequence[Json] = ()) -> Json:
    spec = {"nodeName": "n", "containers": list(containers), "initContainers": list(init)}
    return {"metadata": {"name": "a", "namespace": "ns", "uid": "u"}, "spec": spec}


def container(requests: dict[str, str], **more: str) -> Json:
    return {"resources": {"requests": requests}, **more}


def peak(containers: Sequence[dict[str, int]], init: Sequence[tuple[bool, dict[str, int]]], name: str) -> int:
    """The most of a resource that a pod takes at any time, told by playing its start."""
    sidecars, most = 0, 0
    for is_sidecar, amounts in init:
        most = max(most, sidecars + amounts.get(name, 0))
        sidecars += amounts.get(name, 0) if is_sidecar else 0
    return max(most, sidecars + sum(each.get(name, 0) for each in containers))


@given(st.lists(AMOUNTS, max_size=3), st.lists(st.tuples(st.booleans(), AMOUNTS), max_size=4))
def test_a_pod_requests_what_it_takes_at_most_while_it_starts(
    containers: list[dict[str, int]], init: list[tuple[bool, dict[str, int]]]
) -> None:
    def written(amounts: dict[str, int]) -> dict[str, str]:
        return {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in amounts.items()}

    body = a_pod(
        [container(written(each)) for each in containers],
        [container(written(each), **({"restartPolicy": "Always"} if is_sidecar else {})) for is_sidecar, each in init],
    )
    requests = PODS.decode_object(json.dumps(body).encode()).requests
    for name in ("cpu", "memory", "x.io/a"):
        assert requests.get(name, 0) == peak(containers, init, name)


def test_sidecars_of_a_resource_each_take_the_memory_of_their_resources() -> None:
    """What each sidecar adds to those before it was once kept for each of them: gigabytes for one pod."""
    init = [container({f"x.io/{at}": "1"}, restartPolicy="Always") for at in range(3000)]
    body = json.dumps(a_pod([], init)).encode()
    tracemalloc.start()
    try:
        assert len(PODS.decode_object(body).requests) == 3000
        assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    finally:
        tracemalloc.stop()


LARGE: dict[str, tuple[Kind, Json]] = {  # type: ignore[type-arg]
    "resources": (PODS, a_pod([container({f"x.io/{at}": f"{at}Mi" for at in range(MANY)})])),
    "containers": (PODS, a_pod([container({"cpu": f"{at}m"}) for at in range(MANY)])),
    "resources of a status": (
        PODS,
        resizing(
            a_pod([container({"cpu": "1"}, name="main")]) | {"status": {}},
            allocated={f"x.io/{at}": f"{at}Mi" for at in range(MANY)},
            actual={},
        ),
    ),
    "init containers": (PODS, a_pod([], [container({"cpu": f"{at}m"}) for at in range(MANY)])),
    "node": (NODES, {"metadata": {"name": "n"}, "status": {"allocatable": {f"x.io/{at}": "1" for at in range(MANY)}}}),
    "quota": (
        RESOURCE_QUOTAS,
        {
            "metadata": {"name": "q", "namespace": "ns"},
            "spec": {
                "hard": {f"requests.x.io/{at}": "1" for at in range(MANY)} | {"secrets": "1"},
                "scopes": ["CrossNamespacePodAffinity"],
            },
        },
    ),
    "budget": (
        DISRUPTION_BUDGETS,
        {
            "metadata": {"name": "b", "namespace": "ns"},
            "spec": {"selector": {"matchExpressions": [{"key": f"k{at}", "operator": "Exists"} for at in range(MANY)]}},
        },
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_object_is_read_in_steps_and_equals_what_is_read_at_once(name: str) -> None:
    kind, body = LARGE[name]
    raw, at_once = json.dumps(body).encode(), kind.decode_object(json.dumps(body).encode())
    assert len(list(kind.prepare_object(raw))) >= MANY // 2000
    assert kind.decode_object(raw) == at_once
    line = json.dumps({"type": "ADDED", "object": body}).encode()
    assert len(list(kind.prepare_event(line))) >= MANY // 2000
    assert kind.decode_event(line).object == at_once


def test_what_was_read_in_steps_is_not_taken_for_another_object() -> None:
    kind, body = LARGE["quota"]
    list(kind.prepare_object(json.dumps(body).encode()))
    other = {**body, "spec": {**body["spec"], "hard": {"pods": "7"}}}
    assert kind.decode_object(json.dumps(other).encode()).hard == {"pods": 7}


@pytest.mark.parametrize("body", [b"{", b'{"spec":{"containers":[{"resources":{"requests":{"cpu":"one"}}}]}}', b"[]"])
def test_what_cannot_be_read_raises_nothing_before_it_is_decoded(body: bytes) -> None:
    assert list(PODS.prepare_object(body)) == []
    assert list(PODS.prepare_event(b'{"type":"ADDED","object":' + body + b"}")) == []


def test_a_selector_that_is_invalid_after_many_clauses_selects_nothing() -> None:
    clauses = [{"key": f"k{at}", "operator": "Exists"} for at in range(1500)] + [{"key": "k", "operator": "Is"}]
    assert parse_label_selector(json.dumps({"matchExpressions": clauses}).encode(), "spec.selector") is None
