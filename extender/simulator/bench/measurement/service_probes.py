"""What the bench adds to a measured service: an echo that answers without a decision, and a heartbeat of the event loop.

The echo decodes the same request and answers as many nodes, so the difference is the cost of the decision. The heartbeat
measures how long the event loop was busy. On a shared machine it may also have waited for other processes, so it records
two lengths: wall time, and wall time limited by the processor time of this thread.
"""

import asyncio
import gc
from collections.abc import Callable, Iterable, Mapping
from time import perf_counter_ns, thread_time_ns
from typing import Final

from extender.simulator.bench.reporting.figures import Figures, milliseconds
from extender.wire.extender_v1 import ExtenderArgs, FilterResult


def echo_filter(args: ExtenderArgs, count: int | None) -> FilterResult:
    """The first `count` names of the request, or all of them."""
    return FilterResult((args.node_names or [])[:count])


def echo_scores(args: ExtenderArgs, count: int | None) -> Mapping[str, int]:
    """A score for the first `count` names of the request, or for all."""
    return dict.fromkeys((args.node_names or [])[:count], 0)


_EVERY_NANOSECONDS: Final = 5_000_000


class Heartbeat:
    """Beats until it is cancelled. `figures` returns those since the previous call."""

    def __init__(self) -> None:
        self._own: list[int] = []
        self._wall: list[int] = []

    async def beat(self) -> None:
        """Measures the delay of a timer, 200 times per second."""
        while True:
            started, used = perf_counter_ns(), thread_time_ns()
            await asyncio.sleep(_EVERY_NANOSECONDS / 1e9)
            late = max(0, perf_counter_ns() - started - _EVERY_NANOSECONDS)
            self._wall.append(late)
            self._own.append(min(late, thread_time_ns() - used))

    def figures(self) -> Figures:
        """`pause` is limited by the processor time, `pauseWall` is wall time."""
        found = milliseconds(self._own, "pause") | milliseconds(self._wall, "pauseWall")
        self._own, self._wall = [], []
        return found


class Collections:
    """How long the garbage collector held this process. Observes from its creation on."""

    def __init__(self) -> None:
        self._times: list[int] = []
        self._started = 0
        gc.callbacks.append(self._observe)

    def _observe(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._started = thread_time_ns()
        else:
            self._times.append(thread_time_ns() - self._started)

    def figures(self) -> Figures:
        """`gc.max` and others since the previous call, by processor time."""
        found, self._times = milliseconds(self._times, "gc"), []
        return found


def timed_steps(steps: Iterable[Callable[[], list[str]]]) -> tuple[list[str], Figures]:
    """Runs the steps of an audit. Returns what they found, and `auditStep.*`, `auditSteps`, and `auditSeconds` of all."""
    found, times = list[str](), list[int]()
    started = thread_time_ns()
    for step in steps:  # the next step is found within the time of the one before, as in the service
        found += step()
        ended = thread_time_ns()
        times.append(ended - started)
        started = ended
    return found, milliseconds(times, "auditStep") | {"auditSteps": len(times), "auditSeconds": sum(times) / 1e9}
