"""Clusters, preemptors and offers of victims."""

from __future__ import annotations

from typing import Any, TypeAlias

from hypothesis import strategies as st

from extender.index.cluster import ClusterIndex
from extender.model.objects import Object, Pod
from extender.model.preemption import PreemptionPlan
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.verbs.dry_run import DryRun, importance
from tests.builders import preempting, spread, term
from tests.contenders import budget, cluster, contender, stage

PREEMPTOR = 10
NAMES = ("n1", "n2", "n3")
NODES = [stage("n1", "z1"), stage("n2", "z1"), stage("n3", "z2", cpu=2000)]
APPS = ("web", "db")
Standing: TypeAlias = tuple[str, str, int, dict[str, Any], bool, int]
CONSTRAINTS: list[dict[str, Any]] = [
    *({"apart": [term(key, app=app)]} for key in ("host", "zone") for app in APPS),
    {"near": [term("zone", app="db")], "apart": [term("host", app="web")]},
    {"spreads": [spread("zone", app="web")]},
    {"spreads": [spread("host", 2, app="web"), spread("zone", 2, app="db")]},
]
UNCONSTRAINED: dict[str, Any] = {}
priorities = st.sampled_from([PREEMPTOR - 3, PREEMPTOR - 2, PREEMPTOR - 1, PREEMPTOR])
carried = st.sampled_from([UNCONSTRAINED, UNCONSTRAINED, *CONSTRAINTS])


def standing_on(*names: str) -> st.SearchStrategy[Standing]:
    """A pod on one of the nodes: its app, priority, constraints, whether it is going, and when it started."""
    return st.tuples(
        st.sampled_from(names), st.sampled_from(APPS), priorities, carried, st.booleans(), st.integers(0, 59)
    )


standing = standing_on(*NAMES)
budgets = st.lists(
    st.builds(lambda app, allowed: budget(f"keep-{app}", allowed, app=app), st.sampled_from(APPS), st.integers(0, 2)),
    max_size=2,
)
coming = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(APPS), priorities), max_size=2)


@st.composite
def clusters(draw: st.DrawFn, first: st.SearchStrategy[list[Standing]] | None = None, most: int = 8) -> list[Object]:
    """Nodes, pods of around the preemptor's priority, budgets, and pods nominated here and there.

    ``first`` are pods that are there in any case; without any a pod on each node.
    """
    there = [draw(standing_on(name)) for name in NAMES] if first is None else draw(first)
    crowd = [*there, *draw(st.lists(standing, max_size=most))]
    pods = [
        contender(f"p{i}", on=on, app=app, priority=priority, terminating=going, minute=minute, cpu=1000, **fields)
        for i, (on, app, priority, fields, going, minute) in enumerate(crowd)
    ]
    nominated = [
        contender(f"c{i}", nominated=on, app=app, priority=priority, cpu=500)
        for i, (on, app, priority) in enumerate(draw(coming))
    ]
    return [*NODES, *pods, *nominated, *draw(budgets)]


def offers(incoming: dict[str, Any], held: ClusterIndex, data: st.DataObject) -> dict[str, list[str]]:
    """Candidates by node: those of a scheduler, which decides by node fit alone, or pods of lower priority at random."""
    if data.draw(st.booleans()):
        found = [(name, scheduler_victims(incoming, held, name)) for name in NAMES]
        return {name: [each.uid for each in victims] for name, victims in found if victims}
    lower = [each for each in held.pods.values() if each.node and each.priority < PREEMPTOR]
    offered: dict[str, list[str]] = {}
    for each in data.draw(st.lists(st.sampled_from(lower), unique_by=lambda pod: pod.uid)) if lower else []:
        offered.setdefault(each.node, []).append(each.uid)
    return offered


def scheduler_victims(incoming: dict[str, Any], held: ClusterIndex, node: str) -> tuple[Pod, ...]:
    """The victims by node fit alone, the most important of them first; none where the node does not help or needs none."""
    pod = preempting(incoming, {}).pod
    found = DryRun(pod, held.view, has_rules=False).on(held.view.known[node], checks_fit=True)
    return () if found is None else tuple(sorted(found.victims, key=importance))


CONSTRAINTS_ON_DB = [
    each for each in CONSTRAINTS if each in ({"apart": [term(key, app="db")]} for key in ("host", "zone"))
]


def in_the_way(fields: dict[str, Any]) -> str:
    """The app whose pods keep a pod with these constraints away from the nodes around them."""
    return "db" if fields in CONSTRAINTS_ON_DB else "web"


@st.composite
def refusing(
    draw: st.DrawFn, of_priority: st.SearchStrategy[int], most: int = 8
) -> tuple[dict[str, Any], list[Object]]:
    """Constraints of a preemptor, and a cluster with a pod on each node that is mostly in its way."""
    fields = draw(st.sampled_from([*CONSTRAINTS, *CONSTRAINTS[:5], *CONSTRAINTS[:5]]))
    app = in_the_way(fields)
    blocking = st.tuples(*(st.tuples(st.just(name), st.just(app), of_priority, carried, st.just(False), st.just(0)) for name in NAMES))  # fmt: skip
    return fields, draw(clusters(blocking.map(list), most))


def rivals_of(pod: Pod, held: ClusterIndex, node: str) -> list[Pod]:
    """The pods that are to come to the node and may take the pod's place."""
    nominated = held.view.nominated.get(node, {}).values()
    return [each for each in nominated if each.priority >= pod.priority and each.uid != pod.uid]


def passes_beside(conflicting: dict[str, list[Pod]], held: ClusterIndex, pod: Pod, node: str) -> bool:
    """Whether our rules let the pod pass while these pods stand on their nodes."""
    with held.view.trial() as trial:
        for name, each in ((name, each) for name, pods in conflicting.items() for each in pods):
            trial.place(each, held.view.known[name])
        compiled = held.view.compiled(pod.signature)
        return catalog.prepare_filters(pod, compiled, held.view, IndexFrame()).reason(held.view.known[node]) is None


def rules_pass(held: ClusterIndex, pod: Pod, node: str, *, room: bool = False) -> bool:
    """Whether our rules let the pod pass, with and without the pods that are to come to the node.

    ``room``: node fit counts too. It always does beside pods to come, as the scheduler may not know of them yet.
    """
    conflicting = rivals_of(pod, held, node)
    fit = catalog.NODE_FIT.on_node(pod, held.view, held.view.known[node], conflicting)
    if (conflicting or room) and not (fit is not None and fit.passes()):
        return False
    return passes_beside({}, held, pod, node) and passes_beside({node: conflicting}, held, pod, node)


def rules_pass_beside_all(held: ClusterIndex, pod: Pod, node: str) -> bool:
    """Whether our rules let the pod pass beside all pods that are to come anywhere.

    A plan may be made so that it holds then as well, and so may be larger than it has to be for the scheduler.
    """
    return passes_beside({name: rivals_of(pod, held, name) for name in NAMES}, held, pod, node)


def after(objects: list[Object], deleted: tuple[Pod, ...]) -> ClusterIndex:
    """The same cluster without these pods."""
    uids = {each.uid for each in deleted}
    return cluster(*(each for each in objects if not (isinstance(each, Pod) and each.uid in uids)))


def check(
    plan: PreemptionPlan, objects: list[Object], spareable: tuple[Pod, ...] | None = None, *, room: bool = False
) -> None:
    """The laws for one plan; ``spareable`` are the victims that we added ourselves, if not all."""
    pod = plan.preemptor
    assert plan.victims
    assert all(each.priority < pod.priority for each in plan.victims)
    assert list(plan.victims) == sorted(plan.victims, key=lambda each: -each.priority)
    assert all(each.priority < pod.priority and each.nominated_node == plan.node for each in plan.displaced)
    assert rules_pass(after(objects, plan.victims), pod, plan.node, room=room)
    for spared in plan.victims if spareable is None else spareable:
        left = tuple(each for each in plan.victims if each.uid != spared.uid)
        held = after(objects, left)
        needless = rules_pass(held, pod, plan.node, room=room) and rules_pass_beside_all(held, pod, plan.node)
        assert not needless, f"{spared.name} goes for nothing"
