"""Delays the first answer of a new leader until every pod that the earlier leader passed is known.

Such a pod may not be bound yet. Until the watch shows it bound, other pods would be placed as if it did not exist. So a new
leader is not ready before two conditions hold:

1. Bindings that began under the earlier leader had time to finish.
2. The watch of pods has shown everything up to then. This is verified: the watch has reached the version of a consistent read.
   In a quiet cluster the version does not grow; then a second watch from the same version must receive no event.

Between two terms of this replica another one may have led, and may have completed or undone what was planned. So a job that
writes runs in one term, and a write that was decided in an earlier term is refused. Reading the state is O(1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final

from extender.kube.errors import KubeError
from extender.kube.listing import WatchFreshness
from extender.kube.timing import Clock
from extender.tasks.leader_election import LeaderElector, LeadershipLost, LeaderTerm

_LOG = logging.getLogger(__name__)
CHECK: Final = "leadership"
_POLL_SECONDS: Final = 0.05
_STANDBY_POLL_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 0.3  # how long a watch may take to reach the version before a second one is opened


# The term in which the current task began.
_DECIDED_IN: ContextVar[LeaderTerm | None] = ContextVar("term", default=None)


class Takeover:
    """Whether this replica may answer: it leads, and knows every pod that the earlier leader passed.

    ``binding_grace``: seconds that bindings of the earlier leader have to finish. ``gap``: upper bound of the seconds
    without a leader at the last takeover; 0 before the first.
    """

    def __init__(
        self,
        leadership: LeaderElector,
        version: Callable[[], str],
        freshness: WatchFreshness,
        clock: Clock,
        binding_grace: float,
    ) -> None:
        """``version``: the resourceVersion that the watch of pods has reached."""
        self.gap = 0.0
        # Called in each term before its first answer.
        self.before_answers: list[Callable[[], None]] = []
        self._leadership = leadership
        self._version = version
        self._freshness = freshness
        self._clock = clock
        self._binding_grace = binding_grace
        self._taken_over: LeaderTerm | None = None
        self._known_up_to = float("-inf")
        self._changed = asyncio.Event()
        self._behind = ""

    @property
    def is_leader(self) -> bool:
        """Whether it is certain, at this moment, that no other replica leads."""
        return self._leadership.is_leader

    @property
    def problem(self) -> str:
        """The error of the last call for the Lease; empty if it succeeded, or while the present term is still valid."""
        return "" if self.is_leader else self._leadership.problem

    @property
    def term(self) -> LeaderTerm | None:
        """The current term of this replica, from its beginning."""
        return self._leadership.term

    @property
    def ready_term(self) -> LeaderTerm | None:
        """The current term, once the takeover is complete."""
        term = self._leadership.term
        return term if term == self._taken_over else None

    @property
    def is_ready(self) -> bool:
        """This replica leads, and the takeover of this term is complete."""
        return self.ready_term is not None

    def wait_for_change(self) -> Awaitable[object]:
        """Waits until a term has become ready or has ended since this call, however much later the result is awaited."""
        return self._changed.wait()

    def checks(self) -> dict[str, str]:
        """By check its problem; empty is a pass."""
        return {CHECK: "" if self.is_ready else self._missing()}

    def _missing(self) -> str:
        leadership = self._leadership
        if leadership.term is not None:
            return self._behind or "taking over: waiting for the pods that the earlier leader passed"
        standby = f"standby, the leader is {leadership.holder}" if leadership.holder else "standby, no replica leads"
        return f"{standby}; {leadership.problem}" if leadership.problem else standby

    async def run_while_leading(self, run: Callable[[], Awaitable[None]]) -> None:
        """Runs a job once in each ready term of this replica, and cancels it when the term ends.

        Tasks that the job starts belong to that term: their writes are refused in any other. Raises what the job raises.
        """
        while True:
            term = self.ready_term
            if term is None:
                await self.wait_for_change()
                continue
            _DECIDED_IN.set(term)
            job = asyncio.ensure_future(run())
            try:
                while self.ready_term == term and not job.done():
                    await _first_of(job, self.wait_for_change())
            finally:
                job.cancel()
                await asyncio.wait({job})
            if not job.cancelled():
                return job.result()

    def check_term(self) -> None:
        """Called before a write. Raises ``LeadershipLost`` unless this replica leads, in the term in which its job began. O(1).

        A write that began in time may take effect after the term; that is why writes to pods carry the UID of the pod.
        """
        term = self.term
        if term is None:
            raise LeadershipLost("another replica leads, or none")
        decided = _DECIDED_IN.get()
        if decided is not None and decided != term:
            raise LeadershipLost(f"decided in term {decided.number}, now is term {term.number}")

    async def run(self) -> None:
        """Completes the takeover of each term, until cancelled."""
        while True:
            term = self._leadership.term
            if term is None:
                await self._catch_up_as_standby()
            elif term == self._taken_over:
                await self._leadership.wait_for_change()
            else:
                self._behind = ""
                await self._take_over(term)
            self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _catch_up_as_standby(self) -> None:
        """As a standby: if the leader has not renewed for long, catches up before the Lease expires, to be ready sooner."""
        # `due`: no binding of the present leader can be in flight later, unless it renews the Lease.
        # 1. The watch is known to have shown everything up to then, or there is no other leader: nothing to do.
        # 2. `due` is not reached: wait, because what is verified before it does not help.
        # 3. `due` is over: verify now. If this replica takes the Lease, it can answer at once.
        clear_at = self._leadership.clear_at
        due = float("inf") if clear_at is None else clear_at + self._binding_grace
        if self._known_up_to >= due or due == float("inf"):
            await self._leadership.wait_for_change_within(_STANDBY_POLL_SECONDS)
        elif self._clock.now() < due:
            await self._leadership.wait_for_change_within(due - self._clock.now())
        else:
            await self._catch_up()

    async def _take_over(self, term: LeaderTerm) -> None:
        """Returns when the takeover is complete or the term has ended."""
        clear = term.clear_since + self._binding_grace
        await self._clock.sleep(max(0.0, clear - self._clock.now()))
        while self._known_up_to < clear and self._leadership.term == term:
            await self._catch_up()
        if self._leadership.term == term:
            for restore in self.before_answers:
                restore()
            self._taken_over = term
            now = self._clock.now()
            self.gap = now - term.silent_since if term.silent_since > float("-inf") else 0.0
            _LOG.info("taken over", extra={"term": term.number, "seconds": now - term.since, "gap": self.gap})

    async def _catch_up(self) -> None:
        """One attempt to verify that the watch has shown everything up to now."""
        # The time is read before the request: the version that it returns covers this moment, not the moment of the answer.
        now = self._clock.now()
        try:
            if await is_caught_up(self._version, self._freshness, self._clock):
                self._known_up_to = now
        except KubeError as error:
            self._behind = f"taking over: {error}"
            await self._clock.sleep(_POLL_SECONDS)


async def _first_of(job: asyncio.Future[None], change: Awaitable[object]) -> None:
    """Returns when either has ended; the job continues."""
    changing = asyncio.ensure_future(change)
    both: tuple[asyncio.Future[Any], ...] = (job, changing)
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        changing.cancel()


async def is_caught_up(version: Callable[[], str], freshness: WatchFreshness, clock: Clock) -> bool:
    """Whether the watch at this version has shown everything of its kind up to now. Raises ``KubeError``."""
    newest = await freshness.newest_version()
    until = clock.now() + _PATIENCE_SECONDS
    while clock.now() < until:
        if _reached(version(), newest):
            return True
        await clock.sleep(_POLL_SECONDS)
    return await freshness.is_quiet_since(version())


def _reached(version: str, goal: str) -> bool:
    """Whether a version includes ``goal``. Numbers are compared (KEP-5504); any other text has to be equal."""
    if version.isdecimal() and goal.isdecimal():
        return int(version) >= int(goal)
    return version == goal
