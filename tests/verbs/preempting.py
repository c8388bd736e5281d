"""Requests to the preempt verb, and counted dry runs."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from extender.index.cluster import ClusterIndex
from extender.index.nodes.columns import NodeNumber
from extender.model.objects import Object, Pod
from extender.model.preemption import PreemptionPlan
from extender.settings.configuration import Settings
from extender.verbs.dry_run import DryRun, NodeVictims
from extender.verbs.preempt import Examination, PreemptionDecision, decide_preemption
from tests.builders import Json, preempting, settings
from tests.contenders import cluster, contender, contender_json, stage
from tests.verbs.dry_runs import IMPORTANT

EXECUTE = settings(preemption={"mode": "execute"})
LARGE = contender_json("asking", priority=IMPORTANT, cpu=2000)
FULL: list[Object] = [
    stage("n1"),
    stage("n2"),
    contender("a", on="n1", cpu=4000, priority=5),
    contender("b", on="n2", cpu=4000, priority=3),
]


Offers = Mapping[str, Sequence[str]]


def decide(
    candidates: Offers,
    *objects: Object,
    pod: dict[str, object] | None = None,
    by: Settings = EXECUTE,
    planned: str = "",
    violations: int = 0,
    seed: int = 0,
    assumed: Mapping[str, str] | None = None,
    deleted: Sequence[Object] = (),
) -> PreemptionDecision:
    """The decision on these offers, with pods that are assumed on a node, and objects that are deleted again."""
    held = cluster(*objects)
    for name, node in (assumed or {}).items():
        held.assume(held.pods[f"uid-{name}"], (node,), 0.0)
    for obj in deleted:
        held.delete(obj)
    args = preempting(
        LARGE if pod is None else pod, {n: [f"uid-{v}" for v in vs] for n, vs in candidates.items()}, violations
    )
    if planned:
        held.nominate_in_memory(args.pod, planned, ["uid-a"])
    return decide_preemption(args, held.view, by, seed)


NODES: list[Object] = [stage(f"n{number}") for number in range(5)]
STANDING: list[Object] = [
    contender(f"p{number}", on=f"n{number}", cpu=4000, app="web", priority=number + 1) for number in range(5)
]


class Counted(DryRun):
    """A dry run that tells on how many nodes it was made."""

    runs = 0

    def on(
        self, number: NodeNumber, taken: Sequence[Pod] = (), *, checks_fit: bool = False, first: Container[str] = ()
    ) -> NodeVictims | None:
        self.runs += 1
        return super().on(number, taken, checks_fit=checks_fit, first=first)


def chosen(pod: dict[str, object], *more: Object, seed: int = 0) -> tuple[str, int]:
    """The node, and how many dry runs that took."""
    held = cluster(*NODES, *STANDING, *more)
    args = preempting(pod, {f"n{number}": [f"uid-p{number}"] for number in range(5)})
    run = Counted(args.pod, held.view)
    outcome = Examination(run, sees_everything=True).best(args.candidates, seed)
    return (outcome.node if isinstance(outcome, NodeVictims) else "", run.runs)


URGENT: Json = {"priority": 1000, "cpu": 4000, "app": "urgent"}
ZONES = ("a", "b", "c")


def full(*nominated: Json) -> ClusterIndex:
    """A node in each of three zones, each full with one lesser pod, and pods that are nominated."""
    nodes = [stage(f"n-{zone}", zone) for zone in ZONES]
    lesser = [contender(f"low-{zone}", on=f"n-{zone}", cpu=4000) for zone in ZONES]
    return cluster(*nodes, *lesser, *(contender(f"first-{at}", **each) for at, each in enumerate(nominated)))


def decide_next(index: ClusterIndex, seed: int, **constraints: Any) -> PreemptionDecision:
    """What becomes of one more urgent pod to which the scheduler offers every node."""
    index.upsert(contender("next", **URGENT, **constraints))
    offers = {f"n-{zone}": [f"uid-low-{zone}"] for zone in ZONES}
    return decide_preemption(
        preempting(contender_json("next", **URGENT, **constraints), offers), index.view, EXECUTE, seed
    )


def nodes_of(index: ClusterIndex, **constraints: Any) -> set[str]:
    """The nodes that are chosen, whatever the seed."""
    plans: list[PreemptionPlan | None] = [decide_next(index, seed, **constraints).plan for seed in range(12)]
    return {each.node for each in plans if each is not None}
