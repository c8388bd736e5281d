"""Runs work in steps between the scheduler's requests: one piece of work at a time, in slices, within a budget.

After each slice of two tenths of a millisecond, or one step where that is longer, the loop is free for three: a filter request
takes several turns of the event loop, and meets one slice or none. So all such work together takes a twentieth of the loop's time, or little more.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from extender.model.explanations import Cause, NotExplained
from extender.rules.constraint_states import Steps
from extender.tasks.ports import Clock

T = TypeVar("T")

_SLICE_SECONDS: Final = 0.00015
_PAUSE_SECONDS: Final = 0.003


class SlicedWork:
    """What is asked for by people, in the order in which it was asked for; shared by all parts that work for them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn = asyncio.Lock()

    async def run(self, work: Steps[T], most_seconds: float, what: str) -> T:
        """The result, once all earlier work is done. Raises NotExplained where it takes more than so many seconds of slices."""
        try:
            async with self._turn:
                return await self._in_slices(work, most_seconds, what)
        finally:
            work.close()

    async def _in_slices(self, work: Steps[T], most_seconds: float, what: str) -> T:
        used = 0.0
        while True:
            slice_used, begun = 0.0, self._clock.now()
            while slice_used < _SLICE_SECONDS:
                try:
                    next(work)
                except StopIteration as end:
                    result: T = end.value
                    return result
                slice_used = self._clock.now() - begun
            used += slice_used
            if used >= most_seconds:
                text = f"{what} would take more than {most_seconds:g} s of the event loop"
                raise NotExplained(Cause.TOO_EXPENSIVE, text)
            await self._clock.sleep(_PAUSE_SECONDS)


class Places:
    """How many pieces of work of one kind may be wanted at a time; one more is refused."""

    def __init__(self, most: int, what: str) -> None:
        self._most = most
        self._what = what
        self._taken = 0

    def __enter__(self) -> None:
        """Takes a place. Raises NotExplained."""
        if self._taken >= self._most:
            raise NotExplained(Cause.BUSY, f"{self._most} other {self._what} are wanted already; try again in a moment")
        self._taken += 1

    def __exit__(self, *_: object) -> None:
        """Gives it back."""
        self._taken -= 1
