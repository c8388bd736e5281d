"""Limits writes side by side and writes per second, so that a mass preemption does not overload the API server.

All writers that must not exceed the limits together share one `RateLimiter`.
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
        self._slots = asyncio.Semaphore(at_once)
        self._gap = 1.0 / per_second
        self._burst = self._gap * at_once
        self._next = clock.now()
        self._holders = 0
        self._last_release = float("-inf")

    @property
    def last_busy(self) -> float:
        """When a slot was last held or waited for: now, while one is."""
        return self._clock.now() if self._holders else self._last_release

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[None]:
        """Waits for a free slot and for the rate, and holds the slot until the block is left. First in, first out."""
        self._holders += 1
        try:
            async with self._slots:
                now = self._clock.now()
                self._next = max(self._next, now - self._burst) + self._gap
                if self._next > now:
                    await self._clock.sleep(self._next - now)
                yield
        finally:
            self._holders -= 1
            self._last_release = self._clock.now()
