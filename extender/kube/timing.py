"""The clocks that this package and the tasks use, exponential back-off, and work in steps.

No module reads a clock of its own, so that tests can pass a virtual one. Times are monotonic seconds, because the time
of day may jump.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from math import inf
from random import Random
from typing import Final, Protocol, TypeVar

from extender.model.bounded import Steps

T = TypeVar("T")


class Clock(Protocol):
    """Monotonic time and waiting."""

    def now(self) -> float:
        """Seconds since some fixed moment; never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Returns after so many seconds. 0: at the next iteration of the event loop."""


# On Linux a clock that also counts the time in which the machine was suspended. With the monotonic clock a watch of
# last night would seem current.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The system's monotonic clock; independent of the wall clock."""

    def __init__(self) -> None:
        self.now = partial(time.clock_gettime, _CLOCK)  # seconds since the machine started; read for every request

    async def sleep(self, seconds: float) -> None:
        """Waits on the running event loop."""
        await asyncio.sleep(seconds)


_JUMP: Final = 0.5  # seconds; a smaller step is a clock that is slewed
_ADOPTED_AFTER: Final = 60.0


class WallClock:
    """The time of day, for comparison with dates that others have written. A jump counts once it has lasted a minute.

    Before that the time continues with the monotonic clock, so a clock that is wrong for some seconds decides nothing.
    Must be read at least once a minute.
    """

    def __init__(self, clock: Clock, read: Callable[[], float] = time.time) -> None:
        """``read``: seconds of the Unix epoch."""
        self._clock = clock
        self._read = read
        self._ahead = read() - clock.now()  # of the monotonic clock
        self._jumped = inf  # when the jump was first seen

    def seconds(self) -> float:
        """Seconds of the Unix epoch. O(1)."""
        now = self._clock.now()
        ahead = self._read() - now
        if abs(ahead - self._ahead) >= _JUMP:
            self._jumped = min(self._jumped, now)
        if abs(ahead - self._ahead) < _JUMP or now - self._jumped >= _ADOPTED_AFTER:
            self._ahead, self._jumped = ahead, inf
        return now + self._ahead

    def utc(self) -> datetime:
        """The time of day as a date."""
        return datetime.fromtimestamp(self.seconds(), UTC)


@dataclass(frozen=True, slots=True)
class BackoffOptions:
    """The first wait and the longest, in seconds."""

    first: float = 0.8
    longest: float = 30.0


class Backoff:
    """Doubles from the first wait to the longest. Each wait is drawn between half and whole, so that clients spread."""

    def __init__(self, options: BackoffOptions, rng: Random) -> None:
        self._options = options
        self._rng = rng
        self.failures = 0

    def next(self) -> float:
        """Counts one more failure and returns how many seconds to wait now."""
        doublings = min(self.failures, 32)  # otherwise the float would overflow after hours of failures
        self.failures += 1
        whole = min(self._options.first * 2.0**doublings, self._options.longest)
        return whole * self._rng.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Starts again at the first wait, after a success."""
        self.failures = 0


async def in_steps(steps: Steps[T]) -> T:
    """The result of all steps; other tasks run in between."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)
