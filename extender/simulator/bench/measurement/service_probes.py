"""What the bench adds to a measured service: an echo that answers without deciding, and a heartbeat of the event loop.

The echo decodes the same request and names as many nodes; the difference is the cost of deciding. The heartbeat shows
for how long the loop could answer no request. On a shared machine a process also waits for others, so it keeps two
lengths: by the clock, and bounded by the processor time that this thread has used meanwhile.
"""

import asyncio
from collections.abc import Mapping
from time import perf_counter_ns, thread_time_ns
from typing import Final

from extender.simulator.bench.reporting.figures import Figures, milliseconds
from extender.wire.extender_v1 import ExtenderArgs, FilterResult


def echo_filter(args: ExtenderArgs, count: int | None) -> FilterResult:
    """The first so many of the asked names, or all of them."""
    return FilterResult((args.node_names or [])[:count])


def echo_scores(args: ExtenderArgs, count: int | None) -> Mapping[str, int]:
    """A score for so many of the asked names, or for all."""
    return dict.fromkeys((args.node_names or [])[:count], 0)


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
