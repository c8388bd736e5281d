"""How many values a request may hold, whatever its length in bytes."""

from __future__ import annotations

import orjson
import pytest

from extender.wire.errors import WireError
from extender.wire.extender_v1 import MOST_NODES, decode_args, decode_preemption_args

POD = {"metadata": {"name": "web", "namespace": "team-a", "uid": "u"}}


def asked(**fields: object) -> bytes:
    """A request about a pod."""
    return orjson.dumps({"Pod": POD} | fields)


def test_as_many_names_as_the_limit_are_read() -> None:
    names = [f"node-{number:05d}.example.internal" for number in range(MOST_NODES)]
    assert decode_args(asked(NodeNames=names)).node_names == names


LONG = "metadata and what else a node holds, which is never as short as a number" * 2
TOO_MUCH = {
    "names": (asked(NodeNames=["n"] * (MOST_NODES + 1)), "NodeNames: holds more than 20000 names"),
    "one name that is as long as all": (asked(NodeNames=["n" * 256 * MOST_NODES]), "NodeNames: holds more than"),
    "nodes": (
        asked(Nodes={"items": [{"metadata": {"name": "n", "x": LONG}}] * 5001}),
        "Nodes.items: holds more than 5000 nodes",
    ),
    "numbers": (asked(Nodes={"items": [1] * 200_000}), "has too many values for its length"),
}


@pytest.mark.parametrize(("body", "problem"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_more_is_rejected_by_its_field(body: bytes, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        decode_args(body)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"NodeNameToMetaVictims": {f"n{n}": None for n in range(MOST_NODES + 1)}}, "holds more than 20000 nodes"),
        ({"NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "u"}] * 50_001}}}, "holds more than 50000 pods"),
        ({"NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "u"}] * 300_000}}}, "too many values"),
        ({"NodeNameToVictims": {"n": {"Pods": [{}] * 5001}}}, "NodeNameToVictims: holds more than 5000 pods"),
        (
            {"NodeNameToVictims": {"n": {"Pods": [{"spec": {"containers": [{}] * 11}}] * 2000}}},
            "NodeNameToVictims: holds more than 20000 containers and resource requests",
        ),
    ],
)
def test_more_candidates_or_victims_are_rejected(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        decode_preemption_args(asked(**fields))


AMOUNTS = {f"example.com/{n}": "1" for n in range(10_001)}


def test_requests_are_counted_by_number_and_not_by_their_bytes() -> None:
    amounts = {f"example.com/{'x' * 60}-{n}": "1" for n in range(9_000)}
    containers = [{"resources": {"requests": amounts}}] * 2
    body = orjson.dumps({"Pod": {"metadata": {"uid": "u"}, "spec": {"containers": containers}}, "NodeNames": []})
    assert len(decode_args(body).pod.requests) == 9_000


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{}] * 20_001},
        {"containers": [{}] * 10_001, "initContainers": [{}] * 10_001},
        {"containers": [{"resources": {"requests": AMOUNTS}}] * 2},
        {"overhead": AMOUNTS, "resources": {"requests": AMOUNTS}},
    ],
    ids=["containers", "containers and init containers", "requests", "overhead and requests of the pod"],
)
def test_a_pod_with_more_containers_or_requests_is_rejected(spec: dict[str, object]) -> None:
    body = orjson.dumps({"Pod": {"metadata": {"uid": "u"}, "spec": spec}, "NodeNames": []})
    with pytest.raises(WireError, match=r"Pod\.spec: holds more than 20000 containers and resource requests"):
        decode_args(body)


def test_fields_in_another_case_are_looked_for_only_where_they_are_few() -> None:
    """To look for them makes an object of each field, at a microsecond each."""
    few = b",".join(b'"k%d":1' % number for number in range(100))
    many = b",".join(b'"k%d":1' % number for number in range(20_001))
    request = b'{"pod":{"metadata":{"name":"a","namespace":"b","uid":"c"}},"nodenames":["n"],%b}'
    assert decode_args(request % few).node_names == ["n"]
    with pytest.raises(WireError, match="Pod: is missing"):
        decode_args(request % many)
