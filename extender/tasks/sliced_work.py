"""Runs work in steps between the requests of schedulers: one piece of work at a time, in slices, within a budget.

kube-scheduler sends one request at a time, and has work of its own before the next one. So a slice right after an answer
delays no request, and may take half a millisecond. A slice at another time may delay a request, so it is short: 0.15 ms, or one
step if that is longer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from itertools import product
from math import inf
from typing import Final, Literal, TypeVar, get_args

from extender.index.trial import TrialSteps
from extender.kube.timing import Clock
from extender.model.answers.explanations import NoAnswerCause, NotExplained
from extender.model.bounded import Steps

SHORT_SLICE: Final = 0.00015
LONG_SLICE: Final = 0.0005
_PAUSE_SECONDS: Final = 0.003  # while nothing is asked
_DRAIN_PAUSE_SECONDS: Final = 0.02
_RECENT_SECONDS: Final = 0.25
_ASKS_WITHIN: Final = 1.0
_ASKS_WITHIN_BUSY: Final = 10.0
_LONGEST_WAIT: Final = 0.01  # for an answer: a short slice in this time takes 2 % of the loop


class Traffic:
    """The requests of schedulers in flight, and when the last one was answered.

    ``accepted``: requests that this replica reads or answers. Requests that go to another replica do not count.
    """

    def __init__(self, clock: Clock) -> None:
        self.accepted = 0
        self._clock = clock
        self._in_flight = 0
        self._last_answer = -inf
        self._answered: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Call when a request comes."""
        self._in_flight += 1

    def end(self) -> None:
        """Call when its answer is ready: the answer is written before any other task runs."""
        self._in_flight -= 1
        self._last_answer = self._clock.now()
        if not self._in_flight and self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    async def drained(self) -> None:
        """Waits until every accepted request is answered."""
        while self.accepted:
            await self._clock.sleep(_DRAIN_PAUSE_SECONDS)

    @property
    def _is_busy(self) -> bool:
        return self._in_flight > 0 or self._clock.now() - self._last_answer <= _RECENT_SECONDS

    def is_overdue(self, seconds: float) -> bool:
        """Whether a scheduler would have asked about a pod that it could have tried for so many seconds.

        An idle scheduler asks within milliseconds. A scheduler that asks about other pods may have a long queue.
        """
        return seconds >= (_ASKS_WITHIN_BUSY if self._is_busy else _ASKS_WITHIN)

    async def gap(self) -> float:
        """Waits for the best moment for a slice; returns the seconds that it may take.

        The moment is right after an answer if requests were answered lately, otherwise after a pause. Waits 10 ms at most,
        because a request may be in flight for longer while it waits for an assumed pod.
        """
        if not self._is_busy:
            await self._clock.sleep(_PAUSE_SECONDS)
            return SHORT_SLICE
        if self._answered is None or self._answered.done():
            self._answered = asyncio.get_running_loop().create_future()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_WAIT):
                await asyncio.shield(self._answered)
        return LONG_SLICE if self._answered.done() else SHORT_SLICE


T = TypeVar("T")
Kind = Literal["explanation", "page", "event"]
# Unknown: there is no such pod or node. Busy: enough others are in work. Abandoned: the client does not wait any more.
Outcome = Literal["done", "unknown", "busy", "too_expensive", "abandoned", "failed"]
OUTCOMES: Final[dict[NoAnswerCause, Outcome]] = {
    NoAnswerCause.UNKNOWN: "unknown",
    NoAnswerCause.BUSY: "busy",
    NoAnswerCause.TOO_EXPENSIVE: "too_expensive",
}


class SlicedWork:
    """Work for people, first in, first out. All parts that do such work share one queue.

    ``seconds``: used of the event loop, by kind of work. ``outcomes`` counts by kind and outcome.
    """

    def __init__(self, clock: Clock, traffic: Traffic | None = None) -> None:
        """``traffic``: None where no scheduler asks."""
        self._clock = clock
        self._traffic = traffic or Traffic(clock)
        self.seconds: dict[str, float] = dict.fromkeys(get_args(Kind), 0.0)
        self.outcomes: Counter[tuple[str, str]] = Counter(dict.fromkeys(product(get_args(Kind), get_args(Outcome)), 0))
        self._turn = asyncio.Lock()

    async def run(self, work: Steps[T], most_seconds: float, kind: Kind) -> T:
        """The result, once all earlier work is done. Raises NotExplained if its slices take more than ``most_seconds``."""
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
        # The first slice is short, because it begins at any moment. Later ones begin in a gap between two requests. The budget
        # counts only the slices: work must not fail because the scheduler is busy.
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
                raise NotExplained(NoAnswerCause.TOO_EXPENSIVE, text)
            most_in_slice = await self._traffic.gap()


_TRIAL_SLICE_SECONDS: Final = 0.01
_TRIAL_PAUSE_SECONDS: Final = 0.002


async def in_slices(trials: TrialSteps[T], clock: Clock) -> T:
    """The result of work that changes the counts for a trial. It is valid until the caller awaits anything else."""
    # Other tasks may run only while the trial is suspended: a request must not see its counts. The pause lets requests be
    # answered, and costs the trial once more.
    begun = clock.now()
    try:
        while True:
            is_clean = next(trials)
            if clock.now() - begun >= _TRIAL_SLICE_SECONDS:
                while not is_clean:
                    is_clean = trials.send(True)
                await clock.sleep(_TRIAL_PAUSE_SECONDS)
                next(trials)  # places the pods of the trial again, and does a step, so that each pause brings progress
                begun = clock.now()
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        trials.close()


class Places:
    """A bound for pieces of work of one kind at a time; further ones are refused."""

    def __init__(self, most: int, kind: Kind, work: SlicedWork) -> None:
        self._most = most
        self._kind = kind
        self._work = work
        self._taken = 0

    def __enter__(self) -> None:
        """Takes a place. Raises NotExplained."""
        if self._taken >= self._most:
            self._work.outcomes[self._kind, OUTCOMES[NoAnswerCause.BUSY]] += 1
            raise NotExplained(
                NoAnswerCause.BUSY, f"{self._most} other {self._kind}s are wanted already; try again in a moment"
            )
        self._taken += 1

    def __exit__(self, *_: object) -> None:
        self._taken -= 1
