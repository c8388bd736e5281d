"""Events about preemptions, told one after the other when there is nothing more urgent to write.

A mass preemption makes as many events as it has victims. They go through the same apiserver as what makes room, so
they wait for a calm; but none for long, so that a burst without an end does not silence them. An event is told once: what
it would cost to repeat, it is not worth. As in client-go's recorder, what does not fit into the queue is lost.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from extender.kube.effects import PodEvent
from extender.kube.errors import KubeError
from extender.tasks.ports import Clock

# Between two preemptions of a burst pass some 50 ms: the time of a scheduling cycle.
_CALM: Final = 0.1
_LONGEST_WAIT: Final = 0.25
_LOOK_EVERY: Final = 0.01
_MOST_WAITING: Final = 10_000


class EventWriter(Protocol):
    """Where events go."""

    async def create_event(self, event: PodEvent) -> None:
        """Record an event at the pod."""


class Busy(Protocol):
    """What tells when something more urgent was being written; the pace, by shape."""

    @property
    def last_busy(self) -> float:
        """When somebody last had a turn, or waited for one: now, while anybody does."""


class EventRecorder:
    """``tell`` takes an event and returns at once, ``run`` writes them, ``told`` returns when all have been."""

    def __init__(self, writer: EventWriter, urgent: Busy, clock: Clock, most_waiting: int = _MOST_WAITING) -> None:
        self.lost = 0
        self._writer = writer
        self._urgent = urgent
        self._clock = clock
        self._waiting: asyncio.Queue[PodEvent] = asyncio.Queue(most_waiting)

    def tell(self, event: PodEvent) -> None:
        """To be told in its turn."""
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            self.lost += 1

    async def told(self) -> None:
        """Return when nothing waits any more."""
        await self._waiting.join()

    async def run(self) -> None:
        """Tell until cancelled; what waits then is lost."""
        try:
            while True:
                event = await self._waiting.get()
                try:
                    await self._calm()
                    await self._writer.create_event(event)
                except KubeError:
                    self.lost += 1
                finally:
                    self._waiting.task_done()
        finally:
            while not self._waiting.empty():
                self._waiting.get_nowait()
                self._waiting.task_done()
                self.lost += 1

    async def _calm(self) -> None:
        begun = self._clock.now()
        while (now := self._clock.now()) - self._urgent.last_busy < _CALM and now - begun < _LONGEST_WAIT:
            await self._clock.sleep(_LOOK_EVERY)
