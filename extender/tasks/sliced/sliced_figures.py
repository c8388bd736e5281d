"""A figure that takes long to measure, kept for metrics: measured in slices in the background, read at each scrape.

A scrape holds the event loop until it is complete, and so do its figures.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, Generic, TypeVar

from extender.tasks.ports import Clock

SLICE_SECONDS: Final = 0.002
PAUSE_SECONDS: Final = 0.02
EVERY_SECONDS: Final = 10.0
_MOST_SHARE: Final = 0.01  # of the time of the process, for rounds that take long

T = TypeVar("T")


class SlicedFigure(Generic[T]):
    """``value`` is that of the last complete round, at first the one given."""

    def __init__(self, measure: Callable[[], Generator[None, None, T]], clock: Clock, first: T) -> None:
        """``measure`` begins a round: a generator of short steps, which returns the figure."""
        self.value = first
        self._measure = measure
        self._clock = clock

    async def run(self) -> None:
        """Measures again and again, until cancelled."""
        while True:
            spent = await self._round()
            await self._clock.sleep(max(EVERY_SECONDS, spent / _MOST_SHARE))

    async def _round(self) -> float:
        """Returns how many seconds its slices took."""
        steps, spent, begun = self._measure(), 0.0, self._clock.now()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                self.value = end.value
                return spent + self._clock.now() - begun
            lasted = self._clock.now() - begun
            if lasted >= SLICE_SECONDS:
                spent += lasted
                await self._clock.sleep(PAUSE_SECONDS)
                begun = self._clock.now()
