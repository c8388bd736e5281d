"""Records an event on each pod that admission missed and that its policies hold all the same while it is scheduled.

For the leader, which has each pod once: the filter verb tells which pods it has not counted before. A new leader may tell
of a pod that is still pending once more. After an outage of the webhook thousands of pods may have been missed: of these `AT_ONCE`
have an event at once, and one more every `REFILL_SECONDS`; the others are counted only. An event is not retried.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from extender.kube.effects import PodEvent, PodRef
from extender.kube.errors import KubeError
from extender.kube.timing import Clock
from extender.kube.writer import Writer
from extender.model.objects import Pod
from extender.model.policies import PolicyKey
from extender.tasks.event_tokens import EventTokens

_LOG = logging.getLogger(__name__)
REASON: Final = "PolicyMissedAdmission"
AT_ONCE: Final = 50
REFILL_SECONDS: Final = 1.0
_MOST_NAMED: Final = 5  # policies; the note has 1 KiB


class MissedAdmissions:
    """``record`` is called for each such pod and returns at once, ``run`` writes. ``results``: by what became of the events."""

    def __init__(self, writer: Writer, clock: Clock, utc_now: Callable[[], datetime]) -> None:
        self.results: Counter[str] = Counter({"written": 0, "failed": 0, "suppressed": 0})
        self._writer = writer
        self._clock = clock
        self._utc_now = utc_now
        self._tokens = EventTokens(AT_ONCE, REFILL_SECONDS, clock.now())
        self._queue: asyncio.Queue[PodEvent] = asyncio.Queue(AT_ONCE)
        self._is_writing = False

    def record(self, pod: Pod, policies: Sequence[PolicyKey]) -> None:
        """Queues the event of a pod that lacks what these policies direct. O(1); without effect on a replica that does not lead."""
        if not self._is_writing:
            return
        if self._queue.full() or not self._tokens.take(self._clock.now()):
            self.results["suppressed"] += 1
            return
        self._queue.put_nowait(
            PodEvent(PodRef.of(pod), "Warning", REASON, "Scheduling", _note(pod, policies), self._utc_now())
        )

    async def run(self) -> None:
        """Writes until cancelled, while this replica leads; events that are queued then are lost."""
        self._is_writing = True
        try:
            while True:
                await self._write(await self._queue.get())
        finally:
            self._is_writing = False
            while not self._queue.empty():
                self._queue.get_nowait()
                self.results["failed"] += 1

    async def _write(self, event: PodEvent) -> None:
        try:
            await self._writer.create_event(event)
        except asyncio.CancelledError:
            self.results["failed"] += 1
            raise
        except KubeError as error:
            self.results["failed"] += 1
            pod = f"{event.pod.namespace}/{event.pod.name}"
            _LOG.debug("an event about a missed admission failed", extra={"pod": pod, "error": str(error)})
        else:
            self.results["written"] += 1


def _note(pod: Pod, policies: Sequence[PolicyKey]) -> str:
    names = ", ".join(map(str, policies[:_MOST_NAMED]))
    more = f" and {len(policies) - _MOST_NAMED} more" if len(policies) > _MOST_NAMED else ""
    one = len(policies) == 1
    if pod.signature.injected:
        cause = f"an earlier version of {'it' if one else 'them'}, or another policy, was injected"
    else:
        cause = f"the pod is older than {'the policy' if one else 'the policies'}, or the webhook was not reached"
    directs = "directs" if one else "direct"
    return f"the pod lacks what {names}{more} {directs}: {cause}. It is held to {'it' if one else 'them'} while it is scheduled"
