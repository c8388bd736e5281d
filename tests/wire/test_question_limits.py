"""How much a question may hold, whatever its length."""

from __future__ import annotations

import orjson
import pytest

from extender.wire.errors import WireError
from extender.wire.extender_v1 import MOST_NODES, decode_args, decode_preemption_args

POD = {"metadata": {"name": "web", "namespace": "team-a", "uid": "u"}}


def asked(**fields: object) -> bytes:
    """A question about a pod."""
    return orjson.dumps({"Pod": POD} | fields)


def test_as_many_names_as_the_limit_are_read() -> None:
    names = [f"node-{number:05d}.example.internal" for number in range(MOST_NODES)]
    assert decode_args(asked(NodeNames=names)).node_names == names


LONG = "metadata and what else a node holds, which is never as short as a number" * 2
TOO_MUCH = {
    "names": (asked(NodeNames=["n"] * (MOST_NODES + 1)), "NodeNames: holds more than 20000 names"),
    "one name that is as long as all": (asked(NodeNames=["n" * 256 * MOST_NODES]), "NodeNames: holds more than"),
    "nodes": (
        asked(Nodes={"items": [{"metadata": {"name": "n", "x": LONG}}] * (MOST_NODES + 1)}),
        "Nodes.items: holds more than 20000 nodes",
    ),
    "numbers": (asked(Nodes={"items": [1] * 200_000}), "has too many values for its length"),
}


@pytest.mark.parametrize(("body", "problem"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_more_is_refused_by_its_field(body: bytes, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        decode_args(body)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"NodeNameToMetaVictims": {f"n{n}": None for n in range(MOST_NODES + 1)}}, "holds more than 20000 nodes"),
        ({"NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "u"}] * 50_001}}}, "holds more than 50000 pods"),
        ({"NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "u"}] * 300_000}}}, "too many values"),
    ],
)
def test_more_candidates_or_victims_are_refused(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        decode_preemption_args(asked(**fields))


def test_fields_in_another_case_are_looked_for_only_where_they_are_few() -> None:
    """To look for them makes an object of each field, at a microsecond each."""
    few = b",".join(b'"k%d":1' % number for number in range(100))
    many = b",".join(b'"k%d":1' % number for number in range(20_001))
    question = b'{"pod":{"metadata":{"name":"a","namespace":"b","uid":"c"}},"nodenames":["n"],%b}'
    assert decode_args(question % few).node_names == ["n"]
    with pytest.raises(WireError, match="Pod: is missing"):
        decode_args(question % many)
