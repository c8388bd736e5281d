"""Clusters, preemptors and offers of victims."""

from __future__ import annotations

from typing import Any, TypeAlias

from hypothesis import strategies as st

from extender.index.cluster import ClusterIndex
from extender.model.objects import Object, Pod
from extender.verbs.dry_run import DryRun, importance
from tests.builders import preempting, spread, term
from tests.contenders import budget, contender, stage

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


def offers(asking: dict[str, Any], held: ClusterIndex, data: st.DataObject) -> dict[str, list[str]]:
    """Candidates by node: those of a scheduler, which decides by node fit alone, or pods of lower priority at random."""
    if data.draw(st.booleans()):
        found = [(name, scheduler_victims(asking, held, name)) for name in NAMES]
        return {name: [each.uid for each in victims] for name, victims in found if victims}
    lower = [each for each in held.pods.values() if each.node and each.priority < PREEMPTOR]
    offered: dict[str, list[str]] = {}
    for each in data.draw(st.lists(st.sampled_from(lower), unique_by=lambda pod: pod.uid)) if lower else []:
        offered.setdefault(each.node, []).append(each.uid)
    return offered


def scheduler_victims(asking: dict[str, Any], held: ClusterIndex, node: str) -> tuple[Pod, ...]:
    """The victims by node fit alone, the most important of them first; none where the node does not help or needs none."""
    pod = preempting(asking, {}).pod
    found = DryRun(pod, held.view, has_rules=False).on(held.view.known[node], checks_fit=True)
    return () if found is None else tuple(sorted(found.victims, key=importance))
