"""Which of several replicas answers and writes: the holder of a Lease (coordination.k8s.io/v1).

Says who leads, and for how long that is certain; starts and stops nothing. `handing_over` and the writers read it.

Facts it rests on:
1. Expiry goes by our monotonic clock alone. A holder's record counts from the moment at which *we* saw it change, ours
   from the moment at which we *sent* the renewal. Clocks of other machines are never compared with ours.
2. So between the last moment at which a holder believes in its Lease (renewDeadline after sending) and the first at
   which another takes it (leaseDuration after seeing it) lies their difference, whatever gets lost or stalls.
3. `is_leader` looks at the clock each time: a process that was stopped for a minute knows at once when it goes on.
4. Every write names the resourceVersion it rests on. Of two that take a Lease one gets a Conflict.
5. A standby looks four times as often as the leader renews, so that its count begins soon after the renewal, and it
   wakes at the moment of expiry: a dead leader is replaced leaseDuration after its last renewal was seen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random
from typing import Final

from extender.kube.errors import Conflict, KubeError, NotFound
from extender.kube.leases import Lease
from extender.settings import LEADER_JITTER
from extender.tasks.leader_state import Term
from extender.tasks.ports import Clock, LeaseStore

_LOG = logging.getLogger(__name__)

_LOOKS_PER_PERIOD: Final = 4
_RELEASED_SECONDS: Final = 1  # the API refuses 0


@dataclass(frozen=True, slots=True)
class LeaderElectionOptions:
    """``identity`` must be one of its own for every process; it is compared whole. Times in seconds, as client-go's."""

    namespace: str
    name: str
    identity: str
    lease_duration: int = 15
    renew_deadline: float = 10.0
    retry_period: float = 2.0


class LeaderElector:
    """Our side of the Lease. ``may_lead``: whether we could answer; else we leave the Lease to others.

    ``terms`` counts those that we have begun; ``problem`` is what the last call failed of, empty if it did not.
    """

    def __init__(
        self,
        store: LeaseStore,
        options: LeaderElectionOptions,
        clock: Clock,
        rng: Random,
        utc_now: Callable[[], datetime],
        may_lead: Callable[[], bool],
    ) -> None:
        self.problem = ""
        self.terms = 0
        self._store = store
        self._options = options
        self._clock = clock
        self._rng = rng
        self._utc_now = utc_now
        self._may_lead = may_lead
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._seen: Lease | None = None
        self._seen_at = 0.0
        self._term: Term | None = None
        self._until = 0.0
        self._is_over = False

    @property
    def is_leader(self) -> bool:
        """Whether it is certain, at this moment, that nobody else leads."""
        return self._term is not None and self._clock.now() < self._until

    @property
    def term(self) -> Term | None:
        """Our present term, None while we do not lead."""
        return self._term if self.is_leader else None

    @property
    def clear_at(self) -> float | None:
        """From when on the present holder, if it is another one, cannot answer any more unless it gives a sign of life."""
        if self._seen is None or self._seen.holder in {"", self._options.identity}:
            return None
        return self._seen_at + self._options.renew_deadline

    @property
    def holder(self) -> str:
        """The identity in the Lease as we saw it last; empty when it is nobody's."""
        return self._seen.holder if self._seen else ""

    def change(self) -> Awaitable[object]:
        """Waits until a term has begun or ended since this call, however much later it is awaited."""
        return self._changed.wait()

    async def change_within(self, seconds: float) -> None:
        """The same, but not later than after so many seconds."""
        waits = [asyncio.ensure_future(self.change()), asyncio.ensure_future(self._clock.sleep(seconds))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def run(self) -> None:
        """Take the Lease when it is free and keep it, until released."""
        while not self._is_over:
            await self._clock.sleep(await self.look())

    async def look(self) -> float:
        """One round: renew, or see who leads and perhaps take over. Returns the seconds until the next."""
        async with self._turn:
            if not self._is_over:
                await self._round()
        return self._pause()

    async def release(self) -> None:
        """Give the Lease back, so that nobody has to wait for its end, and take it no more."""
        async with self._turn:
            self._is_over = True
            self._end_term("released")
            if self._seen is None or self._seen.holder != self._options.identity:
                return
            now = self._utc_now()
            free = replace(self._seen, holder="", duration_seconds=_RELEASED_SECONDS, acquire_time=now, renew_time=now)
            try:
                await self._store.update_lease(free)
            except KubeError as error:
                _LOG.warning("the Lease could not be released and will have to run out", extra={"problem": str(error)})

    # -- one round ----------------------------------------------------------------------------------------------

    async def _round(self) -> None:
        self._notice_the_time()
        try:
            if not (self._term and await self._renew()):
                await self._see()
            self.problem = ""
        except Conflict:
            self.problem = ""  # somebody was faster; the next round sees who
        except KubeError as error:
            if self.problem != str(error):
                _LOG.warning("the Lease cannot be read or written", extra={"problem": str(error)})
            self.problem = str(error)
        self._notice_the_time()

    def _notice_the_time(self) -> None:
        """A term that could not be renewed is over for good, even if the record still bears our name later."""
        if self._term and not self.is_leader:
            self._end_term("not renewed within leaderElection.renewDeadline")

    async def _renew(self) -> bool:
        """The short way, without reading first; False when the record has changed under us, or is gone."""
        if self._seen is None or self._seen.holder != self._options.identity:
            return False
        try:
            await self._hold(self._seen, self._seen.transitions)
        except (Conflict, NotFound):
            return False
        return True

    async def _see(self) -> None:
        """Read the record, and take it if it is ours, nobody's, or run out."""
        found = await self._read()
        now = self._clock.now()
        if found is None:
            await self._create(now)
            return
        self._observe(found, now)
        if found.holder == self._options.identity:
            await self._hold(found, found.transitions)
            self._begin_term(Term(found.transitions, now, float("-inf")))
            return
        self._end_term(f"taken by {found.holder}" if found.holder else "taken and released by another")
        if self._may_lead() and (not found.holder or now >= self._expiry(found)):
            # Before our own record is what was seen last.
            clear_since, silent_since = self._clear_since(found, now), self._silent_since(found, now)
            await self._hold(found, found.transitions + 1)
            self._begin_term(Term(found.transitions + 1, now, clear_since, silent_since))

    async def _read(self) -> Lease | None:
        try:
            return await self._store.get_lease(self._options.namespace, self._options.name)
        except NotFound:
            return None

    async def _create(self, now: float) -> None:
        """Nobody has led yet, or somebody has removed the record; numbers of terms we know of are not used again."""
        known = self._seen
        self._end_term("the Lease was removed")
        if not self._may_lead():
            return
        number = known.transitions + 1 if known else 0
        await self._hold(Lease(self._options.namespace, self._options.name), number)
        self._begin_term(Term(number, now, now if known else float("-inf")))

    async def _hold(self, base: Lease, number: int) -> None:
        """Write ourselves into the record, and count our time from before the request."""
        sent, now = self._clock.now(), self._utc_now()
        ours = base.holder == self._options.identity
        record = replace(
            base,
            holder=self._options.identity,
            duration_seconds=self._options.lease_duration,
            acquire_time=base.acquire_time if ours else now,
            renew_time=now,
            transitions=number,
        )
        write = self._store.update_lease if base.resource_version else self._store.create_lease
        self._observe(await write(record), sent)
        self._until = sent + self._options.renew_deadline

    # -- what we know -------------------------------------------------------------------------------------------

    def _observe(self, found: Lease, now: float) -> None:
        """A record that says something new counts from now; a mere label on it is no renewal."""
        known = self._seen
        if known is None or _claim(known) != _claim(found):
            self._seen_at = now
            if known is None or known.holder != found.holder:
                _LOG.info(
                    "the Lease has a holder", extra={"holder": found.holder or "nobody", "term": found.transitions}
                )
        self._seen = found

    def _expiry(self, found: Lease) -> float:
        """By the holder's own word for how long it holds."""
        return self._seen_at + (found.duration_seconds or self._options.lease_duration)

    def _clear_since(self, found: Lease, now: float) -> float:
        """When the holder before us answered for the last time, at the latest; it has our settings."""
        if not found.holder:
            return now if found.renew_time else float("-inf")  # released a moment ago, or never held
        return min(now, self._seen_at + self._options.renew_deadline)

    def _silent_since(self, found: Lease, now: float) -> float:
        """When the holder before us gave its last sign of life: a renewal, or giving the Lease back."""
        if not found.holder:
            return now if found.renew_time else float("-inf")
        return self._seen_at

    def _begin_term(self, term: Term) -> None:
        if self._term is None:
            self._term = term
            self.terms += 1
            self._tell_of_change()
            _LOG.info("leading", extra={"identity": self._options.identity, "term": term.number})

    def _end_term(self, why: str) -> None:
        if self._term is not None:
            _LOG.warning("no longer leading", extra={"term": self._term.number, "why": why})
            self._term = None
            self._tell_of_change()

    def _tell_of_change(self) -> None:
        """Wake all who wait now; who waits later waits for the next change."""
        told, self._changed = self._changed, asyncio.Event()
        told.set()

    def _pause(self) -> float:
        if self._term:
            return self._options.retry_period
        look = self._options.retry_period / _LOOKS_PER_PERIOD * self._rng.uniform(1.0, LEADER_JITTER)
        if self._seen is None or not self._seen.holder:
            return look
        left = self._expiry(self._seen) - self._clock.now()
        return min(look, left) if left > 0 else look


def _claim(lease: Lease) -> tuple[object, ...]:
    """What a record says about who leads."""
    return lease.holder, lease.transitions, lease.acquire_time, lease.renew_time, lease.duration_seconds
