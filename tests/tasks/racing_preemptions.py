"""Two pods and one node: a preemption that is carried out while the second pod arrives."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from extender.model.objects import Object, Pod
from extender.model.preemption import PreemptionPlan
from extender.tasks.preempt_and_bind import PreemptService
from extender.verbs.request import Unconfirmed, watched_pod
from tests.builders import preempting, settings, term
from tests.contenders import budget, cluster, contender, contender_json, stage
from tests.tasks.preemption_scene import Scene

LONELY: dict[str, Any] = {"app": "web", "apart": [term("host", app="web")]}
POD1: dict[str, Any] = {"name": "pod1", "priority": 100, **LONELY}
LOW: list[Object] = [stage("n1"), contender("low", on="n1", app="web")]


def pod2(priority: int) -> dict[str, Any]:
    return {"name": "pod2", "priority": priority, **LONELY}


async def scene_with_pod1_preempting(*more: Object) -> Scene:
    """pod1 has been refused by its constraint on n1 and its plan is submitted, with no write made yet."""
    s = Scene(*LOW, contender(**POD1), *more, graceful=False)
    s.filter(**POD1)
    assert s.phases() == {"executing": 1}
    return s


async def finished(s: Scene) -> None:
    async with s.running():
        await s.go()
        await s.pass_time(1)


IMPORTANT = 100
EXECUTE = settings(preemption={"mode": "execute"})
LARGE = contender_json("incoming", priority=IMPORTANT, cpu=2000)


class Plans:
    """What was submitted and what was requeued."""

    def __init__(self) -> None:
        self.submitted: list[tuple[str, list[str]]] = []
        self.requeued: list[tuple[str, str]] = []
        self.unknown = 0

    def note_unknown(self) -> None:
        self.unknown += 1

    def submit(self, plan: PreemptionPlan) -> bool:
        self.submitted.append((plan.node, [each.name for each in plan.victims]))
        return True

    def requeue(self, pod: Pod, node: str) -> None:
        self.requeued.append((pod.name, node))


async def preempted(*objects: Object) -> tuple[list[str], Plans]:
    """The nodes answered for the pod as the index has it, and what came of the decision."""
    held, plans = cluster(*objects), Plans()

    async def find(pod: Pod) -> Pod | Unconfirmed:
        return watched_pod(pod.uid, pod.signature.namespace, pod.name, held.view)

    service = PreemptService(held.view, EXECUTE, Random(1), plans, find, on_unknown=plans.note_unknown)
    candidates = await service.preempt(preempting(LARGE, {"n1": ["uid-a"]}))
    return [each.node for each in candidates], plans


INCOMING = contender("asking", priority=100)
VICTIMS = tuple(contender(f"victim-{number}", on="n1", app="web") for number in range(2))


def scene(*allowed: int, pods: Sequence[Pod] = (INCOMING, *VICTIMS), **sections: Any) -> Scene:
    """Two web pods on a node, and a budget for them that allows so many disruptions; no budget without a number."""
    budgets = [budget(f"keep-{number}", each, app="web") for number, each in enumerate(allowed)]
    return Scene(stage("n1"), *pods, *budgets, **sections)
