"""Which schedulers ask this replica; and an event on a pod whose scheduler does not ask.

The counts begin with the term of this replica. So after a restart nothing is reported for `SETTLED_SECONDS`. Bounded: the
schedulers of `SchedulerCounts`, and `_MOST_REPORTED` pods with an event. Namespaces take turns (`EventRecorder`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from extender.index.cluster import ClusterIndex
from extender.kube.effects import ObjectEvent, PodRef
from extender.kube.timing import Clock
from extender.model.answers.explanations import Asked
from extender.model.objects import Pod
from extender.model.units import read_time
from extender.tasks.events import EventRecorder
from extender.tasks.filter_service import OTHERS, SchedulerCounts
from extender.telemetry.decision_log import DecisionLog, LoggedDecision
from extender.verbs.explain.scheduler_requests import (
    SETTLED_SECONDS,
    KnownSchedulers,
    LastAnswer,
    asked_about,
    is_unasked,
    unasked_note,
)

REASON: Final = "NoSchedulerAsks"
LOOK_SECONDS: Final = 30.0  # between two looks at all pods without a node
_PODS_PER_SLICE: Final = 500  # at 0.3 µs
_MOST_REPORTED: Final = 2000


@dataclass(eq=False, slots=True)
class SchedulerRequests:
    """Which schedulers have sent requests. ``since`` returns when this replica began to answer, in monotonic seconds; None while it does not."""

    decisions: SchedulerCounts
    log: DecisionLog
    clock: Clock
    utc_now: Callable[[], datetime]
    since: Callable[[], float | None]
    elsewhere: frozenset[str] = field(default_factory=frozenset, init=False)  # `UnaskedPods` finds them

    def known_schedulers(self) -> KnownSchedulers | None:
        """The schedulers that have sent requests; None in a replica that does not answer. O(schedulers)."""
        since, now = self.since(), self.clock.now()
        if since is None:
            return None
        last = self.decisions.last
        ages = {name: now - at for name, at in last.items() if at >= since and name != OTHERS}
        return KnownSchedulers(self.utc_now(), now - since, ages, OTHERS not in last, self.elsewhere)

    def about(self, pod: Pod) -> Asked | None:
        """Whether a scheduler looks at a pending pod. O(decisions that are kept)."""
        known, last = self.known_schedulers(), self.log.latest_of({pod.uid}).get(pod.uid)
        if known is None:
            return None
        answer = None if last is None else LastAnswer(known.now.timestamp() - last.time, _in_words(last))
        return asked_about(pod, known, answer)

    def unasked(self, pod: Pod) -> str:
        """A sentence that no scheduler looks at a pending pod; empty if one does. O(schedulers)."""
        known = self.known_schedulers()
        return unasked_note(pod, known) if known is not None and is_unasked(pod, known) else ""


def _in_words(decision: LoggedDecision) -> str:
    if decision.error:
        return decision.error
    if decision.passed:
        return f"{decision.passed} of {decision.nodes} nodes passed"
    return f"none of {decision.nodes} nodes passed ({', '.join(decision.reasons)})"


@dataclass(eq=False, slots=True)
class UnaskedPods:
    """Records one event on each pending pod whose `schedulerName` no scheduler asks with. For the leader.

    First it looks for pods of that scheduler on nodes. If there are some, the scheduler works without the extender, and its
    pods get no event. Without ``events`` only this search runs.
    """

    index: ClusterIndex
    asking: SchedulerRequests
    events: EventRecorder | None
    clock: Clock
    _reported: set[str] = field(default_factory=set, init=False)

    async def run(self) -> None:
        """Looks at all pods without a node every `LOOK_SECONDS`, until cancelled. O(pods without a node), in slices."""
        while True:
            await self.clock.sleep(LOOK_SECONDS)
            unplaced = self.index.unplaced
            self._reported = {uid for uid in self._reported if uid in unplaced}
            await self._look_elsewhere()
            for number, pod in enumerate(list(unplaced.values())):
                if number % _PODS_PER_SLICE == _PODS_PER_SLICE - 1:
                    await self.clock.sleep(0)
                if pod.uid not in self._reported and len(self._reported) < _MOST_REPORTED:
                    self._look(pod)

    async def _look_elsewhere(self) -> None:
        """Finds the schedulers that place pods and have not asked. O(pods), in slices; O(waiting pods) if all have asked."""
        known = self.asking.known_schedulers()
        if known is None:
            return
        view, looked, placing = self.index.view, 0, set[str]()
        names = {pod.scheduler for pod in self.index.unplaced.values()} - known.ages.keys()
        for number in range(len(view.node_names) if names else 0):
            # The list may have become shorter during a pause.
            here = view.pods_on(number) if number < len(view.node_names) else {}
            looked += len(here)
            placing |= {pod.scheduler for pod in here.values() if pod.scheduler in names}
            if looked >= _PODS_PER_SLICE:
                looked = 0
                await self.clock.sleep(0)
        self.asking.elsewhere = frozenset(placing)

    def _look(self, pod: Pod) -> None:
        known, created = self.asking.known_schedulers(), read_time(pod.created)
        if self.events is None or known is None or created is None or not is_unasked(pod, known):
            return
        if (known.now - created).total_seconds() >= SETTLED_SECONDS:
            self._reported.add(pod.uid)
            note = unasked_note(pod, known)
            self.events.record(ObjectEvent(PodRef.of(pod), "Warning", REASON, "Scheduling", note, known.now))
