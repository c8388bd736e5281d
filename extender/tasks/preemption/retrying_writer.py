"""Retries one write with back-off until a deadline, under a limit that all writes of preemptions share.

The limit is on writes side by side and on writes per second, so that a mass preemption does not overload the API server.
A pod that was deleted, or replaced by another pod of the same name, needs no write. Every other failure is retried, except
an answer that rejects the request itself, and an eviction that a disruption budget forbids.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Protocol

from extender.kube.effects import PodRef
from extender.kube.errors import Conflict, KubeError, NotFound, OverBudget, Rejected, Throttled
from extender.kube.timing import Backoff, BackoffOptions
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


class GaveUpError(Exception):
    """Raised when a write was rejected for good, or had not succeeded by its deadline. The cause is the last error."""


class ForbiddenByBudgetError(GaveUpError):
    """Raised when a disruption budget forbids an eviction: it may succeed once the budget has changed."""


class PodReader(Protocol):
    """Reads whether a name still belongs to the same pod."""

    async def uid_of(self, pod: PodRef) -> str:
        """The UID of the pod that has this namespace and name now, empty where there is none."""


class RetryingWriter:
    """Writes under one rate limiter. Each attempt repeats the same call, so the call must be idempotent."""

    def __init__(
        self, rate_limiter: RateLimiter, reader: PodReader, clock: Clock, backoff: BackoffOptions, rng: Random
    ) -> None:
        self.retries = 0
        self._rate_limiter = rate_limiter
        self._reader = reader
        self._clock = clock
        self._backoff = backoff
        self._rng = rng

    async def write(self, pod: PodRef, call: Callable[[], Awaitable[None]], deadline: float) -> bool:
        """True when the write was made, False when the pod no longer exists. Raises ``GaveUpError``."""
        backoff = Backoff(self._backoff, self._rng)
        while True:
            try:
                async with self._rate_limiter.acquire():
                    await call()
            except NotFound:
                return False
            except OverBudget as error:
                raise ForbiddenByBudgetError(f"{pod.namespace}/{pod.name}: {error}") from error
            except Rejected as error:
                raise GaveUpError(f"{pod.namespace}/{pod.name}: {error}") from error
            except KubeError as error:
                if isinstance(error, Conflict) and await self._is_another(pod):
                    return False
                await self._wait(pod, error, backoff.next(), deadline)
            else:
                return True

    async def _wait(self, pod: PodRef, error: KubeError, seconds: float, deadline: float) -> None:
        """Waits before the next attempt, at least as long as the API server requests; gives up if that is past the deadline."""
        if isinstance(error, Throttled):
            seconds = max(seconds, error.retry_after)
        if self._clock.now() + seconds >= deadline:
            raise GaveUpError(f"{pod.namespace}/{pod.name}: {error}") from error
        self.retries += 1
        await self._clock.sleep(seconds)

    async def _is_another(self, pod: PodRef) -> bool:
        """Whether the name belongs to another pod by now, or to none. If the read fails the pod counts as the same."""
        try:
            async with self._rate_limiter.acquire():
                return await self._reader.uid_of(pod) != pod.uid
        except KubeError:
            return False
