"""One write carried through: what is tried again, for how long, and what counts as done.

A pod that is gone needs no write any more, and neither does one whose name has come to mean another pod. Everything
else is tried again with back-off until a deadline, except what the apiserver refuses for good.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Protocol

from extender.kube.effects import PodRef
from extender.kube.errors import Conflict, KubeError, NotFound, Refused, Throttled
from extender.kube.timing import Backoff, BackoffOptions
from extender.tasks.ports import Clock
from extender.tasks.rate_limiter import RateLimiter


class GaveUpError(Exception):
    """Raised when a write was refused for good, or had not succeeded by its deadline. The cause is the last error."""


class PodReader(Protocol):
    """What tells whether a name still means the same pod."""

    async def uid_of(self, pod: PodRef) -> str:
        """The UID of the pod that has this namespace and name now, empty where there is none."""


class RetryingWriter:
    """Writes under one pace. Each call is a new attempt of the same write, so it must be idempotent."""

    def __init__(
        self, rate_limiter: RateLimiter, reader: PodReader, clock: Clock, backoff: BackoffOptions, rng: Random
    ) -> None:
        self.retries = 0
        self._pace = rate_limiter
        self._reader = reader
        self._clock = clock
        self._backoff = backoff
        self._rng = rng

    async def write(self, pod: PodRef, call: Callable[[], Awaitable[None]], deadline: float) -> bool:
        """True when the write has been made, False when the pod is not there any more. Raises ``GaveUpError``."""
        backoff = Backoff(self._backoff, self._rng)
        while True:
            try:
                async with self._pace.turn():
                    await call()
            except NotFound:
                return False
            except Refused as error:
                raise GaveUpError(f"{pod.namespace}/{pod.name}: {error}") from error
            except KubeError as error:
                if isinstance(error, Conflict) and await self._is_another(pod):
                    return False
                await self._wait(pod, error, backoff.next(), deadline)
            else:
                return True

    async def _wait(self, pod: PodRef, error: KubeError, seconds: float, deadline: float) -> None:
        """Waits before the next attempt, not shorter than the apiserver asks for; gives up if that is too late."""
        if isinstance(error, Throttled):
            seconds = max(seconds, error.retry_after)
        if self._clock.now() + seconds >= deadline:
            raise GaveUpError(f"{pod.namespace}/{pod.name}: {error}") from error
        self.retries += 1
        await self._clock.sleep(seconds)

    async def _is_another(self, pod: PodRef) -> bool:
        """Whether the name means another pod by now, or none. What cannot be read is taken to be the same still."""
        try:
            async with self._pace.turn():
                return await self._reader.uid_of(pod) != pod.uid
        except KubeError:
            return False
