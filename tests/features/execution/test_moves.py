"""Which pod is moved, where to, and why others are not."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from extender.features.execution.broken import BrokenConstraints
from extender.features.execution.directive import PodFacts
from extender.features.execution.moves import Move, Neighbours, Planner, Stuck
from extender.features.execution.plan import plan_moves
from extender.features.execution.schema import Movable, pod_facts
from extender.index.cluster import ClusterIndex
from extender.model.bounded import at_once
from extender.model.objects import Object, Pod
from extender.model.policies import PolicyObject
from extender.model.release import Gating
from extender.settings.configuration import Settings
from tests.builders import index_of, node, pod, settings, spread, taint, term, workload
from tests.features.execution.watching import ROOM, SETTINGS, watch, watched, web, webs, zoned
from tests.policies import policy

NOW = datetime(2026, 1, 1, tzinfo=UTC)
APART = {"spreads": [], "apart": [term("host", app="web")]}


def found(
    index: ClusterIndex, broken: BrokenConstraints, movable: Movable | None = None, *under_way: Move
) -> tuple[list[Move], list[Stuck]]:
    """The best move for each signature, and what is stuck."""
    neighbours = Neighbours(index.view, SETTINGS)
    at_once(neighbours.collect())
    planner = Planner(index.view, SETTINGS, neighbours)
    results = [at_once(planner.find(pods, movable or Movable(), under_way)) for pods in broken.found.values()]
    return [move for move, _ in results if move is not None], [each for _, stuck in results for each in stuck]


def planned(*objects: Object, movable: Movable | None = None, policy: PolicyObject | None = None) -> list[str]:
    """All moves that follow one another."""
    index, _ = watched(*objects, policy=policy)
    plan = at_once(plan_moves(index, SETTINGS, movable or Movable()))
    return [f"{move.pod.name}: {move.pod.node} -> {move.target}" for move in plan.moves]


def why(*objects: Object, movable: Movable | None = None, **execution: Any) -> list[str]:
    """Why nothing is moved."""
    moves, stuck = found(*watched(*objects, policy=watch(**execution)), movable)
    assert moves == []
    return [each.why for each in stuck]


def test_a_zone_that_returns_gets_pods_until_the_spread_holds() -> None:
    assert planned(*zoned(1, 1, 1), *webs(3, 3, 0)) == ["web-a0: a0 -> c0", "web-b0: b0 -> c0"]


def test_two_constraints_that_cannot_both_hold_move_nothing() -> None:
    """Nine pods on five, two and two nodes: three pods in each zone would leave hosts of zone a empty."""
    both = [spread("zone", app="web"), spread("host", app="web")]
    nodes = zoned(5, 2, 2)
    pods = [web(f"web-{each.name}", each.name, spreads=both) for each in nodes]
    assert planned(*nodes, *pods) == []
    assert planned(*nodes, *[replace(each, signature=web("any", "a0").signature) for each in pods]) == [
        "web-a0: a0 -> b0",
        "web-a1: a1 -> c0",
    ]


def test_where_no_node_is_better_no_pod_is_moved() -> None:
    """More replicas than nodes with one per host, beside a tainted node."""
    closed = node("b0", zone="b", taints=[taint("gpu")], allocatable=ROOM)
    pods = [web(f"web-{at}", "a0", **APART) for at in range(2)]
    assert why(*zoned(1), closed, *pods) == ["no node passes: 1 node(s) had untolerated taint(s)"]


def test_of_a_pair_one_is_moved() -> None:
    assert planned(*zoned(1, 1), *webs(2, **APART)) == ["web-a0: a0 -> b0"]


def test_a_move_under_way_counts_as_complete() -> None:
    index, broken = watched(*zoned(1, 1, 1), *webs(2, **APART))
    (move,), _ = found(index, broken)
    moves, stuck = found(index, broken, None, move)
    assert moves == []
    assert stuck == []


def test_a_pod_on_which_another_one_relies_stays() -> None:
    """The web pods are askew, but the pod of app db needs the one in zone a."""
    db = pod("db", on="a0", app="db", near=[term("zone", app="web")])
    assert planned(*zoned(1, 1), *webs(2, 0, **APART), db) == ["web-a0: a0 -> b0"]
    alone = web("web", "a0", spreads=[], node_selector={"zone": "b"})
    selected = node("b0", zone="b", allocatable=ROOM, labels={"zone": "b"})
    assert planned(*zoned(1), selected, alone) == ["web: a0 -> b0"]
    assert why(*zoned(1), selected, alone, db) == [
        "on each node that takes it, as much would be broken as now, or a constraint of another pod"
    ]


def test_a_move_that_would_break_the_spread_of_others_is_not_made() -> None:
    """The pod that must leave zone b is the only one that the constraint of another pod counts there."""
    nodes = [node("a0", zone="a", allocatable=ROOM, pool="a"), node("b0", zone="b", allocatable=ROOM)]
    leaving = web("web", "b0", spreads=[], node_selector={"pool": "a"}, tier="x")
    other = pod("db", on="a0", app="db", spreads=[spread("zone", tier="x")], tier="x")
    assert planned(*nodes, leaving) == ["web: b0 -> a0"]
    assert why(*nodes, leaving, other) == [
        "on each node that takes it, as much would be broken as now, or a constraint of another pod"
    ]


def test_the_replacement_needs_room() -> None:
    full = node("b0", zone="b", allocatable={"cpu": "1", "pods": "20"})
    pods = [web(f"web-{at}", "a0", requests={"cpu": "2"}) for at in range(2)]
    assert why(*zoned(1), full, *pods) == ["no node passes: 1 node(s) had too few resources left"]


# What keeps a pod: a change of it, and facts about it.
KEPT: dict[str, tuple[dict[str, Any], PodFacts, dict[str, Any], str]] = {
    "no controller": ({"owner": None}, PodFacts(), {}, "no controller replaces the pod"),
    "a Job": ({"owner": ("Job", "j")}, PodFacts(), {}, "its Job counts an eviction as a failure"),
    "a DaemonSet": ({"owner": ("DaemonSet", "d")}, PodFacts(), {}, "a DaemonSet runs it on this node"),
    "a static pod": ({"owner": ("Node", "a0")}, PodFacts(), {}, "it is a static pod"),
    "an unknown kind": (
        {"owner": ("CloneSet", "c")},
        PodFacts(),
        {},
        "it is not known whether a CloneSet replaces its pods",
    ),
    "a mirror pod": (
        {},
        pod_facts({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}),
        {},
        "it is a mirror pod",
    ),
    "an annotation": ({}, PodFacts(forbidden="annotation x forbids it"), {}, "annotation x forbids it"),
    "local storage": ({}, PodFacts(has_local_storage=True), {"localStorage": "Keep"}, "it has local storage"),
}


@pytest.mark.parametrize(("fields", "facts", "execution", "expected"), KEPT.values(), ids=KEPT)
def test_what_keeps_a_pod(fields: dict[str, Any], facts: PodFacts, execution: dict[str, Any], expected: str) -> None:
    pods = webs(2, 0, **fields)
    movable = Movable({each.uid: facts for each in pods})
    assert why(*zoned(1, 1), *pods, movable=movable, **execution) == [expected]


GATE = "placement.extender.dev/group is removed after a decision that may choose another node (laterPods"
WAS_RELEASED = (
    "it was released with a group, and no policy would release its replacement: the release has narrowed the pod to a domain, "
    "and not its template"
)
CHANGED: dict[str, tuple[Mapping[str, Any], str]] = {
    "a volume": ({"has_unseen_needs": True}, "it has a volume or a device that may bind it to its node"),
    "a group": ({"gating": Gating((), "rs", (), "group", None)}, WAS_RELEASED),
    "too young": ({"start_time": NOW}, "it is younger than minAge"),
}


@pytest.mark.parametrize(("fields", "expected"), CHANGED.values(), ids=CHANGED)
def test_what_keeps_a_pod_by_its_object(fields: Mapping[str, Any], expected: str) -> None:
    old = datetime(2025, 1, 1, tzinfo=UTC)
    pods = [replace(each, **{"start_time": old, **fields}) for each in webs(2, 0)]
    assert why(*zoned(1, 1), *pods, movable=Movable(now=NOW)) == [expected]


@pytest.mark.parametrize("later", ["Join", "JoinOrMove", "Replace", "ReplaceOrMove"])
@pytest.mark.parametrize("released", ["group", ""], ids=["released", "created before the policy"])
def test_a_pod_whose_replacement_a_policy_would_release_is_not_moved(later: str, released: str) -> None:
    gangs = PolicyObject(policy("gangs", when=["Release"], release={"topology": ["zone"], "laterPods": later}))
    gating = Gating((), "rs", (), released, None) if released else None
    pods = [replace(each, gating=gating) for each in webs(2, 0)]
    assert why(*zoned(1, 1), *pods, gangs) == [
        f"its replacement would wait at the gate of ClusterPodSchedulingPolicy/gangs: {GATE}: {later})"
    ]


RELEASING_NOTHING: dict[str, dict[str, Any]] = {
    "another label": {"podSelector": {"matchLabels": {"app": "db"}}},
    "only audits": {"mode": "Audit"},
}


@pytest.mark.parametrize("spec", RELEASING_NOTHING.values(), ids=RELEASING_NOTHING)
def test_a_policy_that_does_not_release_the_replacement_keeps_no_pod(spec: dict[str, Any]) -> None:
    gangs = PolicyObject(policy("gangs", when=["Release"], release={"topology": ["zone"]}, **spec))
    assert planned(*zoned(1, 1), *webs(2, 0), gangs) == ["web-a0: a0 -> b0"]


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "ReplicationController"])
def test_pods_of_controllers_that_replace_them_are_moved(kind: str) -> None:
    assert planned(*zoned(1, 1), *webs(2, owner=(kind, "web"))) == ["web-a0: a0 -> b0"]


def test_a_pod_with_a_volume_is_moved_where_the_policy_says_so() -> None:
    pods = [replace(each, has_unseen_needs=True) for each in webs(2)]
    moving = watch(persistentVolumes="Move")
    assert planned(*zoned(1, 1), *pods, policy=moving) == ["web-a0: a0 -> b0"]


def ready(*uids: str) -> Movable:
    return Movable({each.uid: PodFacts(is_ready=each.uid in uids) for each in webs(3)})


ORDERS: dict[str, tuple[dict[str, Mapping[str, Any]], Movable, str]] = {
    "one that is not ready": ({"web-a0": {"priority": -1}}, ready("uid-web-a0", "uid-web-a1"), "web-a2"),
    "low priority": ({"web-a1": {"priority": -1}, "web-a2": {"deletion_cost": "-5"}}, Movable(), "web-a1"),
    "low deletion cost": ({"web-a1": {"deletion_cost": "-5"}}, Movable(), "web-a1"),
    "the youngest": ({"web-a2": {"start_time": NOW}, "web-a0": {"start_time": NOW.replace(year=2025)}}, Movable(), "web-a1"),
    "by name": ({}, Movable(), "web-a0"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "movable", "expected"), ORDERS.values(), ids=ORDERS)
def test_which_of_equal_pods_is_moved(changes: dict[str, Mapping[str, Any]], movable: Movable, expected: str) -> None:
    pods: list[Pod] = [replace(each, **changes.get(each.name, {})) for each in webs(3, 1)]
    (move,), _ = found(*watched(*zoned(1, 1), *pods), movable)
    assert move.pod.name == expected


def test_the_move_that_mends_most_comes_first() -> None:
    """A pod on a node that it does not match and that three others exclude, and a spread that is one pod off."""
    hub = web("hub", "a0", app="hub", spreads=[], apart=[term("host", app="web")])
    moves = planned(*zoned(2, 1, 1), *webs(3, 1, 1), hub)
    assert moves[0].startswith("hub: a0 -> ")


def test_the_scores_choose_among_nodes_that_mend_alike() -> None:
    busy = [pod(f"busy-{at}", on="c0", requests={"cpu": "3"}) for at in range(2)]
    assert planned(*zoned(1, 1, 1), *webs(2, **APART), *busy) == ["web-a0: a0 -> b0"]


DEFAULTS: Settings = settings(
    policies={"enabled": True},
    rules={
        "topologySpread": {
            "defaultingType": "List",
            "defaultConstraints": [
                {"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
            ],
        }
    },
)


def moves_by_default(*objects: Object) -> list[str]:
    """All moves where pods without own constraints get a hard one over zones."""
    index = index_of(watch(), *objects, rules=DEFAULTS.rules)
    plan = at_once(plan_moves(index, DEFAULTS, Movable()))
    return [f"{move.pod.name}: {move.pod.node} -> {move.target}" for move in plan.moves]


def test_default_constraints_of_the_settings_are_watched() -> None:
    """They count the pods of the ReplicaSet, as its selector says."""
    pods, selecting = webs(3, 1, 0, spreads=[]), workload("ReplicaSet", "web", {"matchLabels": {"app": "web"}})
    assert moves_by_default(*zoned(1, 1, 1), *pods, selecting) == ["web-a0: a0 -> c0"]
    assert moves_by_default(*zoned(1, 1, 1), *pods) == []


def test_a_move_that_would_break_the_default_constraints_of_others_is_not_made() -> None:
    """The pod that must leave zone b is one of the pods that a Service selects, and these are spread by default."""
    nodes = [node("a0", zone="a", allocatable=ROOM, pool="a"), node("b0", zone="b", allocatable=ROOM)]
    leaving = web("web", "b0", spreads=[spread("host", 9, app="web")], node_selector={"pool": "a"}, tier="x")
    others = [pod(f"db-{at}", on="a0", app="db", tier="x") for at in range(2)]
    assert moves_by_default(*nodes, leaving, *others) == ["web: b0 -> a0"]
    assert moves_by_default(*nodes, leaving, *others, workload("Service", "x", {"tier": "x"})) == []


def test_a_move_does_not_break_what_a_move_under_way_mends() -> None:
    """Two pods spread over hosts, two over zones, and all count. Once one of the first is on b0, another pod there is one too many."""
    nodes = zoned(2, 1)
    by_host = [web(f"host-{at}", "a0", spreads=[spread("host", app="web")]) for at in range(2)]
    by_zone = [web(f"zone-{at}", "a0", owner=("ReplicaSet", "zone")) for at in range(2)]
    index, broken = watched(*nodes, *by_host, *by_zone)
    first = next(move for move in found(index, broken)[0] if move.pod.name == "host-0")
    assert first.target == "b0"
    moves, stuck = found(index, broken, None, first)
    assert [(move.pod.name, move.target) for move in moves] == [("host-1", "a1")]
    assert [each.why for each in stuck] == [
        "on each node that takes it, as much would be broken as now, or a constraint of another pod"
    ]


def test_a_pod_that_a_move_under_way_brings_is_relied_on() -> None:
    """The db pod needs a web pod in its zone, and comes to zone b: the only web pod there must stay until another one is there."""
    nodes = [*zoned(1), node("b0", zone="b", allocatable=ROOM), node("b1", zone="b", allocatable=ROOM, pool="x")]
    needing = web("db", "a0", app="db", owner=("ReplicaSet", "db"), spreads=[], near=[term("zone", app="web")])
    leaving = web("web", "b0", spreads=[], node_selector={"zone": "a"})
    selected = node("a1", zone="a", allocatable=ROOM, labels={"zone": "a"})
    index, broken = watched(*nodes, selected, needing, leaving)
    moves, _ = found(index, broken)
    under_way = next(move for move in moves if move.pod.name == "db")
    assert under_way.target in ("b0", "b1")
    moves, _ = found(index, broken, None, under_way)
    assert "web" not in [move.pod.name for move in moves]


def test_of_nodes_that_count_alike_one_without_pods_of_the_broken_constraint_is_chosen() -> None:
    """Each host has one pod of app web. Another one beside the pod that is spread over hosts would be one too many."""
    nodes = [node("a0", zone="a", allocatable=ROOM, pool="y"), *zoned(0, 1, 1)]
    leaving = web("web", "a0", spreads=[], node_selector={"pool": "x"}, owner=("ReplicaSet", "leaving"))
    targets = [node(name, zone="b", allocatable=ROOM, pool="x") for name in ("b1", "b2")]
    beside = web("beside", "b1", spreads=[], owner=("ReplicaSet", "beside"))
    spreading = web("spreading", "b2", spreads=[spread("host", app="web")], owner=("ReplicaSet", "spreading"))
    others = [web(f"on-{name}", name, spreads=[]) for name in ("b0", "c0")]
    busy = pod("busy", on="b1", app="db", requests={"cpu": "7"})  # so that the scores would choose b2
    assert planned(*nodes, *targets, leaving, beside, spreading, *others, busy) == ["web: a0 -> b1"]
