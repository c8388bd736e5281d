"""Tells how far the release of a group is: the status of its GroupPlacement, events about a pod of it, and counts.

A status is written when the phase or the reason changes, and counts at most once a second. An object of a group that is
decided at once is created with the decision; one of a group that waits longer is created to tell why.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Final

from extender.kube.effects import PodEvent, PodRef
from extender.kube.errors import KubeError
from extender.kube.timing import Clock
from extender.model.group_placements import PlacementStatus
from extender.model.release import GroupKey, Phase
from extender.tasks.events import EventRecorder
from extender.tasks.leader_election import LeadershipLost
from extender.tasks.release.decisions import GroupMemory
from extender.tasks.release.writes import PlacementWriter
from extender.verbs.release.progress import STUCK, GroupState, Step

_LOG = logging.getLogger(__name__)
_COUNTS_EVERY: Final = 1.0
_BEGIN_AFTER: Final = 5.0
_ACTION: Final = "Release"


class Reports:
    """``groups``: how many there are by phase and reason. ``failed`` counts status writes that failed."""

    def __init__(
        self,
        placements: PlacementWriter,
        events: EventRecorder[PodEvent],
        clock: Clock,
        utc_now: Callable[[], datetime],
    ) -> None:
        self.failed = 0
        self._placements = placements
        self._events = events
        self._clock = clock
        self._utc_now = utc_now
        self._last: dict[GroupKey, Step] = {}
        self._written: dict[GroupKey, float] = {}

    def groups(self) -> Counter[tuple[str, str]]:
        """How many groups there are, by phase and reason. O(groups)."""
        return Counter((str(step.phase), str(step.reason)) for step in self._last.values())

    async def report(self, group: GroupState, memory: GroupMemory, step: Step) -> float | None:
        """Tells of a step; returns when it is to be called again, None where all is told."""
        before = self._last.get(group.key)
        self._last[group.key] = step
        is_news = before is None or (before.phase, before.reason) != (step.phase, step.reason)
        if is_news:
            self._record(group, step)
        status = PlacementStatus(
            step.phase, group.ready, len(group.released) + len(group.bound), len(group.bound), step.reason, step.message
        )
        known = self._placements.find(group.key)
        if known is not None and (memory.told or known.status) == status:
            return None
        now = self._clock.now()
        due = self._written.get(group.key, float("-inf")) + _COUNTS_EVERY
        if known is None and memory.decision is None:
            due = max(due, memory.first_seen + _BEGIN_AFTER)
        elif is_news:
            due = now
        if now < due:
            return due
        return await self._write(group, memory, status, now)

    def forget(self, key: GroupKey) -> None:
        """No pod of the group is left."""
        self._last.pop(key, None)
        self._written.pop(key, None)

    def clear(self) -> None:
        """The term has ended."""
        self._last.clear()
        self._written.clear()

    async def _write(self, group: GroupState, memory: GroupMemory, status: PlacementStatus, now: float) -> float | None:
        self._written[group.key] = now
        try:
            if self._placements.find(group.key) is None and memory.decision is not None:
                await self._placements.decide(memory.decision, memory.decision)  # the object was deleted
            elif self._placements.find(group.key) is None:
                await self._placements.begin(group.key, group.spec.gate, max(group.size, 1))
            await self._placements.tell(group.key, status)
        except LeadershipLost:
            raise
        except KubeError as error:
            self.failed += 1
            memory.told = None
            _LOG.warning("a status cannot be written", extra={"group": str(group.key), "error": str(error)})
            return now + _BEGIN_AFTER
        memory.told = status
        return None

    def _record(self, group: GroupState, step: Step) -> None:
        """An event at the first pod, where the group is stuck, decided, or all of it is bound."""
        is_warning = step.reason in STUCK or step.phase in {Phase.TIMED_OUT, Phase.DEGRADED}
        if not is_warning and step.phase not in {Phase.DECIDED, Phase.BOUND}:
            return
        pods = (*group.waiting, *(pod for pod, _ in group.blocked), *group.released, *group.bound)
        if pods:
            kind = "Warning" if is_warning else "Normal"
            reason = f"Group{step.reason}"
            note = f"group {group.key.value} of {group.key.policy}: {step.phase}: {step.message}"
            self._events.record(PodEvent(PodRef.of(pods[0]), kind, reason, _ACTION, note, self._utc_now()))
