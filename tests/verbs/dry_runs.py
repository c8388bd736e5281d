"""Nodes full of pods, and a dry run that removes some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.model.objects import Object, Pod
from extender.model.preemption import PreemptionPlan
from extender.model.rejections import Reason
from extender.settings.configuration import Settings
from extender.verbs.dry_run import DryRun, best_among
from extender.verbs.filter import FilterDecision, FilterVerb
from extender.wire.extender_v1 import ExtenderArgs
from tests.builders import Json, extender_args, matching, settings, term
from tests.contenders import cluster, contender, contender_json, stage
from tests.index.counting import unlimited

IMPORTANT = 100


def removed(
    incoming: Pod,
    *objects: Object,
    node: str = "n1",
    taken: tuple[Pod, ...] = (),
    room: bool = False,
    across: bool = False,
) -> list[str] | None:
    """The names of the victims in the order of the answer; None where nothing helps."""
    held = cluster(*objects)
    removal = DryRun(incoming, held.view, across=across).on(held.view.known[node], taken, checks_fit=room)
    assert audit(held) == [], "a dry run leaves no trace"
    return None if removal is None else [each.name for each in removal.victims]


def web(name: str, on: str = "n1", **fields: object) -> Pod:
    return contender(name, on=on, app="web", **fields)


def lonely(name: str = "asking", **fields: object) -> Pod:
    return contender(name, priority=IMPORTANT, apart=[term("host", app="web")], **fields)


def large(cpu: int = 2000, **fields: object) -> Pod:
    return contender("asking", cpu=cpu, priority=IMPORTANT, **fields)


def terms(number: int, key: str = "host") -> list[Json]:
    """So many different terms about web pods."""
    return [term(key, selector=matching((f"x{each}", "DoesNotExist", []), app="web")) for each in range(number)]


def preemptor(number: int = 30, key: str = "host") -> Pod:
    return unlimited(contender_json("asking", priority=100, apart=terms(number, key)))


def crowd(nodes: int, pods: int = 3, *, spared: int = -1) -> ClusterIndex:
    """On each node web pods that may go and one that may not, except on the node ``spared``."""
    made = cluster(*(stage(f"n{number}", "z1") for number in range(nodes)))
    for number in range(nodes):
        for each in range(pods):
            made.upsert(contender(f"w{number}-{each}", on=f"n{number}", app="web"))
        if number != spared:
            made.upsert(contender(f"high-{number}", on=f"n{number}", priority=1000, app="web"))
    return made


def search(index: ClusterIndex, pod: Pod) -> tuple[DryRun, str]:
    """The run over all nodes, and the node that it found."""
    run = DryRun(pod, index.view)
    removal = best_among(sorted(index.view.known.values()), run, 0)
    return run, "" if removal is None else removal.node


LONELY: dict[str, Any] = {"priority": IMPORTANT, "apart": [term("host", app="web")]}
WEB_EVERYWHERE: list[Object] = [
    stage("n1"),
    stage("n2"),
    contender("w1", on="n1", app="web", priority=5),
    contender("w2", on="n2", app="web", priority=3),
]


class FilterScene:
    """An index with these objects, and requests for a pod."""

    def __init__(self, *objects: Object, **sections: Any) -> None:
        self.index: ClusterIndex = cluster(*objects)
        every_name: dict[str, Any] = {"placement": "cooperative"}
        self.settings: Settings = settings(**every_name, **sections)
        self.verb = FilterVerb(self.index.view, self.settings)

    def filter(self, *names: str, **pod: Any) -> FilterDecision:
        """The decision about a pod of these fields, for these nodes or all."""
        args = extender_args(contender_json("asking", **(pod or LONELY)), *(names or self.index.view.known))
        return self.decide(args)

    def decide(self, args: ExtenderArgs) -> FilterDecision:
        """The decision on a request. It has a reason for every text in it."""
        decision = self.verb.decide(args, 0)
        result = decision.result
        assert {*result.failed.values(), *result.unresolvable.values()} <= {reason.text for reason in result.reasons}
        return decision


def node_and_victims(plan: PreemptionPlan | None) -> tuple[str, list[str]] | None:
    return None if plan is None else (plan.node, [each.name for each in plan.victims])


def texts(**reasons: Reason) -> Mapping[str, str]:
    return {name: reason.text for name, reason in reasons.items()}
