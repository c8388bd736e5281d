"""Moves lower what is broken and break nothing else, they end, and there are few of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from extender.features.execution.broken import BrokenConstraints, Place
from extender.features.execution.moves import Move
from extender.features.execution.plan import MovePlan, plan_moves
from extender.features.execution.schema import Movable
from extender.index.cluster import ClusterIndex
from extender.model.bounded import at_once
from extender.model.objects import Node, Pod
from extender.model.policies import PolicyObject
from extender.simulator.oracle.brute_force import feasible, matches_node_affinity
from tests.builders import Json, index_of, node, node_json, pod_json, read_node, read_pod, spread, term
from tests.features.execution.watching import SETTINGS, watch
from tests.policies import policy

WEB: Final = {"app": "web"}
OWNER: Final = ("ReplicaSet", "web")
ROOM: Final = {"cpu": "100", "pods": "110"}

# Which constraints pods have. Most count the web pods, so that pods are in each other's way.
TEMPLATES: Final[list[Json]] = [
    {},
    {"spreads": [spread("zone", app="web")]},
    {"spreads": [spread("host", app="web")]},
    {"spreads": [spread("zone", app="web"), spread("host", app="web")]},
    {"spreads": [spread("zone", 2, app="web")], "apart": [term("host", app="db")]},
    {"apart": [term("host", app="web")]},
    {"apart": [term("zone", app="db")]},
    {"near": [term("zone", app="db")]},
    {"near": [term("zone", app="web")], "apart": [term("host", app="web")]},
    {"node_selector": {"pool": "a"}},
    {"node_selector": {"pool": "a"}, "spreads": [spread("zone", app="web")]},
]
Bodies = dict[str, Json]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Json], Bodies]:
    """At most four nodes in three zones, and at most six pods of three templates on any of them."""
    zones = draw(st.lists(st.sampled_from(["z1", "z2", "z3"]), min_size=2, max_size=4))
    pools = draw(st.lists(st.sampled_from(["a", "a", "b"]), min_size=len(zones), max_size=len(zones)))
    nodes = [
        node_json(f"n{at}", zone=zone, allocatable=ROOM, pool=pool)
        for at, (zone, pool) in enumerate(zip(zones, pools, strict=True))
    ]
    templates = draw(
        st.lists(st.tuples(st.sampled_from(["web", "web", "db"]), st.sampled_from(TEMPLATES)), min_size=1, max_size=3)
    )
    pods: Bodies = {}
    for at in range(draw(st.integers(3, 6))):
        app, template = draw(st.sampled_from(templates))
        on = draw(st.sampled_from([nodes[0], nodes[0], *nodes]))["metadata"]["name"]
        owner = draw(st.sampled_from([OWNER] * 6 + [None]))
        pods[f"p{at}"] = pod_json(f"p{at}", on=on, app=app, owner=owner, **template)
    return nodes, pods


def index_with(nodes: list[Json], pods: Bodies, watching: PolicyObject) -> ClusterIndex:
    return index_of(watching, *map(read_node, nodes), *map(read_pod, pods.values()))


def broken_in(index: ClusterIndex) -> tuple[int, set[tuple[str, Place]]]:
    """The measure, and each pod with each of its broken constraints; a pod has one name whatever its UID."""
    broken = BrokenConstraints(index.view, SETTINGS)
    at_once(broken.round(0.0))
    found = {
        (pod.name, finding.place)
        for watched in broken.found.values()
        for finding in watched.found
        for number in finding.nodes
        for pod in index.view.pods_on(number).values()
        if pod.signature is watched.signature
    }
    return broken.measure, found


def moved(pods: Bodies, name: str, target: str) -> Bodies:
    return {**pods, name: {**pods[name], "spec": {**pods[name]["spec"], "nodeName": target}}}


def plan_of(index: ClusterIndex) -> MovePlan:
    return at_once(plan_moves(index, SETTINGS, Movable()))


def states_of(pods: Bodies, moves: tuple[Move, ...]) -> Iterator[Bodies]:
    yield pods
    for move in moves:
        pods = moved(pods, move.pod.name, move.target)
        yield pods


SOME: Final = PolicyObject(policy("watch", when=["Execution"], podSelector={"matchLabels": WEB}))


@given(clusters(), st.sampled_from([watch(), SOME]))
def test_each_move_lowers_the_measure_and_breaks_nothing_that_held(
    cluster: tuple[list[Json], Bodies], watching: PolicyObject
) -> None:
    nodes, pods = cluster
    plan = plan_of(index_with(nodes, pods, watching))
    states = list(states_of(pods, plan.moves))
    measures = [broken_in(index_with(nodes, state, watching))[0] for state in states]
    assert measures == sorted(set(measures), reverse=True)
    assert (measures[0], measures[-1]) == (plan.before, plan.after)
    # More than is promised: a pair counts once for each of its pods, and a pod that comes may be what another one needs.
    falls = [before - after for before, after in pairwise(measures)]
    assert all(fall >= move.lowers for fall, move in zip(falls, plan.moves, strict=True))
    # Of all pods, also those that no policy selects.
    found = [broken_in(index_with(nodes, state, watch()))[1] for state in states]
    for move, before, after in zip(plan.moves, found, found[1:], strict=False):
        held = {pair for pair in after if pair[0] != move.pod.name}
        assert held <= before, (move, held - before)
        assert not any(name == move.pod.name for name, _ in after), move


@given(clusters())
def test_what_is_left_is_stuck_for_a_reason(cluster: tuple[list[Json], Bodies]) -> None:
    nodes, pods = cluster
    index = index_with(nodes, pods, watch())
    plan = plan_of(index)
    assert bool(plan.after) == bool(plan.stuck)
    assert all(stuck.why for stuck in plan.stuck)
    assert plan_of(index).moves == ()


def allowed(nodes: list[Json], pods: Bodies) -> Iterator[Bodies]:
    """What every allowed move makes of a cluster, by brute force."""
    measure, found = broken_in(index_with(nodes, pods, watch()))
    for name in {name for name, _ in found}:
        body = pods[name]
        others = [other for key, other in pods.items() if key != name]
        passing = feasible(body, nodes, [], others)
        for there in nodes:
            target = there["metadata"]["name"]
            if target == body["spec"]["nodeName"] or not body["metadata"].get("ownerReferences"):
                continue
            if passing[target].code != "Success" or not matches_node_affinity(body, there):
                continue
            state = moved(pods, name, target)
            lower, left = broken_in(index_with(nodes, state, watch()))
            if lower < measure and {pair for pair in left if pair[0] != name} <= found:
                yield state


@given(clusters())
def test_the_number_of_moves_is_at_most_one_above_the_least(cluster: tuple[list[Json], Bodies]) -> None:
    nodes, pods = cluster
    plan = plan_of(index_with(nodes, pods, watch()))
    reached = [pods]
    for _ in range(len(plan.moves) - 1):
        measures = [broken_in(index_with(nodes, state, watch()))[0] for state in reached]
        assert min(measures) > plan.after, "fewer moves are enough"
        reached = [state for before in reached for state in allowed(nodes, before)]
        if not reached:
            return


def _least(counts: tuple[int, ...], skew: int) -> int:
    """The fewest pods that have to move until no two domains differ by more than the skew."""
    total = sum(counts)
    return min(
        sum(max(0, before - after) for before, after in zip(counts, goal, strict=True))
        for goal in product(range(total + 1), repeat=len(counts))
        if sum(goal) == total and max(goal) - min(goal) <= skew
    )


@given(st.lists(st.integers(0, 7), min_size=2, max_size=4).map(tuple), st.integers(1, 3))
def test_one_spread_constraint_takes_the_fewest_moves(counts: tuple[int, ...], skew: int) -> None:
    nodes: list[Node] = [node(f"n{at}", zone=f"z{at}", allocatable=ROOM) for at in range(len(counts))]
    template: Json = {"app": "web", "owner": OWNER, "spreads": [spread("zone", skew, app="web")]}
    bodies = [pod_json(f"p{at}-{n}", on=f"n{at}", **template) for at, pods in enumerate(counts) for n in range(pods)]
    pods: list[Pod] = list(map(read_pod, bodies))
    plan = plan_of(index_of(watch(), *nodes, *pods))
    assert (len(plan.moves), plan.after) == (_least(counts, skew), 0)
