"""Clocks of a run: the clock of the service, which a scenario can advance, and a record of loop stalls.

The former has the shape of ``kube.timing.Clock``. The simulated cluster holds it; its caller passes it to the
service.
"""

import asyncio
import time
from bisect import bisect_right
from collections.abc import Callable
from typing import Final

_BEAT_SECONDS: Final = 0.02
_HELD_UP_SECONDS: Final = 0.05  # a beat that comes so much late: the loop was kept from its work


class JumpingClock:
    """Monotonic seconds that can be made to jump ahead, as after a machine was suspended."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._jumped = asyncio.Event()

    def now(self) -> float:
        """Seconds of the monotonic clock and of all jumps; never goes back."""
        return time.monotonic() + self._ahead

    def jump(self, seconds: float) -> None:
        """Advance the clock at once, and wake every sleep that ends before the new time."""
        self._ahead += seconds
        jumped, self._jumped = self._jumped, asyncio.Event()
        jumped.set()

    async def sleep(self, seconds: float) -> None:
        """Wait until so many seconds have passed by this clock, at the next turn of the loop for 0."""
        until = self.now() + seconds
        await asyncio.sleep(0)
        while (left := until - self.now()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._jumped.wait()
            except TimeoutError:
                continue


class HoldUps:
    """When the event loop stalled, and for how long. API server, scheduler and extender share the loop.

    No event is delivered and no decision made during a stall, so the oracle leaves that time out.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._ends: list[float] = []
        self._lost = [0.0]  # seconds of the first so many
        self._due = 0.0
        self._beating: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Look at the running loop from now on."""
        self._due = self._now() + _BEAT_SECONDS
        self._beating = asyncio.get_running_loop().call_later(_BEAT_SECONDS, self._beat)

    def stop(self) -> None:
        """Look no longer."""
        if self._beating is not None:
            self._beating.cancel()

    def _beat(self) -> None:
        self.look()
        self.begin()

    def look(self) -> None:
        """Note a hold-up if this comes late."""
        now = self._now()
        if now - self._due >= _HELD_UP_SECONDS:
            self._ends.append(now)
            self._lost.append(self._lost[-1] + now - self._due)

    def felt(self, moment: float) -> float:
        """A moment of the monotonic clock without all hold-ups before it. O(log hold-ups)."""
        return moment - self._lost[bisect_right(self._ends, moment)]
