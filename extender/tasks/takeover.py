"""From the first moment of a term to the first answer: the wait for what the replica before us has let through.

A pod that it let through is on its way to a node and not yet bound; until the watch shows it, we would place others as
if it were not there. So a new leader is not ready before (1) bindings begun under the old one had time to be made, and
(2) our watch of pods has shown everything up to then. (2) is proven, not assumed: by the version of a consistent read
that the watch has reached, or, in a quiet cluster, by a second watch that has nothing to tell.

Fits ``tasks.readiness.Replica``. Asked for every request; the waiting is a job of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from extender.kube.errors import KubeError
from extender.tasks.leader_election import LeaderElector
from extender.tasks.leader_state import Term
from extender.tasks.ports import Clock

_LOG = logging.getLogger(__name__)
CHECK: Final = "leadership"
_LOOK_SECONDS: Final = 0.05
_GLANCE_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 0.3  # how long a busy watch may take to come past the version, before a second one is asked


class FreshnessCheck(Protocol):
    """What the API server knows of pods, for comparison with what our watch has shown. Raises KubeError."""

    async def newest_version(self) -> str:
        """The resourceVersion that everything up to now is contained in."""

    async def is_quiet_since(self, version: str) -> bool:
        """Whether nothing has changed after that version; takes about a second."""


class Takeover:
    """Whether we may answer: we lead, and nothing is left that only the one before us knew. ``settle`` in seconds.

    ``gap``: for how many seconds at most nobody answered before we did, at our last take-over; 0 before the first.
    """

    def __init__(
        self,
        leadership: LeaderElector,
        version: Callable[[], str],
        comparison: FreshnessCheck,
        clock: Clock,
        settle: float,
    ) -> None:
        """``version``: how far our watch of pods is."""
        self.gap = 0.0
        self._leadership = leadership
        self._version = version
        self._comparison = comparison
        self._clock = clock
        self._settle = settle
        self._taken_over: Term | None = None
        self._known_up_to = float("-inf")
        self._changed = asyncio.Event()
        self._behind = ""

    @property
    def is_leader(self) -> bool:
        """Whether nobody else can lead at this moment."""
        return self._leadership.is_leader

    @property
    def term(self) -> Term | None:
        """Our present term, from its first moment on."""
        return self._leadership.term

    @property
    def complete(self) -> Term | None:
        """Our present term, once it is handed over."""
        term = self._leadership.term
        return term if term == self._taken_over else None

    @property
    def is_ready(self) -> bool:
        """We lead, and the hand-over of this term is complete."""
        return self.complete is not None

    def change(self) -> Awaitable[object]:
        """Waits until a term has become complete, or has ended, since this call, however much later it is awaited."""
        return self._changed.wait()

    def checks(self) -> dict[str, str]:
        """By name what is missing; empty is a pass."""
        return {CHECK: "" if self.is_ready else self._missing()}

    def _missing(self) -> str:
        leadership = self._leadership
        if leadership.term is not None:
            return self._behind or "taking over: waiting for what the leader before has let through"
        standby = f"standby, the leader is {leadership.holder}" if leadership.holder else "standby, nobody leads"
        return f"{standby}; {leadership.problem}" if leadership.problem else standby

    async def run(self) -> None:
        """See each term of ours through its beginning, until cancelled."""
        while True:
            term = self._leadership.term
            if term is None:
                await self._look_ahead()
            elif term == self._taken_over:
                await self._leadership.change()
            else:
                self._behind = ""
                await self._take_over(term)
            self._tell_of_change()

    def _tell_of_change(self) -> None:
        told, self._changed = self._changed, asyncio.Event()
        told.set()

    async def _look_ahead(self) -> None:
        """As a standby: when the leader has long been silent, catch up before the Lease runs out and not after."""
        clear_at = self._leadership.clear_at
        due = float("inf") if clear_at is None else clear_at + self._settle
        if self._known_up_to >= due or due == float("inf"):
            await self._leadership.change_within(_GLANCE_SECONDS)
        elif self._clock.now() < due:
            await self._leadership.change_within(due - self._clock.now())
        else:
            await self._catch_up()

    async def _take_over(self, term: Term) -> None:
        """Return when the hand-over is complete or the term is over."""
        clear = term.clear_since + self._settle
        await self._clock.sleep(max(0.0, clear - self._clock.now()))
        while self._known_up_to < clear and self._leadership.term == term:
            await self._catch_up()
        if self._leadership.term == term:
            self._taken_over = term
            now = self._clock.now()
            self.gap = now - term.silent_since if term.silent_since > float("-inf") else 0.0
            _LOG.info("taken over", extra={"term": term.number, "seconds": now - term.since, "gap": self.gap})

    async def _catch_up(self) -> None:
        """One attempt to have our watch show all that there is now."""
        now = self._clock.now()
        try:
            if await self._is_caught_up():
                self._known_up_to = now
        except KubeError as error:
            self._behind = f"taking over: {error}"
            await self._clock.sleep(_LOOK_SECONDS)

    async def _is_caught_up(self) -> bool:
        newest = await self._comparison.newest_version()
        until = self._clock.now() + _PATIENCE_SECONDS
        while self._clock.now() < until:
            if _reached(self._version(), newest):
                return True
            await self._clock.sleep(_LOOK_SECONDS)
        return await self._comparison.is_quiet_since(self._version())


def _reached(version: str, goal: str) -> bool:
    """Versions grow, as numbers (KEP-5504). Where they are none, only the same one is surely enough."""
    if version.isdecimal() and goal.isdecimal():
        return int(version) >= int(goal)
    return version == goal
