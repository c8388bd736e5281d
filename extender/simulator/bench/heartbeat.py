"""A heartbeat in an event loop: how late it comes is how long nobody else could be answered. Runs in the service.

On a shared machine a process also stands still because others run. So two lengths are kept: by the clock, and bounded
by the processor time that our thread has used meanwhile. The second is what our own code is to blame for.
"""

import asyncio
from time import perf_counter_ns, thread_time_ns
from typing import Final

from extender.simulator.bench.quantiles import Figures, milliseconds

_EVERY_NANOSECONDS: Final = 5_000_000


class Heartbeat:
    """Beats until it is cancelled; `figures` tells of the time since it was last asked."""

    def __init__(self) -> None:
        self._own: list[int] = []
        self._wall: list[int] = []

    async def beat(self) -> None:
        """200 times a second."""
        while True:
            started, used = perf_counter_ns(), thread_time_ns()
            await asyncio.sleep(_EVERY_NANOSECONDS / 1e9)
            late = max(0, perf_counter_ns() - started - _EVERY_NANOSECONDS)
            self._wall.append(late)
            self._own.append(min(late, thread_time_ns() - used))

    def figures(self) -> Figures:
        """`pause` is our own part, `pauseWall` by the clock."""
        found = milliseconds(self._own, "pause") | milliseconds(self._wall, "pauseWall")
        self._own, self._wall = [], []
        return found
