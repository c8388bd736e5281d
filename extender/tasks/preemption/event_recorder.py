"""Records events about preemptions, a few at a time, while no more urgent write is under way.

A mass preemption makes one event per victim. Events go to the same API server as the deletions, so each waits until the
writes pause, but at most a quarter of a second: a burst that does not end must not suppress them. An event is not
retried. As in client-go's recorder, events that do not fit into the queue are lost and counted.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from extender.kube.effects import PodEvent
from extender.kube.errors import KubeError
from extender.kube.timing import Clock
from extender.kube.writer import Writer

# Two preemptions of one burst are about 50 ms apart: the time of a scheduling cycle.
_IDLE_SECONDS: Final = 0.1
_LONGEST_WAIT_SECONDS: Final = 0.25
_LONGEST_QUEUE: Final = 10_000
# Written side by side they wake the API server and etcd once, and one by one each for itself.
_AT_ONCE: Final = 8


class WriteLoad(Protocol):
    """When more urgent writes were made; implemented by `RateLimiter`."""

    @property
    def last_busy(self) -> float:
        """When a write was last under way or waiting for a slot: now, while one is."""


class EventRecorder:
    """``record`` queues an event and returns at once, ``run`` writes events, ``flush`` waits until the queue is empty."""

    def __init__(
        self,
        writer: Writer,
        urgent: WriteLoad,
        clock: Clock,
        longest_queue: int = _LONGEST_QUEUE,
        at_once: int = _AT_ONCE,
    ) -> None:
        self.lost = 0
        self._writer = writer
        self._urgent = urgent
        self._clock = clock
        self._at_once = at_once
        self._waiting: asyncio.Queue[PodEvent] = asyncio.Queue(longest_queue)

    def record(self, event: PodEvent) -> None:
        """Queues an event; counts it in ``lost`` where the queue is full."""
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            self.lost += 1

    async def flush(self) -> None:
        """Returns when every queued event was written or lost."""
        await self._waiting.join()

    async def run(self) -> None:
        """Writes events until cancelled; events that are queued then are lost."""
        try:
            while True:
                events = [await self._waiting.get()]
                try:
                    await self._wait_until_idle()
                    while len(events) < self._at_once and not self._waiting.empty():
                        events.append(self._waiting.get_nowait())
                    await asyncio.gather(*map(self._write, events))
                finally:
                    for _ in events:
                        self._waiting.task_done()
        finally:
            while not self._waiting.empty():
                self._waiting.get_nowait()
                self._waiting.task_done()
                self.lost += 1

    async def _write(self, event: PodEvent) -> None:
        try:
            await self._writer.create_event(event)
        except KubeError:
            self.lost += 1

    async def _wait_until_idle(self) -> None:
        """Sleeps until writes can have paused for long enough, not less: to wake up for nothing costs as much as an event."""
        begun = self._clock.now()
        while (left := self._left(begun)) > 0:
            await self._clock.sleep(left)

    def _left(self, begun: float) -> float:
        """Seconds until an event that waits since ``begun`` may be written, if no other write is made."""
        now = self._clock.now()
        return min(self._urgent.last_busy + _IDLE_SECONDS - now, begun + _LONGEST_WAIT_SECONDS - now)
