"""When work for people disturbs requests of the scheduler least: at once after one was answered.

kube-scheduler sends one request at a time, and has work of its own before the next one. So a slice that begins after an
answer delays none, and may take half a millisecond. One that begins at another time is met by a request now and then, so it
is short: 0.15 ms, or one step where that is longer.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import inf
from typing import Final

from extender.tasks.ports import Clock

SHORT_SLICE: Final = 0.00015
LONG_SLICE: Final = 0.0005
_PAUSE_SECONDS: Final = 0.003  # while nothing is asked
_RECENT_SECONDS: Final = 0.25
_ASKS_WITHIN: Final = 1.0
_ASKS_WITHIN_BUSY: Final = 10.0
_LONGEST_WAIT: Final = 0.01  # for an answer: a short slice in this time takes 2 % of the loop


class Traffic:
    """The requests of schedulers that are answered now, and when the last one was answered."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._in_flight = 0
        self._last_answer = -inf
        self._answered: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """A request is to be answered."""
        self._in_flight += 1

    def end(self) -> None:
        """It is answered: its answer is written before any other task runs."""
        self._in_flight -= 1
        self._last_answer = self._clock.now()
        if not self._in_flight and self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    @property
    def _is_busy(self) -> bool:
        return self._in_flight > 0 or self._clock.now() - self._last_answer <= _RECENT_SECONDS

    def is_overdue(self, seconds: float) -> bool:
        """Whether a scheduler would have asked about a pod that it could have tried for so many seconds.

        An idle one asks within milliseconds. One that asks about other pods may have a long queue.
        """
        return seconds >= (_ASKS_WITHIN_BUSY if self._is_busy else _ASKS_WITHIN)

    async def gap(self) -> float:
        """Returns after an answer where requests were answered lately, else after a pause: how many seconds a slice may take now.

        After 10 ms at most: a request may be in flight for longer, as it waits for an assumed pod.
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
