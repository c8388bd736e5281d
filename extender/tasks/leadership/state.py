"""Leader terms, and the writer that refuses a write that was decided in an earlier term.

Between two terms of one replica another may have led, and may have completed or undone what was planned. The Lease itself
is handled in `election`; this module holds what the other tasks need of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Protocol

from extender.kube.effects import PodCondition, PodEvent, PodRef
from extender.kube.errors import Rejected
from extender.tasks.ports import ClusterWriter


@dataclass(frozen=True, slots=True)
class LeaderTerm:
    """One uninterrupted period in which this replica leads.

    ``number`` is the Lease's leaseTransitions; ``since`` distinguishes two terms of one number (the Lease was lost and
    regained). ``clear_since``: the monotonic time after which no earlier leader can have passed a pod. ``silent_since``:
    when the earlier leader last renewed or released the Lease; minus infinity where there was none.
    """

    number: int
    since: float
    clear_since: float
    silent_since: float = float("-inf")


class LeadershipLost(Rejected):
    """Raised instead of writing when the term in which the write was decided has ended. A retry does not help."""


class CurrentLeader(Protocol):
    """Whether this replica leads."""

    @property
    def term(self) -> LeaderTerm | None:
        """The current term of this replica, None while it does not lead. Read before every write: O(1)."""


class AlwaysLeader:
    """For a service without leader election: one term from its start to its end."""

    term: Final = LeaderTerm(0, 0.0, 0.0)


class LeaderState(CurrentLeader, Protocol):
    """Whether this replica leads and has taken over, with a way to wait for changes."""

    @property
    def ready_term(self) -> LeaderTerm | None:
        """The current term, once every pod that an earlier leader passed is known."""

    def wait_for_change(self) -> Awaitable[object]:
        """Waits until a term has become ready or has ended since this call, however much later the result is awaited."""


_DECIDED_IN: ContextVar[LeaderTerm | None] = ContextVar("term", default=None)


async def run_while_leading(state: LeaderState, run: Callable[[], Awaitable[None]]) -> None:
    """Runs a job once in each ready term of this replica, and cancels it when the term ends.

    Tasks that the job starts belong to that term: their writes are refused in any other. Raises what the job raises.
    """
    while True:
        term = state.ready_term
        if term is None:
            await state.wait_for_change()
            continue
        _DECIDED_IN.set(term)
        job = asyncio.ensure_future(run())
        try:
            while state.ready_term == term and not job.done():
                await _first_of(job, state.wait_for_change())
        finally:
            job.cancel()
            await asyncio.wait({job})
        if not job.cancelled():
            return job.result()


async def _first_of(job: asyncio.Future[None], change: Awaitable[object]) -> None:
    """Returns when either has ended; the job continues."""
    changing = asyncio.ensure_future(change)
    both: tuple[asyncio.Future[Any], ...] = (job, changing)
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        changing.cancel()


def check_term(leader: CurrentLeader) -> None:
    """Called before a write. Raises ``LeadershipLost`` unless this replica leads, in the term in which its job began. O(1)."""
    term = leader.term
    if term is None:
        raise LeadershipLost("another replica leads, or none")
    decided = _DECIDED_IN.get()
    if decided is not None and decided != term:
        raise LeadershipLost(f"decided in term {decided.number}, now is term {term.number}")


class LeaderWriter:
    """Writes only while this replica leads, and only what was decided in the current term. Each method may raise LeadershipLost.

    A write that began in time may take effect after the term; that is why writes to pods carry the pod's UID.
    """

    def __init__(self, writer: ClusterWriter, leader: CurrentLeader) -> None:
        self._writer = writer
        self._leader = leader

    async def nominate(self, pod: PodRef, node: str) -> None:
        """As ClusterWriter."""
        await self._admitted.nominate(pod, node)

    async def set_condition(self, pod: PodRef, condition: PodCondition) -> None:
        """As ClusterWriter."""
        await self._admitted.set_condition(pod, condition)

    async def annotate(self, pod: PodRef, key: str, value: str | None) -> None:
        """As ClusterWriter."""
        await self._admitted.annotate(pod, key, value)

    async def delete(self, pod: PodRef, grace_seconds: int | None = None) -> None:
        """As ClusterWriter."""
        await self._admitted.delete(pod, grace_seconds)

    async def evict(self, pod: PodRef, grace_seconds: int | None = None) -> None:
        """As ClusterWriter."""
        await self._admitted.evict(pod, grace_seconds)

    async def bind(self, pod: PodRef, node: str) -> None:
        """As ClusterWriter."""
        await self._admitted.bind(pod, node)

    async def create_event(self, event: PodEvent) -> None:
        """As ClusterWriter."""
        await self._admitted.create_event(event)

    @property
    def _admitted(self) -> ClusterWriter:
        check_term(self._leader)
        return self._writer
