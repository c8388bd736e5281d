"""The clock of a service that is tried out: the real one, but for the jumps that a scenario makes it take.

Fits ``kube.timing.Clock`` by shape. Held by the stage, handed to the service by the command line.
"""

import asyncio
import time


class JumpingClock:
    """Monotonic seconds that can be made to jump ahead, as after a machine was suspended."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._jumped = asyncio.Event()

    def now(self) -> float:
        """Seconds of the monotonic clock and of all jumps; never goes back."""
        return time.monotonic() + self._ahead

    def jump(self, seconds: float) -> None:
        """So much time has passed at once. Who sleeps past that wakes up."""
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
