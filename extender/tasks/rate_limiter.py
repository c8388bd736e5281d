"""How many writes at once, and how many a second: what keeps a mass preemption from drowning the apiserver.

One `RateLimiter` is shared by everything that must not exceed the limits together. Decides nothing about what is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from extender.tasks.ports import Clock


class RateLimiter:
    """At most ``at_once`` holders, and ``per_second`` new ones a second; as many as ``at_once`` may begin in a burst."""

    def __init__(self, clock: Clock, at_once: int, per_second: float) -> None:
        self._clock = clock
        self._places = asyncio.Semaphore(at_once)
        self._gap = 1.0 / per_second
        self._burst = self._gap * at_once
        self._next = clock.now()
        self._inside = 0
        self._left = float("-inf")

    @property
    def last_busy(self) -> float:
        """When somebody last had a turn, or waited for one: now, while anybody does."""
        return self._clock.now() if self._inside else self._left

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Waits for a place and for its time, and holds the place until the block is left. First come, first served."""
        self._inside += 1
        try:
            async with self._places:
                now = self._clock.now()
                self._next = max(self._next, now - self._burst) + self._gap
                if self._next > now:
                    await self._clock.sleep(self._next - now)
                yield
        finally:
            self._inside -= 1
            self._left = self._clock.now()
