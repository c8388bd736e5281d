"""The preempt verb with its effect: the plan is submitted, or the pod requeued, before the answer is given."""

from __future__ import annotations

from random import Random

from extender.model.objects import Object, Pod
from extender.model.preemption import PreemptionPlan
from extender.tasks.preempt_and_bind import PreemptService
from extender.verbs.request import Unconfirmed, watched_pod
from tests.builders import preempting, settings
from tests.contenders import cluster, contender, contender_json, stage

IMPORTANT = 100
EXECUTE = settings(preemption={"mode": "execute"})
LARGE = contender_json("incoming", priority=IMPORTANT, cpu=2000)
FULL: tuple[Object, ...] = (stage("n1"), contender("a", on="n1", cpu=4000))
RIVAL = contender("rival", cpu=4000, priority=IMPORTANT, nominated="n1")


class Plans:
    """What was submitted and what was requeued."""

    def __init__(self) -> None:
        self.submitted: list[tuple[str, list[str]]] = []
        self.requeued: list[tuple[str, str]] = []

    def submit(self, plan: PreemptionPlan) -> bool:
        """Notes the node and the victims."""
        self.submitted.append((plan.node, [each.name for each in plan.victims]))
        return True

    def requeue(self, pod: Pod, node: str) -> None:
        """Notes the pod and the node."""
        self.requeued.append((pod.name, node))


async def preempted(*objects: Object) -> tuple[list[str], Plans]:
    """The nodes answered for the pod as the index has it, and what came of the decision."""
    held, plans = cluster(*objects), Plans()

    async def find(pod: Pod) -> Pod | Unconfirmed:
        return watched_pod(pod.uid, pod.signature.namespace, pod.name, held.view)

    service = PreemptService(held.view, EXECUTE, Random(1), plans, find)
    candidates = await service.preempt(preempting(LARGE, {"n1": ["uid-a"]}))
    return [each.node for each in candidates], plans


async def test_a_plan_is_submitted_and_no_candidate_left_to_the_scheduler() -> None:
    answered, plans = await preempted(*FULL, contender("incoming", priority=IMPORTANT, cpu=2000))
    assert (answered, plans.submitted, plans.requeued) == ([], [("n1", ["a"])], [])


async def test_a_pod_that_no_candidate_helps_is_requeued() -> None:
    """Its claim may be bound to any node: only the scheduler can try other ones."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    incoming = contender("incoming", priority=IMPORTANT, cpu=2000, volumes=volumes)
    answered, plans = await preempted(*FULL, stage("n2"), RIVAL, incoming)
    assert (answered, plans.submitted, plans.requeued) == ([], [], [("incoming", "n1")])


async def test_nothing_is_preempted_for_a_pod_that_the_watch_does_not_show_pending() -> None:
    """A request alone is no proof that the pod exists, and its priority is not believed."""
    missing = await preempted(*FULL)
    bound = await preempted(*FULL, contender("incoming", on="n1", priority=IMPORTANT))
    modest = await preempted(*FULL, contender("incoming", priority=-1, cpu=2000))
    assert [(answered, plans.submitted) for answered, plans in (missing, bound, modest)] == [([], [])] * 3
