"""Clocks of a run: the clock of the service, which a scenario can advance, and a record of stalls of the event loop.

``JumpingClock`` implements ``kube.timing.Clock``. The simulated cluster creates it; its caller passes it to the service.
"""

import asyncio
import time
from bisect import bisect_right
from collections.abc import Callable
from typing import Final

_BEAT_SECONDS: Final = 0.02
_STALL_SECONDS: Final = 0.05  # a beat that is so late shows that the loop was blocked


class JumpingClock:
    """A monotonic clock that can jump ahead, as after the machine was suspended."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._jumped = asyncio.Event()

    def now(self) -> float:
        """Seconds of the monotonic clock plus all jumps."""
        return time.monotonic() + self._ahead

    def jump(self, seconds: float) -> None:
        """Advances the clock, and wakes every sleep that ends before the new time."""
        self._ahead += seconds
        jumped, self._jumped = self._jumped, asyncio.Event()
        jumped.set()

    async def sleep(self, seconds: float) -> None:
        """Waits for so many seconds of this clock; for 0, until the next iteration of the event loop."""
        until = self.now() + seconds
        await asyncio.sleep(0)
        while (left := until - self.now()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._jumped.wait()
            except TimeoutError:
                continue


class LoopStalls:
    """Records when the event loop stalled, and for how long. API server, scheduler and extender share the loop.

    During a stall no event is delivered and no decision is made, so the oracle does not count that time.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._ends: list[float] = []
        self._lost = [0.0]  # [i]: seconds of the first i stalls
        self._due = 0.0
        self._beating: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Starts to observe the running loop."""
        self._due = self._now() + _BEAT_SECONDS
        self._beating = asyncio.get_running_loop().call_later(_BEAT_SECONDS, self._beat)

    def stop(self) -> None:
        """Stops to observe it."""
        if self._beating is not None:
            self._beating.cancel()

    def _beat(self) -> None:
        self.check()
        self.start()

    def check(self) -> None:
        """Records a stall if this call is late."""
        now = self._now()
        if now - self._due >= _STALL_SECONDS:
            self._ends.append(now)
            self._lost.append(self._lost[-1] + now - self._due)

    def without_stalls(self, moment: float) -> float:
        """A time of the monotonic clock minus all stalls before it. O(log stalls)."""
        return moment - self._lost[bisect_right(self._ends, moment)]
