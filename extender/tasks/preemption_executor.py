"""The writes of one preemption, in the order that keeps the room for the preemptor and leaves a trail.

Clear the nominations of less important pods on the node; nominate the preemptor, which holds the place; then, victim
by victim, the condition DisruptionTarget and the deletion, with the UID as a precondition. A leader that takes over
recognises what is half done by the nomination and the conditions. KEP-4832, KEP-3329, KEP-5278.

Knows one plan at a time and keeps nothing between plans; who runs when, and what follows, is `preempting`'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from extender.index.view import ClusterView
from extender.kube.effects import PodCondition, PodEvent, PodRef
from extender.model.objects import Pod
from extender.model.plans import PreemptionPlan
from extender.tasks.event_recorder import EventRecorder
from extender.tasks.nominator import REQUEUE_ANNOTATION
from extender.tasks.ports import Clock, ClusterWriter
from extender.tasks.retrying_writer import GaveUpError, RetryingWriter

_LOG = logging.getLogger(__name__)

TARGET: Final = "DisruptionTarget"
REASON: Final = "PreemptionByScheduler"
_MESSAGE: Final = "placement-extender: makes room for a pod of higher priority"


class PreemptorGoneError(Exception):
    """Raised when the preemptor has been deleted or placed meanwhile: nobody else has to go."""


@dataclass(frozen=True, slots=True)
class ExecutorOptions:
    """``deadline``: seconds for the writes of one plan. ``evicts``: through the Eviction API instead of DELETE.

    ``at_once``: victims of one plan side by side; the pace bounds all plans together.
    """

    deadline: float = 30.0
    at_once: int = 16
    evicts: bool = False


class PreemptionExecutor:
    """Carries out plans, one call each."""

    def __init__(
        self,
        view: ClusterView,
        writer: ClusterWriter,
        persistence: RetryingWriter,
        telling: EventRecorder,
        clock: Clock,
        wall: Callable[[], datetime],
        options: ExecutorOptions,
    ) -> None:
        self.telling = telling
        self._view = view
        self._writer = writer
        self._persistence = persistence
        self._clock = clock
        self._wall = wall
        self._options = options
        self._seen: set[str] = set()

    async def carry_out(self, plan: PreemptionPlan) -> None:
        """All writes of a plan. May be repeated: what is done already is not done again.

        Raises ``GaveUpError`` when a victim could not be removed or the preemptor not nominated, and
        ``PreemptorGoneError`` when there is nobody any more to make room for.
        """
        deadline = self._clock.now() + self._options.deadline
        try:
            await self._clear_lower(plan, deadline)
            await self.nominate(plan, deadline)
            await self._remove_victims(plan, deadline)
        finally:
            self._seen.discard(plan.preemptor.uid)

    def _announce(self, plan: PreemptionPlan) -> None:
        pods = "1 pod has" if len(plan.victims) == 1 else f"{len(plan.victims)} pods have"
        self._tell(plan.preemptor, "Nominated", f"Nominated to node {plan.node}, from which {pods} to go")

    async def nominate(self, plan: PreemptionPlan, deadline: float) -> None:
        """Holds the node for the preemptor."""
        self._check(plan)
        pod = ref(plan.preemptor)
        if not await self._persistence.write(pod, lambda: self._writer.nominate(pod, plan.node), deadline):
            raise PreemptorGoneError(plan.preemptor.full_name)

    async def release(self, plan: PreemptionPlan) -> None:
        """Takes the nomination back and wakes the preemptor, so that the scheduler looks for another way.

        Both writes wake it: the first where an in-tree plugin has refused it, the second where an extender has.
        Raises ``GaveUpError``.
        """
        deadline = self._clock.now() + self._options.deadline
        pod, stamp = ref(plan.preemptor), f"{self._clock.now():.3f}"
        known = self._view.pod(pod.uid)
        if known is None or not known.node:
            await self._persistence.write(pod, lambda: self._writer.nominate(pod, ""), deadline)
            await self._persistence.write(pod, lambda: self._writer.annotate(pod, REQUEUE_ANNOTATION, stamp), deadline)

    async def wake(self, pod: Pod, node: str) -> None:
        """Makes the scheduler try a pod again that an in-tree plugin has refused: it looks when a nomination ends."""
        deadline = self._clock.now() + self._options.deadline
        meant = ref(pod)
        if await self._persistence.write(meant, lambda: self._writer.nominate(meant, node), deadline):
            await self._persistence.write(meant, lambda: self._writer.nominate(meant, ""), deadline)

    async def _clear_lower(self, plan: PreemptionPlan, deadline: float) -> None:
        """Lets less important pods look elsewhere now. Not vital: a failure here does not keep anybody from his room."""
        for pod in plan.displaced:
            meant = ref(pod)
            try:
                await self._persistence.write(meant, lambda meant=meant: self._writer.nominate(meant, ""), deadline)  # type: ignore[misc]  # bound early
            except GaveUpError as error:
                _LOG.warning("nomination not cleared", extra={"pod": pod.full_name, "error": str(error)})

    async def _remove_victims(self, plan: PreemptionPlan, deadline: float) -> None:
        """The victims, some side by side. After one has failed no other one is begun, nor marked for it."""
        failed: list[GaveUpError | PreemptorGoneError] = []
        places = asyncio.Semaphore(self._options.at_once)

        async def remove(victim: Pod) -> None:
            try:
                async with places:
                    if not failed:
                        await self._remove(plan, victim, deadline)
            except (GaveUpError, PreemptorGoneError) as error:
                failed.append(error)

        self._announce(plan)
        async with asyncio.TaskGroup() as group:
            for victim in reversed(plan.victims):  # the least important first: if it fails, the others may live
                group.create_task(remove(victim))
        if failed:
            raise failed[0]

    async def _remove(self, plan: PreemptionPlan, victim: Pod, deadline: float) -> None:
        """The condition, then the deletion of exactly this pod; nothing for one that is gone or going already."""
        self._check(plan)
        known = self._view.pod(victim.uid)
        if known is None or known.terminating:
            return
        meant = ref(victim)
        condition = PodCondition(TARGET, "True", REASON, _MESSAGE, self._wall())
        end = self._writer.evict if self._options.evicts else self._writer.delete
        if not await self._persistence.write(meant, lambda: self._writer.set_condition(meant, condition), deadline):
            return
        self._check(plan)
        if await self._persistence.write(meant, lambda: end(meant), deadline):
            self._tell(victim, "Preempted", f"Preempted by pod {plan.preemptor.uid} on node {victim.node}")

    def _check(self, plan: PreemptionPlan) -> None:
        """Raises where nobody has to go any more: the preemptor stands somewhere, or is on its way out."""
        uid = plan.preemptor.uid
        known = self._view.pod(uid)
        if known is not None:
            self._seen.add(uid)
        # One that the watch has not shown yet is not gone: the scheduler has seen it before us.
        if (known is None and uid in self._seen) or (known is not None and (known.node or known.terminating)):
            raise PreemptorGoneError(plan.preemptor.full_name)

    def _tell(self, pod: Pod, reason: str, note: str) -> None:
        """An Event at the pod; nobody's room waits for it."""
        self.telling.tell(PodEvent(ref(pod), "Normal", reason, "Preempting", note, self._wall()))


def ref(pod: Pod) -> PodRef:
    """Exactly this pod, and no namesake."""
    return PodRef(pod.namespace, pod.name, pod.uid)
