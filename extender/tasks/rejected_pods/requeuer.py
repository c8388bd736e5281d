"""Requeues rejected pods after changes that kube-scheduler does not watch on behalf of an extender.

A namespace that is relabelled is such a change. The scheduler tries a pod again when the pod itself is updated, so one
annotation is patched; the next filter request follows within milliseconds. Cost: one search over the cluster for each
rejected pod that the change concerns, and one write for each pod that now has a node; the writes are limited in rate. Of
pods that share a number of places (a quota) only so many are requeued at a time; the others follow while places are left.

A nomination is such a change for a kube-scheduler without QueueingHints (KEP-4247; before 1.32, or with the gate off): it
ignores an update of a pod's status alone. So a pod that was nominated elsewhere is requeued in the same way if the scheduler
does not ask about it. One with the hints asks within milliseconds, and nothing is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Hashable
from typing import Final

from extender.index.claims.assumed import Assumed
from extender.model.objects import Pod
from extender.rules import catalog
from extender.tasks.ports import Clock
from extender.tasks.rejected_pods.writes import RejectedPodWriter, dependency_version, is_unchanged
from extender.tasks.sliced.traffic import Traffic
from extender.verbs.effective_pod import known_effective_pod
from extender.wire.extender_v1 import ExtenderArgs

_LOG = logging.getLogger(__name__)

_BATCH_SECONDS: Final = 0.1  # changes that follow a review within this time share the next one
# After five such steps the next pods get their turn, where requeued ones have not taken the places; a change ends the wait.
TURN_STEP_SECONDS: Final = 0.2
_TURN_STEPS: Final = 5
_PODS_PER_SLICE: Final = 20  # pods looked at before the event loop serves requests again
_OVERDUE_ROUND_SECONDS: Final = 0.25
_AFTER_FAILURE_SECONDS: Final = 1.0


class Requeuer:
    """Records rejected pods and requeues those that a change helps, at most ``per_second``; the same for nominated pods."""

    def __init__(
        self, writer: RejectedPodWriter, clock: Clock, per_second: float, traffic: Traffic | None = None
    ) -> None:
        self._traffic = traffic or Traffic(clock)
        self._nominated: dict[str, str] = {}
        self._added = asyncio.Event()
        self._writer = writer
        self._index = writer.index
        self._clock = clock
        self._per_second = per_second

    def consider(self, args: ExtenderArgs) -> None:
        """Records a pod whose requested nodes were all rejected. O(1)."""
        self._index.rejected.add(args.pod, dependency_version(args.pod, self._index.view))

    def await_request(self, pod: Pod, node: str) -> None:
        """Records a pod that was nominated, and assumed in doubt, until the scheduler asks about it. O(1)."""
        self._nominated[pod.uid] = node
        self._added.set()

    async def requeue_overdue(self) -> None:
        """Requeues each nominated pod once about which the scheduler does not ask, until cancelled. O(such pods) in a round."""
        while True:
            while not self._nominated:
                self._added.clear()
                await self._added.wait()
            await self._clock.sleep(_OVERDUE_ROUND_SECONDS)
            now = self._clock.now()
            waiting = {uid: found for uid in self._nominated if (found := self._nomination(uid)) is not None}
            self._nominated = {uid: self._nominated[uid] for uid in waiting}
            # Chosen before the first is requeued, as then the scheduler is busy with these.
            for uid in [uid for uid, found in waiting.items() if self._traffic.is_overdue(now - found.since)]:
                if (found := self._nomination(uid)) is not None:
                    await self._requeue_nominated(found.pod, self._nominated.pop(uid))

    def _nomination(self, uid: str) -> Assumed | None:
        """The assumption of a recorded pod, None once a request, or the watch of the pod bound or deleted, has ended it. O(1)."""
        found = self._index.assumed.held.get(uid)
        is_same = found is not None and found.doubted and found.nodes == (self._nominated.get(uid),)
        return found if is_same else None

    async def _requeue_nominated(self, pod: Pod, node: str) -> None:
        """After a failure the pod is the last in the next round: no rejection leads here again."""
        if await self._writer.requeue(pod, f"{self._clock.now():.3f}"):
            _LOG.info("nominated pod requeued", extra={"pod": pod.full_name, "node": node})
            await self._clock.sleep(1 / self._per_second)
        else:
            self._nominated.setdefault(pod.uid, node)
            await self._clock.sleep(_AFTER_FAILURE_SECONDS)

    async def run(self) -> None:
        """Reviews the rejected pods after each change that the scheduler does not watch, until cancelled."""
        changed = asyncio.Event()

        def wake(_change: object) -> None:
            changed.set()

        sources = (*self._index.unwatched_changes, *catalog.unwatched_changes(self._index.view))
        for source in sources:
            source.subscribe(wake)
        try:
            while True:
                await changed.wait()
                changed.clear()
                is_left = await self._review()
                await self._clock.sleep(_BATCH_SECONDS)
                if is_left:
                    await self._wait_for_turn(changed)
        finally:
            for source in sources:
                source.unsubscribe(wake)

    async def _wait_for_turn(self, changed: asyncio.Event) -> None:
        for _ in range(_TURN_STEPS):
            if changed.is_set():
                return
            await self._clock.sleep(TURN_STEP_SECONDS)
        changed.set()

    async def _review(self) -> bool:
        """Requeues the pods that a change helps; whether some of them were left out for want of places."""
        is_left, requeued = False, Counter[Hashable]()
        for number, (pod, version) in enumerate(self._index.rejected):
            if number % _PODS_PER_SLICE == _PODS_PER_SLICE - 1:
                await self._clock.sleep(0)
            # Without this check a pod that full nodes keep pending would be requeued after every change.
            if is_unchanged(pod, version, self._index.view) or not self._writer.is_writable(pod):
                continue
            places = catalog.shared_places(known_effective_pod(pod, self._index.view), self._index.view)
            if not self._writer.find(pod)[1]:
                continue
            if any(requeued[group] >= number_left for group, number_left in places.items()):
                is_left = True
                continue
            requeued.update(places.keys())
            if await self._writer.requeue(pod, f"{self._clock.now():.3f}"):
                _LOG.info("requeued", extra={"pod": pod.full_name})
            self._index.rejected.discard(pod.uid)
            await self._clock.sleep(1 / self._per_second)
        return is_left
