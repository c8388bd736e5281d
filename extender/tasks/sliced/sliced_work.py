"""Runs work in steps between the scheduler's requests: one piece of work at a time, in slices, within a budget.

When a slice begins, and how long it may be, is decided in `tasks/sliced/traffic.py`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import product
from typing import Final, Literal, TypeVar, get_args

from extender.model.answers.explanations import Cause, NotExplained
from extender.rules.constraint_states import Steps
from extender.tasks.ports import Clock
from extender.tasks.sliced.traffic import SHORT_SLICE, Traffic

T = TypeVar("T")
Kind = Literal["explanation", "page", "event"]
# Unknown: there is no such pod or node. Busy: enough others are wanted. Abandoned: the client does not wait any more.
Outcome = Literal["done", "unknown", "busy", "too_expensive", "abandoned", "failed"]
OUTCOMES: Final[dict[Cause, Outcome]] = {
    Cause.UNKNOWN: "unknown",
    Cause.BUSY: "busy",
    Cause.TOO_EXPENSIVE: "too_expensive",
}


class SlicedWork:
    """What is asked for by people, in the order in which it was asked for; shared by all parts that work for them.

    ``seconds`` are those of the loop by kind of work, ``outcomes`` count by kind and outcome.
    """

    def __init__(self, clock: Clock, traffic: Traffic | None = None) -> None:
        """``traffic``: None where no scheduler asks."""
        self._clock = clock
        self._traffic = traffic or Traffic(clock)
        self.seconds: dict[str, float] = dict.fromkeys(get_args(Kind), 0.0)
        self.outcomes: Counter[tuple[str, str]] = Counter(dict.fromkeys(product(get_args(Kind), get_args(Outcome)), 0))
        self._turn = asyncio.Lock()

    async def run(self, work: Steps[T], most_seconds: float, kind: Kind) -> T:
        """The result, once all earlier work is done. Raises NotExplained where it takes more than so many seconds of slices."""
        outcome: Outcome = "failed"
        try:
            async with self._turn:
                result = await self._in_slices(work, most_seconds, kind)
            outcome = "done"
        except NotExplained as found:
            outcome = OUTCOMES[found.cause]
            raise
        except asyncio.CancelledError:
            outcome = "abandoned"
            raise
        finally:
            work.close()
            self.outcomes[kind, outcome] += 1
        return result

    async def _in_slices(self, work: Steps[T], most_seconds: float, kind: Kind) -> T:
        used, most_in_slice = 0.0, SHORT_SLICE
        while True:
            slice_used, begun = 0.0, self._clock.now()
            try:
                while slice_used < most_in_slice:
                    next(work)
                    slice_used = self._clock.now() - begun
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self.seconds[kind] += self._clock.now() - begun
            used += slice_used
            if used >= most_seconds:
                text = f"the {kind} would take more than {most_seconds:g} s of the event loop"
                raise NotExplained(Cause.TOO_EXPENSIVE, text)
            most_in_slice = await self._traffic.gap()


class Places:
    """How many pieces of work of one kind may be wanted at a time; one more is refused."""

    def __init__(self, most: int, kind: Kind, work: SlicedWork) -> None:
        self._most = most
        self._kind = kind
        self._work = work
        self._taken = 0

    def __enter__(self) -> None:
        """Takes a place. Raises NotExplained."""
        if self._taken >= self._most:
            self._work.outcomes[self._kind, OUTCOMES[Cause.BUSY]] += 1
            raise NotExplained(
                Cause.BUSY, f"{self._most} other {self._kind}s are wanted already; try again in a moment"
            )
        self._taken += 1

    def __exit__(self, *_: object) -> None:
        """Gives it back."""
        self._taken -= 1
