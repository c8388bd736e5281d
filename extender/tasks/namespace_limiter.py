"""Limits writes for objects of many namespaces: side by side and per second; the namespace that used least is first.

A namespace with ten thousand writes that wait delays those of another one by the few that are under way, until both have
used as much. Then they take turns. `RateLimiter` (`tasks/preemption/retrying_writer.py`) is for writes of which all are
equally urgent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from extender.tasks.ports import Clock

_HALF_LIFE: Final = 60.0  # seconds: what was used so long ago counts half
_NOTHING: Final = 0.01
_MOST_KEPT: Final = 1000  # namespaces, before those that have used nothing for a while are forgotten


class NamespaceUsage:
    """How much each namespace has used lately: what it used decays, so that a burst is not held against it for long."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._used: dict[str, tuple[float, float]] = {}

    def charge(self, namespace: str) -> None:
        """The namespace uses one more. Amortised O(1)."""
        now = self._clock.now()
        self._used[namespace] = self._of(namespace, now) + 1.0, now
        if len(self._used) > _MOST_KEPT:
            self._used = {each: used for each, used in self._used.items() if self._of(each, now) > _NOTHING}

    def least(self, namespaces: Iterable[str]) -> str:
        """The one that has used least; of equals the first. O(namespaces)."""
        now = self._clock.now()
        return min(namespaces, key=lambda namespace: self._of(namespace, now))

    def _of(self, namespace: str, now: float) -> float:
        used, when = self._used.get(namespace, (0.0, now))
        left: float = used * 0.5 ** ((now - when) / _HALF_LIFE)
        return left


class NamespaceLimiter:
    """At most ``at_once`` holders, and ``per_second`` new ones a second; as many as ``at_once`` may begin in a burst.

    Each namespace is first in, first out. The place that is next is given only when it may begin, so that none is taken
    in advance by those that came first.
    """

    def __init__(self, clock: Clock, at_once: int, per_second: float) -> None:
        self._clock = clock
        self._free = at_once
        self._gap = 1.0 / per_second
        self._burst = self._gap * at_once
        self._next = clock.now()
        self._usage = NamespaceUsage(clock)
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._is_pacing = False
        self._users = 0
        self._last_release = float("-inf")

    @property
    def last_busy(self) -> float:
        """When a place was last held or waited for: now, while one is."""
        return self._clock.now() if self._users else self._last_release

    @asynccontextmanager
    async def acquire(self, namespace: str) -> AsyncIterator[None]:
        """Waits for the turn of the namespace, a free place and the rate, and holds the place until the block is left."""
        self._users += 1
        try:
            await self._turn(namespace)
            try:
                await self._pace()
                yield
            finally:
                self._free += 1
                self._grant()
        finally:
            self._users -= 1
            self._last_release = self._clock.now()

    async def _turn(self, namespace: str) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(waiter)
        self._grant()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():  # it was given the place that it does not use
                self._free += 1
                self._is_pacing = False
                self._grant()
            raise

    async def _pace(self) -> None:
        """Waits until the rate allows one more. Meanwhile no other is given a place."""
        try:
            now = self._clock.now()
            self._next = max(self._next, now - self._burst) + self._gap
            if self._next > now:
                await self._clock.sleep(self._next - now)
        finally:
            self._is_pacing = False
            self._grant()

    def _grant(self) -> None:
        """Gives the next place to the first that waits, of the namespace that has used least. O(waiting namespaces)."""
        while self._free and not self._is_pacing and self._waiting:
            namespace = self._usage.least(self._waiting)
            waiters = self._waiting[namespace]
            waiter = waiters.popleft()
            if not waiters:
                del self._waiting[namespace]
            if not waiter.done():  # else it was cancelled
                self._usage.charge(namespace)
                self._free -= 1
                self._is_pacing = True
                waiter.set_result(None)
