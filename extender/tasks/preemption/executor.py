"""Makes the writes of one preemption, in an order that reserves the node and lets a later leader recover.

1. Clears the nominations of pods of lower priority on the node.
2. Nominates the preemptor, which reserves the node.
3. Sets the condition DisruptionTarget on each victim and deletes it, with its UID as a precondition. If the deletion is
   refused, the condition is removed again. The Eviction API sets the condition itself, and only on pods that it evicts.

A leader that takes over recognises an unfinished preemption by the nomination and the conditions. KEP-4832, KEP-3329, KEP-5278.

Each plan is independent; `manager` decides when a plan runs and what follows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from random import Random
from typing import Final

from extender.index.view import ClusterView
from extender.kube.effects import ObjectEvent, PodCondition, PodRef
from extender.kube.errors import (
    FORBIDDEN_SECONDS,
    Conflict,
    KubeError,
    NotFound,
    OverBudget,
    Rejected,
    Throttled,
    is_forbidden,
)
from extender.kube.timing import Backoff, BackoffOptions, Clock
from extender.kube.writer import Writer
from extender.model.objects import Pod
from extender.model.preemption import PreemptionPlan
from extender.tasks.events import EventRecorder
from extender.tasks.fair_queue import RateLimiter
from extender.tasks.rejected_pods import REQUEUE_ANNOTATION


class GaveUpError(Exception):
    """Raised when a write was rejected for good, or had not succeeded by its deadline. The cause is the last error."""


class ForbiddenByBudgetError(GaveUpError):
    """Raised when a disruption budget forbids an eviction: it may succeed once the budget has changed."""


@dataclass(eq=False, slots=True)
class RetryingWriter:
    """Retries one write with back-off until a deadline, under a limit that all writes of preemptions share.

    A pod that was deleted, or replaced by another pod of the same name, needs no write. Every other failure is retried, except an
    answer that rejects the request itself, and an eviction that a budget forbids. A 403 is retried for `FORBIDDEN_SECONDS`.
    The call must be idempotent.
    """

    rate_limiter: RateLimiter
    reader: Writer
    clock: Clock
    backoff: BackoffOptions
    rng: Random
    retries: int = field(default=0, init=False)

    async def write(self, pod: PodRef, call: Callable[[], Awaitable[None]], deadline: float) -> bool:
        """True when the write was made, False when the pod no longer exists. Raises ``GaveUpError``."""
        backoff, forbidden_until = Backoff(self.backoff, self.rng), inf
        while True:
            try:
                async with self.rate_limiter.acquire():
                    await call()
            except NotFound:
                return False
            except OverBudget as error:
                raise ForbiddenByBudgetError(f"{pod.namespace}/{pod.name}: {error}") from error
            except Rejected as error:
                if not is_forbidden(error):
                    raise GaveUpError(f"{pod.namespace}/{pod.name}: {error}") from error
                # From the first 403 on, however many follow.
                forbidden_until = min(forbidden_until, self.clock.now() + FORBIDDEN_SECONDS)
                await self._wait(pod, error, backoff.next(), min(deadline, forbidden_until))
            except KubeError as error:
                # The name may belong to a new pod by now, as in a StatefulSet. Writes carry the UID, so each retry
                # would conflict again.
                if isinstance(error, Conflict) and await self._is_another(pod):
                    return False
                await self._wait(pod, error, backoff.next(), deadline)
            else:
                return True

    async def is_bound(self, pod: PodRef) -> bool:
        """Whether the pod is bound by now, or deleted. If the read fails the pod counts as pending."""
        try:
            async with self.rate_limiter.acquire():
                return bool(await self.reader.node_of(pod))
        except NotFound:
            return True
        except KubeError:
            return False

    async def _wait(self, pod: PodRef, error: KubeError, seconds: float, deadline: float) -> None:
        """Waits before the next attempt, at least as long as the API server requests; gives up if that is past the deadline."""
        if isinstance(error, Throttled):
            seconds = max(seconds, error.retry_after)
        if self.clock.now() + seconds >= deadline:
            raise GaveUpError(f"{pod.namespace}/{pod.name}: {error}") from error
        self.retries += 1
        await self.clock.sleep(seconds)

    async def _is_another(self, pod: PodRef) -> bool:
        """Whether the name belongs to another pod by now, or to none. If the read fails the pod counts as the same."""
        try:
            async with self.rate_limiter.acquire():
                return await self.reader.uid_of(pod) != pod.uid
        except KubeError:
            return False


_LOG = logging.getLogger(__name__)

TARGET: Final = "DisruptionTarget"
REASON: Final = "PreemptionByScheduler"
NOT_PREEMPTED: Final = "NotPreempted"
_MESSAGE: Final = "placement-extender: makes room for a pod of higher priority"
_TAKEN_BACK: Final = "placement-extender: the pod stays"


class PreemptorNotPendingError(Exception):
    """Raised when the preemptor has been deleted or bound meanwhile: no further victim is deleted."""


@dataclass(frozen=True, slots=True)
class ExecutorOptions:
    """``deadline``: seconds for the writes of one plan. ``evicts``: through the Eviction API instead of DELETE.

    ``at_once``: victims of one plan side by side; the rate limiter bounds all plans together.
    """

    deadline: float = 30.0
    at_once: int = 16
    evicts: bool = False


@dataclass(eq=False, slots=True)
class PreemptionExecutor:
    """Executes plans, one call each."""

    view: ClusterView
    writer: Writer
    retrying: RetryingWriter
    recorder: EventRecorder
    clock: Clock
    utc_now: Callable[[], datetime]
    options: ExecutorOptions
    _seen: set[str] = field(default_factory=set, init=False)

    @property
    def evicts(self) -> bool:
        """Whether victims are evicted, as far as disruption budgets allow, and not deleted."""
        return self.options.evicts

    async def execute(self, plan: PreemptionPlan, on_removed: Callable[[Pod], None] = lambda _victim: None) -> None:
        """Makes all writes of a plan. May be repeated: completed writes are skipped. ``on_removed``: for each victim deleted.

        Raises ``GaveUpError`` when a victim could not be removed or the preemptor not nominated, and
        ``PreemptorNotPendingError`` when the preemptor is bound, terminating or deleted.
        """
        # The order matters. Lower nominations go first, so that their pods are tried elsewhere and not on the preemptor's node.
        # The nomination comes before the first deletion: otherwise the room that a victim leaves could go to another pod, and
        # a new leader would not know for whom the victims were deleted.
        deadline = self.clock.now() + self.options.deadline
        try:
            await self._clear_lower(plan, deadline)
            await self.nominate(plan, deadline)
            await self._remove_victims(plan, deadline, on_removed)
        finally:
            self._seen.discard(plan.preemptor.uid)

    async def clear(self, plan: PreemptionPlan, on_removed: Callable[[Pod], None] = lambda _victim: None) -> None:
        """Removes the victims of a plan whose preemptor is at a gate, and so is not nominated. Raises as `execute` does."""
        try:
            await self._remove_victims(plan, self.clock.now() + self.options.deadline, on_removed)
        finally:
            self._seen.discard(plan.preemptor.uid)

    async def nominate(self, plan: PreemptionPlan, deadline: float) -> None:
        """Nominates the preemptor to the node of the plan.

        The API server refuses the nomination of a bound pod. The watch may show the binding later than the refusal comes.
        """
        self._check_still_needed(plan)
        pod = PodRef.of(plan.preemptor)
        try:
            is_nominated = await self.retrying.write(pod, lambda: self.writer.nominate(pod, plan.node), deadline)
        except GaveUpError as error:
            if isinstance(error.__cause__, Rejected) and await self.retrying.is_bound(pod):
                raise PreemptorNotPendingError(plan.preemptor.full_name) from error
            raise
        if not is_nominated:
            raise PreemptorNotPendingError(plan.preemptor.full_name)

    async def release(self, plan: PreemptionPlan, *, requeues: bool = True) -> None:
        """Clears the nomination and requeues the preemptor, so that the scheduler searches again.

        Both writes are needed. The end of the nomination requeues a pod that an in-tree plugin rejected. The annotation
        requeues a pod that an extender rejected, also in a scheduler without QueueingHints. Raises ``GaveUpError``.
        """
        pod = PodRef.of(plan.preemptor)
        known = self.view.pod(pod.uid)
        if known is None or not known.node:
            deadline = self.clock.now() + self.options.deadline
            if requeues:
                await self._clear_and_requeue(pod, deadline)
            else:
                await self.retrying.write(pod, lambda: self.writer.nominate(pod, ""), deadline)

    async def requeue(self, pod: Pod, node: str) -> None:
        """Requeues a pod, whether an in-tree plugin or an extender rejected it. Raises ``GaveUpError``.

        A nomination that is set and cleared requeues after an in-tree plugin, `requeue_nominated` after an extender.
        """
        deadline = self.clock.now() + self.options.deadline
        target = PodRef.of(pod)
        if await self.retrying.write(target, lambda: self.writer.nominate(target, node), deadline):
            await self._clear_and_requeue(target, deadline)

    async def requeue_nominated(self, pod: Pod) -> None:
        """Requeues a pod and leaves its nomination. Raises ``GaveUpError``.

        Writes an annotation: a kube-scheduler without QueueingHints ignores an update of the status alone (KEP-4247).
        """
        await self._annotate(PodRef.of(pod), self.clock.now() + self.options.deadline)

    async def _clear_and_requeue(self, pod: PodRef, deadline: float) -> None:
        await self.retrying.write(pod, lambda: self.writer.nominate(pod, ""), deadline)
        await self._annotate(pod, deadline)

    async def _annotate(self, pod: PodRef, deadline: float) -> None:
        # A new value each time, because a patch with the same value is no update and requeues nothing.
        stamp = f"{self.clock.now():.3f}"
        await self.retrying.write(pod, lambda: self.writer.annotate(pod, REQUEUE_ANNOTATION, stamp), deadline)

    async def _clear_lower(self, plan: PreemptionPlan, deadline: float) -> None:
        """Clears the nominations of pods of lower priority. Optional: a failure does not stop the preemption."""
        for pod in plan.displaced:
            target = PodRef.of(pod)
            try:
                await self.retrying.write(target, lambda target=target: self.writer.nominate(target, ""), deadline)  # type: ignore[misc]  # bound early
            except GaveUpError as error:
                _LOG.warning("nomination not cleared", extra={"pod": pod.full_name, "error": str(error)})

    async def _remove_victims(self, plan: PreemptionPlan, deadline: float, on_removed: Callable[[Pod], None]) -> None:
        """Removes the victims, some side by side. After a failure no other victim is marked or deleted."""
        failed: list[GaveUpError | PreemptorNotPendingError] = []
        places = asyncio.Semaphore(self.options.at_once)

        async def remove(victim: Pod) -> None:
            try:
                async with places:
                    if not failed and await self._remove(plan, victim, deadline):
                        on_removed(victim)
                        self._record_event(plan, victim)
            except (GaveUpError, PreemptorNotPendingError) as error:
                failed.append(error)

        async with asyncio.TaskGroup() as group:
            for victim in reversed(plan.victims):  # the least important first: after a failure the others stay
                group.create_task(remove(victim))
        if failed:
            raise failed[0]

    async def _remove(self, plan: PreemptionPlan, victim: Pod, deadline: float) -> bool:
        """Deletes exactly this pod, after it is marked; False for a pod that is deleted or terminating already."""
        self._check_still_needed(plan)
        known = self.view.pod(victim.uid)
        if known is None or known.terminating:
            return False
        target = PodRef.of(victim)
        if self.options.evicts:
            return await self.retrying.write(target, lambda: self.writer.evict(target), deadline)
        if not await self._mark(target, "True", REASON, _MESSAGE, deadline):
            return False
        try:
            self._check_still_needed(plan)
            return await self.retrying.write(target, lambda: self.writer.delete(target), deadline)
        except (GaveUpError, PreemptorNotPendingError) as error:
            # A write without an answer may still be carried out: then the condition has to stay.
            if isinstance(error, PreemptorNotPendingError) or isinstance(error.__cause__, Rejected):
                await self._take_back(target, deadline)
            raise

    async def _mark(self, target: PodRef, status: str, reason: str, message: str, deadline: float) -> bool:
        condition = PodCondition(TARGET, status, reason, message, self.utc_now())
        return await self.retrying.write(target, lambda: self.writer.set_condition(target, condition), deadline)

    async def _take_back(self, target: PodRef, deadline: float) -> None:
        """Takes the mark from a pod that stays: a Job would count its next failure as a disruption (podFailurePolicy)."""
        try:
            await self._mark(target, "False", NOT_PREEMPTED, _TAKEN_BACK, deadline)
        except GaveUpError as error:
            _LOG.warning("mark not taken back", extra={"pod": f"{target.namespace}/{target.name}", "error": str(error)})

    def _check_still_needed(self, plan: PreemptionPlan) -> None:
        uid = plan.preemptor.uid
        known = self.view.pod(uid)
        if known is not None:
            self._seen.add(uid)
        # A preemptor that the watch has not shown yet counts as pending: the scheduler has seen it first. Once the watch has
        # shown it, its absence means that it was deleted.
        if (known is None and uid in self._seen) or (known is not None and (known.node or known.terminating)):
            raise PreemptorNotPendingError(plan.preemptor.full_name)

    def _record_event(self, plan: PreemptionPlan, victim: Pod) -> None:
        """Queues the event of a victim; the writes of the plan do not wait for it.

        The preemptor gets none, as from kube-scheduler: `kubectl describe` shows its nominated node, and each event is an
        object in etcd.
        """
        note = f"Preempted by pod {plan.preemptor.uid} on node {victim.node}"
        self.recorder.record(ObjectEvent(PodRef.of(victim), "Normal", "Preempted", "Preempting", note, self.utc_now()))
