"""Answers what-ifs, one at a time, each in a child process that has the index as it stands.

Why a fork, measured at 5,000 nodes and 150,000 pods (180 MB), and at twice that (280 MB), the same on asyncio's loop and on uvloop:

1. The fork holds the loop up for 1.5 to 2 ms at either size where pages were joined (`compose/huge_pages.py`), else for 5 to 6 ms and 8 ms: the
   kernel copies the page tables. Then nothing of the what-if runs here. While the child lives, writes here copy
   200 to 2,600 pages, 1 µs each. Over HTTP beside what-ifs at `PAUSE_SECONDS` the p99 of filter is 1.04 to 1.06 times what it is
   without (0.56 to 0.75 ms), the longest answer 5.6 to 6.8 ms (2.1 to 6.7 ms).
2. An index of its own, made in slices from the objects of this one, would cost 1.1 s of the loop before the first pod, and then
   every decision: 0.1 to 2 ms for each of up to thousands of pods, between the scheduler's calls.
3. An overlay on the counts would need a second form of every structure that rules read, and could not share their code.
4. The child adds 30 to 50 MB for some thousand pods: the pages that it writes, and those that change here meanwhile. 5,000
   nodes and 10,000 pods in one body take 1 s of a processor and 115 MB.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from extender.index.cluster import ClusterIndex
from extender.model.answers.what_if import Cause, NotComputed
from extender.rules.constraint_states import Steps
from extender.settings.configuration import Settings
from extender.tasks.ports import Clock
from extender.tasks.what_if.child import Meter, start_child
from extender.tasks.what_if.computing import answer_body
from extender.wire.errors import WireError

PAUSE_SECONDS: Final = 2.0  # from one fork to the next: at 300 calls a second fewer than one in a hundred meets one
_MORE_TIME: Final = 3  # times the processor seconds, as the child gives way to everything else


_OUTCOMES: Final = ("done", "invalid", "abandoned", *(cause.name.lower() for cause in Cause))


class WhatIfService:
    """What-ifs about one index. Call `stop` before the loop ends.

    ``outcomes`` counts requests by what became of them, ``seconds`` the time of their children.
    """

    def __init__(self, index: ClusterIndex, settings: Settings, clock: Clock, pause: float = PAUSE_SECONDS) -> None:
        self._index = index
        self._settings = settings
        self._clock = clock
        self._pause = pause
        self._due = clock.now()
        self._is_stopped = False
        self._running: asyncio.Task[bytes] | None = None
        self.outcomes = dict.fromkeys(_OUTCOMES, 0)
        self.seconds = 0.0

    @property
    def running(self) -> int:
        """How many are being computed: 0 or 1."""
        return int(self._running is not None)

    async def answer(self, body: bytes) -> bytes:
        """The answer to a request's body, encoded. Raises WireError or NotComputed. Cancelling it ends the child.

        The loop waits for the fork (see above), and then for the bytes of the answer alone.
        """
        outcome = Cause.FAILED.name.lower()
        try:
            answer = await self._one(body)
            outcome = "done"
        except NotComputed as error:
            outcome = error.cause.name.lower()
            raise
        except WireError:
            outcome = "invalid"
            raise
        except asyncio.CancelledError:
            outcome = "abandoned"
            raise
        finally:
            self.outcomes[outcome] += 1
        return answer

    async def _one(self, body: bytes) -> bytes:
        """The same, not counted. Raises NotComputed while another is computed."""
        if self._is_stopped:
            raise NotComputed(Cause.UNAVAILABLE, "the service is stopping")
        if self._running is not None:
            raise NotComputed(Cause.BUSY, "another what-if is being computed; try again in a moment")
        task = self._running = asyncio.create_task(self._computed(body))
        task.add_done_callback(self._ended)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            _cancel(task)
            await asyncio.wait((task,))
            if self._is_stopped:
                raise NotComputed(Cause.UNAVAILABLE, "the service is stopping") from None
            raise

    async def stop(self) -> None:
        """Ends the child, if one runs. Its request gets an error, and no other is answered any more."""
        self._is_stopped = True
        if self._running is not None:
            _cancel(self._running)
            await asyncio.wait((self._running,))

    def _ended(self, task: asyncio.Task[bytes]) -> None:
        self._running = None
        if not task.cancelled():
            task.exception()  # where nothing waits for it any more

    async def _computed(self, body: bytes) -> bytes:
        await self._clock.sleep(max(self._due - self._clock.now(), 0.0))
        self._due = self._clock.now() + self._pause
        budget, begun = self._settings.what_if, self._clock.now()
        child = start_child(lambda meter: _encoded(body, self._index, self._settings, meter), budget)
        most = budget.seconds * _MORE_TIME
        try:
            async with asyncio.timeout(most):
                return await child.result()
        except TimeoutError:
            raise NotComputed(
                Cause.TOO_EXPENSIVE, f"not computed within {most:g} s, {_MORE_TIME} times whatIf.seconds"
            ) from None
        finally:
            await child.end()
            self.seconds += self._clock.now() - begun


def _cancel(task: asyncio.Task[bytes]) -> None:
    """Once only: a second one would interrupt the wait for the end of the child."""
    if not task.cancelling():
        task.cancel()


def _encoded(body: bytes, index: ClusterIndex, settings: Settings, meter: Meter) -> Steps[bytes]:
    """In the child: the answer with what it took."""
    index.journal.note = None  # what happens here is not recorded
    answer = yield from answer_body(body, index, settings)
    return msgspec.json.encode(msgspec.structs.replace(answer, budget=meter.spent()))
