"""Records events as client-go's recorder does: a queue, a token bucket, and one event for what is repeated.

1. Each namespace has a queue of its own, so a burst of one namespace does not delay the events of another.
2. Events give way to urgent writes, because both go to the same API server and a mass preemption makes one event per victim.
   An event waits until urgent writes pause, but at most a quarter of a second: a burst may not end.
3. An event is not retried.

https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from extender.kube.effects import ObjectEvent, PodRef
from extender.kube.errors import KubeError
from extender.kube.timing import Clock
from extender.model.objects import Pod
from extender.model.policies import PolicyKey
from extender.model.units import listed, times
from extender.tasks.fair_queue import FairBacklog, NamespaceUsage, RateLimiter
from extender.telemetry.logs import RepeatedWarning

_LOG = logging.getLogger(__name__)
# Two preemptions of one burst are about 50 ms apart: the time of a scheduling cycle.
_IDLE_SECONDS: Final = 0.1
_LONGEST_WAIT_SECONDS: Final = 0.25
_LONGEST_QUEUE: Final = 10_000
# Written side by side they wake the API server and etcd once, and one by one each for itself.
_SIDE_BY_SIDE: Final = 8
_NEVER: Final = float("-inf")

MISSED_ADMISSION: Final = "PolicyMissedAdmission"
_MOST_NAMED: Final = 5  # policies; the note has 1 KiB


class TokenBucket:
    """``at_once`` tokens; one token comes back every ``refill`` seconds. The caller passes the time."""

    def __init__(self, at_once: float, refill: float, now: float) -> None:
        self._most = self._left = at_once
        self._refill = refill
        self._filled = now

    def take(self, now: float, *, spare: float = 0.0) -> bool:
        """Takes a token, unless only the ``spare`` tokens for others are left. O(1)."""
        self._left = min(self._most, self._left + (now - self._filled) / self._refill)
        self._filled = now
        if self._left < 1 + spare:
            return False
        self._left -= 1
        return True


@dataclass(frozen=True, slots=True)
class EventLimit:
    """``at_once`` events, and one more every ``refill`` seconds; half of them are kept for warnings.

    If one namespace has used them up, other namespaces get as many again in advance. Each takes half of what is left.
    ``repeated_after``: seconds before an object may have another event of the same reason. The second event says how often
    the reason occurred in between.
    """

    at_once: int = 50
    refill: float = 1.0
    repeated_after: float = 0.0


class EventRecorder:
    """``record`` queues an event and returns at once, ``run`` writes events, ``flush`` waits until the queue is empty.

    ``results`` counts events by result. suppressed: over the limit, repeated too soon, or the queue is full.
    """

    def __init__(
        self,
        create: Callable[[ObjectEvent], Awaitable[None]],
        clock: Clock,
        limit: EventLimit | None = None,
        urgent: RateLimiter | None = None,
        longest_queue: int = _LONGEST_QUEUE,
        side_by_side: int = _SIDE_BY_SIDE,
    ) -> None:
        """``urgent``: the limiter of writes that events give way to. With a ``limit`` nothing is queued unless `run` runs."""
        self.results = Counter({"written": 0, "failed": 0, "suppressed": 0})
        self._create = create
        self._clock = clock
        self._limit = limit
        self._tokens = TokenBucket(limit.at_once, limit.refill, clock.now()) if limit is not None else None
        self._urgent = urgent
        self._side_by_side = side_by_side
        self._usage = NamespaceUsage(clock)
        self._waiting: FairBacklog[ObjectEvent] = FairBacklog(
            clock, longest_queue if limit is None else 2 * limit.at_once
        )
        self._unwritten = 0
        self._all_written = asyncio.Event()
        # By object and reason: when it was recorded, and how often it was suppressed since then.
        self._recorded: dict[Hashable, dict[str, tuple[float, int]]] = {}
        self._is_running = False
        self._failed = RepeatedWarning(_LOG, "an event cannot be recorded", clock.now)

    def record(self, event: ObjectEvent, about: Hashable = None) -> None:
        """Queues an event, as far as the limit allows. ``about``: the object, for events that are not to be repeated. O(1)."""
        if self._limit is None or about is None:
            self._queue(event)
            return
        # 1. The same reason too soon: suppressed and counted.
        # 2. Queued: the note says how often it was suppressed before, and the count begins again.
        # 3. Not queued for lack of a token or a place: counted, so that the next event of this reason says so.
        now, earlier = self._clock.now(), self._recorded.setdefault(about, {})
        last, repeated = earlier.get(event.reason, (_NEVER, 0))
        if now - last < self._limit.repeated_after:
            self.results["suppressed"] += 1
            earlier[event.reason] = last, repeated + 1
        elif self._queue(replace(event, note=f"{event.note} (and {times(repeated)} before)") if repeated else event):
            earlier[event.reason] = now, 0
        else:
            earlier[event.reason] = last, repeated + 1

    def forget(self, about: Hashable) -> None:
        """The object has been deleted."""
        self._recorded.pop(about, None)

    def _queue(self, event: ObjectEvent) -> bool:
        if self._limit is not None and not self._is_running:
            return False  # a replica that does not lead
        if not self._has_token(event):
            self.results["suppressed"] += 1
            return False
        self._unwritten += 1
        dropped = self._waiting.add(event.about.namespace, event)
        if dropped is not None:
            self._ended("suppressed")
        return dropped is not event

    def _ended(self, result: str) -> None:
        self.results[result] += 1
        self._unwritten -= 1
        if not self._unwritten:
            self._all_written.set()

    def _has_token(self, event: ObjectEvent) -> bool:
        if self._tokens is None or self._limit is None:
            return True
        # A normal event leaves half of the tokens for warnings. A namespace that has used little may take tokens in advance
        # (`spare` below 0): otherwise the burst of one namespace would silence all others until the bucket fills again.
        spare = self._limit.at_once / 2 if event.type == "Normal" else 0.0
        in_advance = max(0.0, self._limit.at_once - spare - self._usage.used(event.about.namespace))
        if not self._tokens.take(self._clock.now(), spare=spare - in_advance):
            return False
        self._usage.charge(event.about.namespace)
        return True

    async def flush(self) -> None:
        """Returns when every queued event was written or lost."""
        while self._unwritten:
            self._all_written.clear()
            await self._all_written.wait()

    async def run(self) -> None:
        """Writes events until cancelled; events that are queued then have failed."""
        self._is_running = True
        try:
            while True:
                await self._write_some(await self._waiting.take())
        finally:
            self._is_running = False
            while self._waiting.pop() is not None:
                self._ended("failed")

    async def _write_some(self, first: ObjectEvent) -> None:
        # Further events are taken only after the wait, so that an event that comes meanwhile goes out with this batch, and
        # so that a cancelled wait loses one event and not a batch.
        events, is_begun = [first], False
        try:
            await self._wait_until_idle()
            while len(events) < self._side_by_side and (event := self._waiting.pop()) is not None:
                events.append(event)
            is_begun = True
            await asyncio.gather(*map(self._write, events))
        finally:
            if not is_begun:
                self._ended("failed")

    async def _write(self, event: ObjectEvent) -> None:
        result = "failed"
        try:
            await self._create(event)
            result = "written"
        except KubeError as error:
            self._failed.warn(error=str(error))
        finally:
            self._ended(result)

    async def _wait_until_idle(self) -> None:
        """Sleeps until urgent writes can have paused for long enough, not less: to wake up for nothing costs as much as an event."""
        begun = self._clock.now()
        while (left := self._left(begun)) > 0:
            await self._clock.sleep(left)

    def _left(self, begun: float) -> float:
        """Seconds until an event that waits since ``begun`` may be written, if no other write is made."""
        if self._urgent is None:
            return 0.0
        now = self._clock.now()
        return min(self._urgent.last_busy + _IDLE_SECONDS - now, begun + _LONGEST_WAIT_SECONDS - now)


def missed_admission(pod: Pod, policies: Sequence[PolicyKey], at: datetime) -> ObjectEvent:
    """The event of a pod that admission missed and that these policies hold all the same while it is scheduled."""
    is_single = len(policies) == 1
    if pod.signature.injected:
        cause = f"an earlier version of {'it' if is_single else 'them'}, or another policy, was injected"
    else:
        cause = f"the pod is older than {'the policy' if is_single else 'the policies'}, or the webhook was not reached"
    note = (
        f"the pod lacks what {listed([str(policy) for policy in policies], most=_MOST_NAMED)} {'directs' if is_single else 'direct'}: {cause}. "
        f"It is held to {'it' if is_single else 'them'} while it is scheduled"
    )
    return ObjectEvent(PodRef.of(pod), "Warning", MISSED_ADMISSION, "Scheduling", note, at)
