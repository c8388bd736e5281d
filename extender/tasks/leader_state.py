"""Terms of leadership, and the writer that refuses what was decided under a term that is over.

Between two terms of ours another replica may have led, and what we had planned may be undone, or done, already.
Time and the Lease are `leading`'s affair; here stands what everybody else needs of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Protocol

from extender.kube.effects import PodCondition, PodEvent, PodRef
from extender.kube.errors import Refused
from extender.tasks.ports import ClusterWriter


@dataclass(frozen=True, slots=True)
class Term:
    """One time of ours as leader.

    ``number`` is the Lease's leaseTransitions; ``since`` tells two terms of one number apart (the Lease was lost sight of
    and came back). ``clear_since``: the monotonic moment after which nobody before us can have let a pod through.
    ``silent_since``: when the one before us gave its last sign of life; without one before us, minus infinity.
    """

    number: int
    since: float
    clear_since: float
    silent_since: float = float("-inf")


class TermOver(Refused):
    """Raised instead of writing when the term is over under which the write was decided. Trying again does not help."""


class Leading(Protocol):
    """Whose turn it is."""

    @property
    def term(self) -> Term | None:
        """The present term, if it is ours now. Asked before every write: O(1)."""


class AlwaysLeading:
    """For a service that is the only one: one term from its start to its end."""

    term: Final = Term(0, 0.0, 0.0)


class Turn(Leading, Protocol):
    """Leading, with the moments at which that changes."""

    @property
    def complete(self) -> Term | None:
        """The present term, once all is known that was let through before it."""

    def change(self) -> Awaitable[object]:
        """Waits until a term has become complete, or has ended, since this call, however much later it is awaited."""


_DECIDED_IN: ContextVar[Term | None] = ContextVar("term", default=None)


async def run_in_terms(turn: Turn, run: Callable[[], Awaitable[None]]) -> None:
    """Run a job once in every term of ours that is complete, and cancel it when the term ends.

    Whatever it starts belongs to that term, and its writes are refused in any other. Raises what the job raises.
    """
    while True:
        term = turn.complete
        if term is None:
            await turn.change()
            continue
        _DECIDED_IN.set(term)
        job = asyncio.ensure_future(run())
        try:
            while turn.complete == term and not job.done():
                await _first_of(job, turn.change())
        finally:
            job.cancel()
            await asyncio.wait({job})
        if not job.cancelled():
            return job.result()


async def _first_of(job: asyncio.Future[None], change: Awaitable[object]) -> None:
    """Return when either has ended; the job goes on."""
    changing = asyncio.ensure_future(change)
    both: tuple[asyncio.Future[Any], ...] = (job, changing)
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        changing.cancel()


class LeaderWriter:
    """Writes while we lead, and nothing that was decided in another term. Every method may raise TermOver.

    A write that was begun in time may take effect a little later; that is why writes to pods carry the pod's UID.
    """

    def __init__(self, writer: ClusterWriter, leading: Leading) -> None:
        self._writer = writer
        self._leading = leading

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
        term = self._leading.term
        if term is None:
            raise TermOver("another replica leads, or nobody")
        decided = _DECIDED_IN.get()
        if decided is not None and decided != term:
            raise TermOver(f"decided in term {decided.number}, now is term {term.number}")
        return self._writer
