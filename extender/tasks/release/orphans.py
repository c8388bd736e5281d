"""Releases pods with our gate that no policy releases any more: the policy was deleted, or does not select them now.

Otherwise nothing would ever remove the gate. They are released unpinned. A grace comes first, because a policy may be deleted
and created again. Gates of other controllers stay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from extender.index.objects.changes import Subscribable
from extender.kube.effects import PodRef
from extender.kube.timing import Clock
from extender.model.objects import Pod
from extender.model.release import GroupDecision, GroupKey, own_group
from extender.tasks.leader_election import LeadershipLost
from extender.tasks.release.writes import PodReleaser, Result
from extender.telemetry.metrics import ReleaseMetrics

_LOG = logging.getLogger(__name__)
_RETRY: Final = 30.0
_DONE: Final = frozenset({Result.RELEASED, Result.ALREADY, Result.GONE})


class OrphanReleaser:
    """``orphans``: by UID the gate, as the index keeps them. ``released`` counts pods."""

    def __init__(
        self,
        orphans: Mapping[str, str],
        pods: Mapping[str, Pod],
        changes: Subscribable,
        releaser: PodReleaser,
        recorder: ReleaseMetrics,
        clock: Clock,
        utc_now: Callable[[], datetime],
        grace: float,
    ) -> None:
        self.released = 0
        self._orphans = orphans
        self._pods = pods
        self._changes = changes
        self._releaser = releaser
        self._recorder = recorder
        self._clock = clock
        self._utc_now = utc_now
        self._grace = grace
        self._since: dict[str, float] = {}

    def states(self) -> dict[str, float]:
        """For the metric: how many wait, and how many were released."""
        return {"waiting": len(self._orphans), "released": self.released}

    async def run(self) -> None:
        """Works until cancelled; sleeps while there is no orphan."""
        changed = asyncio.Event()

        def wake(_change: object) -> None:
            changed.set()

        self._changes.subscribe(wake)
        self._since.clear()
        try:
            while True:
                if not self._orphans:
                    await changed.wait()
                changed.clear()
                await self._clock.sleep(await self._review())
        finally:
            self._changes.unsubscribe(wake)

    async def _review(self) -> float:
        """Releases the orphans whose grace is over; returns the seconds until the next grace ends."""
        now = self._clock.now()
        self._since = {uid: self._since.get(uid, now) for uid in self._orphans}
        late = [uid for uid, since in self._since.items() if now >= since + self._grace]
        # Thousands at once after a policy is deleted: the rate limiter of the releaser spreads them.
        await asyncio.gather(*(self._release(uid) for uid in late))
        left = [since + self._grace - self._clock.now() for uid, since in self._since.items() if uid in self._orphans]
        return max(min(left, default=0.0), 0.0)

    async def _release(self, uid: str) -> None:
        pod, gate = self._pods.get(uid), self._orphans.get(uid)
        if pod is None or gate is None:
            return
        group = GroupKey(pod.namespace, "", own_group(uid))
        # No level: the pod is not narrowed to a domain.
        decision = GroupDecision(group, gate, 1, (), self._utc_now().replace(microsecond=0))
        self._since[uid] = self._clock.now() + _RETRY - self._grace  # until the watch shows it, or the next try
        try:
            result, error = await self._releaser.release(PodRef.of(pod), decision)
        except LeadershipLost:
            return
        self._recorder.record_patch(str(result))
        if result in _DONE:
            self.released += 1
            _LOG.info("no policy releases a pod any more", extra={"pod": pod.full_name, "gate": gate})
        else:
            _LOG.warning("a gate cannot be removed", extra={"pod": pod.full_name, "error": error})
