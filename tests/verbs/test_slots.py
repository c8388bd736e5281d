"""A pod leaves its slot for a better node only where its group still fits then: constraints among its pods count on a trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from extender.model.constraints.labels import HOSTNAME
from extender.model.objects import Node
from extender.model.release import GroupKey, Slot
from extender.verbs.filter import FilterVerb
from extender.verbs.slots import exchange
from tests.builders import PREFERRED, Json, extender_args, read_pod, settings, spread, term
from tests.contenders import cluster, contender_json, stage
from tests.verbs.preferring import prefers

KEY = GroupKey("default", "ClusterPodSchedulingPolicy/gangs", "x")
BOTH_PLACEMENTS = pytest.mark.parametrize("placement", ["decisive", "cooperative"])


def host(name: str, cpu: int, rack: str = "") -> Node:
    return stage(name, "a", cpu=1000 * cpu, labels={"rack": rack} if rack else None)


def member(name: str, preferred: str = "", **fields: Any) -> Json:
    body = contender_json(name, cpu=1000, gang="x", **fields)
    if preferred:
        body["spec"].setdefault("affinity", {})["nodeAffinity"] = {PREFERRED: prefers(HOSTNAME, preferred)}
    return body


def answered(placement: str, nodes: list[Node], slots: Mapping[str, str], preferred: str, **fields: Any) -> list[str]:
    """The answer for the first pod of a group, all of which have slots and prefer a node."""
    bodies = [member(name, preferred, **fields) for name in slots]
    index = cluster(*nodes, *map(read_pod, bodies))
    index.reserved.reserve(KEY, [Slot(f"uid-{name}", node) for name, node in slots.items()], until=60.0)
    verb = FilterVerb(index.view, settings(placement=placement))
    return list(verb.decide(extender_args(bodies[0], *sorted(index.view.known)), 0).result.passed)


TOGETHER = [term("rack", gang="x")]
APART = [term("host", gang="x")]


@BOTH_PLACEMENTS
def test_a_pod_stays_in_the_rack_in_which_its_siblings_have_room(placement: str) -> None:
    """Rack r2 has the node that it prefers, and room for one pod: its siblings would have no place beside it."""
    nodes = [host("n0", 1, "r1"), host("n1", 1, "r1"), host("n2", 1, "r1"), host("n3", 1, "r2")]
    slots = {"a": "n0", "b": "n1", "c": "n2"}
    found = answered(placement, nodes, slots, "n3", near=TOGETHER)
    assert "n3" not in found
    assert sorted(found) == (["n0", "n1", "n2"] if placement == "cooperative" else found)


@BOTH_PLACEMENTS
@pytest.mark.parametrize(
    "fields", [{"apart": APART}, {"spreads": [spread("host", gang="x")]}, {"near": TOGETHER}], ids=str
)
def test_a_pod_goes_to_the_node_that_it_prefers_where_its_siblings_still_fit(
    placement: str, fields: dict[str, Any]
) -> None:
    """n1 is that of a sibling, which gets the slot of the pod; n3 is nobody's."""
    nodes = [host(f"n{number}", 1, "r1") for number in range(4)]
    slots = {"a": "n0", "b": "n1", "c": "n2"}
    for preferred in ("n1", "n3"):
        found = answered(placement, nodes, slots, preferred, **fields)
        assert preferred in found
        assert len(found) == (1 if placement == "decisive" else 4)


def test_a_pod_without_room_for_its_siblings_elsewhere_is_answered_its_slot() -> None:
    """The pods of the group are unequal: the large one has room on n1 alone, which the pod prefers."""
    bodies = [member("a", "n1", apart=APART), contender_json("b", cpu=3000, gang="x", apart=APART)]
    index = cluster(host("n0", 1), host("n1", 4), *map(read_pod, bodies))
    index.reserved.reserve(KEY, [Slot("uid-a", "n0"), Slot("uid-b", "n1")], until=60.0)
    verb = FilterVerb(index.view, settings(placement="decisive"))
    assert list(verb.decide(extender_args(bodies[0], "n0", "n1"), 0).result.passed) == ["n0"]


@BOTH_PLACEMENTS
def test_trials_end_with_their_time(placement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the pod is answered its slot, and the nodes that were tried."""
    monkeypatch.setattr(exchange, "_MOST_PLACED", 2)
    nodes = [host(f"n{number}", 1, "r1") for number in range(4)]
    found = answered(placement, nodes, {"a": "n0", "b": "n1", "c": "n2"}, "n3", apart=APART)
    assert found == (["n3"] if placement == "decisive" else ["n3", "n0"])
    monkeypatch.setattr(exchange, "_MOST_PLACED", 1)
    assert answered(placement, nodes, {"a": "n0", "b": "n1", "c": "n2"}, "n3", apart=APART) == ["n0"]


def test_where_the_slot_does_not_pass_any_more_other_nodes_are_answered() -> None:
    nodes = [host(f"n{number}", 1, "r1") for number in range(4)]
    bodies = [member(name, apart=APART) for name in "ab"]
    index = cluster(*nodes, *map(read_pod, bodies), read_pod(contender_json("x", on="n0", gang="x")))
    index.reserved.reserve(KEY, [Slot("uid-a", "n0"), Slot("uid-b", "n1")], until=60.0)
    verb = FilterVerb(index.view, settings(placement="cooperative"))
    assert list(verb.decide(extender_args(bodies[0], "n0", "n1", "n2"), 0).result.passed) == ["n1", "n2"]
