"""Which of several replicas answers and writes: the holder of a Lease (coordination.k8s.io/v1).

Decides which replica leads and for how long that is certain. Starts and stops nothing: `takeover` reads the result.

The safety argument:
1. Expiry uses the local monotonic clock only. Another holder's Lease counts from the moment at which its change was
   *observed*, the own Lease from the moment at which the renewal was *sent*. Clocks of two machines are never compared.
2. A holder stops leading renewDeadline after sending; another replica takes the Lease leaseDuration after observing it.
   The difference between the two separates them, whatever is lost or delayed.
3. `is_leader` reads the clock each time: a process that was suspended finds out at once when it continues.
4. Every write carries the resourceVersion that it is based on. Of two replicas that take a Lease one gets a Conflict.
5. A standby reads the Lease four times as often as the leader renews it, so that its count begins soon after the
   renewal, and it wakes at the moment of expiry: a dead leader is replaced leaseDuration after its last renewal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random
from typing import Final

from extender.kube.effects import Lease
from extender.kube.errors import Conflict, KubeError, NotFound, Rejected
from extender.kube.timing import Clock
from extender.kube.writer import Writer
from extender.settings.jobs import LEADER_JITTER

_LOG = logging.getLogger(__name__)

_READS_PER_PERIOD: Final = 4
_RELEASED_SECONDS: Final = 1  # the API rejects 0


@dataclass(frozen=True, slots=True)
class LeaderTerm:
    """One uninterrupted period in which this replica leads.

    ``number``: the Lease's leaseTransitions.
    ``since``: distinguishes two terms of one number, where the Lease was lost and regained.
    ``clear_since``: the monotonic time after which no earlier leader can have passed a pod.
    ``silent_since``: when the earlier leader last renewed or released the Lease; minus infinity if there was none.
    """

    number: int
    since: float
    clear_since: float
    silent_since: float = float("-inf")


class LeadershipLost(Rejected):
    """Raised instead of writing when the term in which the write was decided has ended. A retry does not help."""


@dataclass(frozen=True, slots=True)
class LeaderElectionOptions:
    """Times in seconds. The defaults are client-go's; the settings have shorter defaults. ``identity``: unique for each process."""

    namespace: str
    name: str
    identity: str
    lease_duration: int = 15
    renew_deadline: float = 10.0
    retry_period: float = 2.0


class LeaderElector:
    """One candidate for the Lease. ``may_lead``: whether this replica could answer. If not, it does not acquire the Lease.

    ``takeovers`` counts how often this replica became leader; ``problem`` is the error of the last call, empty on success.
    """

    def __init__(
        self,
        store: Writer,
        options: LeaderElectionOptions,
        clock: Clock,
        rng: Random,
        utc_now: Callable[[], datetime],
        may_lead: Callable[[], bool],
    ) -> None:
        self.problem = ""
        self.takeovers = 0
        self._store = store
        self._options = options
        self._clock = clock
        self._rng = rng
        self._utc_now = utc_now
        self._may_lead = may_lead
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()
        self._seen: Lease | None = None
        self._seen_at = 0.0
        self._term: LeaderTerm | None = None
        self._until = 0.0
        self._is_over = False

    @property
    def is_leader(self) -> bool:
        """Whether it is certain, at this moment, that no other replica leads."""
        return self._term is not None and self._clock.now() < self._until

    @property
    def term(self) -> LeaderTerm | None:
        """The current term of this replica, None while it does not lead."""
        return self._term if self.is_leader else None

    @property
    def clear_at(self) -> float | None:
        """When the holder's last observed renewal ends: after it the holder cannot answer. None if there is no other holder."""
        if self._seen is None or self._seen.holder in {"", self._options.identity}:
            return None
        return self._seen_at + self._options.renew_deadline

    @property
    def holder(self) -> str:
        """The identity in the Lease as last observed; empty while it has no holder."""
        return self._seen.holder if self._seen else ""

    def wait_for_change(self) -> Awaitable[object]:
        """Waits until a term has begun or ended since this call, however much later the result is awaited."""
        return self._changed.wait()

    async def wait_for_change_within(self, seconds: float) -> None:
        """As `wait_for_change`, with a timeout in seconds."""
        waits = [asyncio.ensure_future(self.wait_for_change()), asyncio.ensure_future(self._clock.sleep(seconds))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def run(self) -> None:
        """Acquires the Lease when it is free and renews it, until released."""
        while not self._is_over:
            await self._clock.sleep(await self.look())

    async def look(self) -> float:
        """One round: renews the Lease, or else reads it and acquires it if possible. Returns the seconds until the next round."""
        async with self._lock:
            if not self._is_over:
                await self._round()
        return self._seconds_to_next_round()

    async def release(self) -> None:
        """Releases the Lease, so that the next replica need not wait for its expiry. It is not acquired again."""
        async with self._lock:
            self._is_over = True
            self._end_term("released")
            if self._seen is None or self._seen.holder != self._options.identity:
                return
            now = self._utc_now()
            free = replace(self._seen, holder="", duration_seconds=_RELEASED_SECONDS, acquire_time=now, renew_time=now)
            try:
                await self._store.update_lease(free)
            except KubeError as error:
                _LOG.warning("the Lease could not be released and has to expire", extra={"problem": str(error)})

    # -- one round ----------------------------------------------------------------------------------------------

    async def _round(self) -> None:
        self._check_expiry()
        try:
            if not (self._term and await self._renew()):
                await self._read_and_acquire()
            self.problem = ""
        except Conflict:
            self.problem = ""  # another replica was faster; the next round reads which
        except KubeError as error:
            if self.problem != str(error):
                _LOG.warning("the Lease cannot be read or written", extra={"problem": str(error)})
            self.problem = str(error)
        self._check_expiry()

    def _check_expiry(self) -> None:
        """Ends a term that was not renewed in time, for good: the Lease may still name this replica later."""
        if self._term and not self.is_leader:
            self._end_term("not renewed within leaderElection.renewDeadline")

    async def _renew(self) -> bool:
        """Renews without reading first; False when the Lease was changed by another client or deleted."""
        if self._seen is None or self._seen.holder != self._options.identity:
            return False
        try:
            await self._acquire(self._seen, self._seen.transitions)
        except (Conflict, NotFound):
            return False
        return True

    async def _read_and_acquire(self) -> None:
        """Reads the Lease, and acquires it if possible."""
        # 1. There is no Lease: it never existed, or it was deleted. `_create` writes a new one.
        # 2. The Lease names this replica: another client has edited it, or the answer to a write was lost. It is acquired
        #    again. A term that still runs goes on; one that has ended is not resumed, a new one begins.
        # 3. Another replica holds it, or none: this one acquires it if it is free, or expired by the local clock.
        lease = await self._read()
        now = self._clock.now()
        if lease is None:
            await self._create(now)
            return
        self._observe(lease, now)
        if lease.holder == self._options.identity:
            await self._acquire(lease, lease.transitions)
            self._begin_term(LeaderTerm(lease.transitions, now, float("-inf")))
            return
        self._end_term(f"taken by {lease.holder}" if lease.holder else "taken and released by another")
        if self._may_lead() and (not lease.holder or now >= self._expiry(lease)):
            # Computed first: acquiring replaces what was observed of the previous holder.
            clear_since, silent_since = self._clear_since(lease, now), self._silent_since(lease, now)
            await self._acquire(lease, lease.transitions + 1)
            self._begin_term(LeaderTerm(lease.transitions + 1, now, clear_since, silent_since))

    async def _read(self) -> Lease | None:
        try:
            return await self._store.get_lease(self._options.namespace, self._options.name)
        except NotFound:
            return None

    async def _create(self, now: float) -> None:
        """Creates a Lease that never existed or was deleted; the numbers of known terms are not used again."""
        known = self._seen
        self._end_term("the Lease was removed")
        if not self._may_lead():
            return
        number = known.transitions + 1 if known else 0
        await self._acquire(Lease(self._options.namespace, self._options.name), number)
        self._begin_term(LeaderTerm(number, now, now if known else float("-inf")))

    async def _acquire(self, base: Lease, number: int) -> None:
        """Writes this replica's identity into the Lease; its validity counts from before the request."""
        sent, now = self._clock.now(), self._utc_now()
        is_own = base.holder == self._options.identity
        record = replace(
            base,
            holder=self._options.identity,
            duration_seconds=self._options.lease_duration,
            acquire_time=base.acquire_time if is_own else now,
            renew_time=now,
            transitions=number,
        )
        write = self._store.update_lease if base.resource_version else self._store.create_lease
        self._observe(await write(record), sent)
        # From the sending on: a slow answer must not prolong the term.
        self._until = sent + self._options.renew_deadline

    # -- what was observed ---------------------------------------------------------------------------------------

    def _observe(self, lease: Lease, now: float) -> None:
        """A changed spec restarts the count from now; a change of metadata does not renew the Lease."""
        known = self._seen
        if known is None or _claim(known) != _claim(lease):
            self._seen_at = now
            if known is None or known.holder != lease.holder:
                _LOG.info("the Lease has a holder", extra={"holder": lease.holder or "none", "term": lease.transitions})
        self._seen = lease

    def _expiry(self, lease: Lease) -> float:
        return self._seen_at + (lease.duration_seconds or self._options.lease_duration)

    def _clear_since(self, lease: Lease, now: float) -> float:
        """The latest time at which the previous holder can have answered. Assumes that it has the same settings."""
        if not lease.holder:
            return now if lease.renew_time else float("-inf")  # released just now, or never held
        return min(now, self._seen_at + self._options.renew_deadline)

    def _silent_since(self, lease: Lease, now: float) -> float:
        """When the previous holder last renewed or released the Lease."""
        if not lease.holder:
            return now if lease.renew_time else float("-inf")
        return self._seen_at

    def _begin_term(self, term: LeaderTerm) -> None:
        if self._term is None:
            self._term = term
            self.takeovers += 1
            self._notify()
            _LOG.info("leading", extra={"identity": self._options.identity, "term": term.number})

    def _end_term(self, why: str) -> None:
        if self._term is not None:
            _LOG.warning("no longer leading", extra={"term": self._term.number, "why": why})
            self._term = None
            self._notify()

    def _notify(self) -> None:
        """Wakes all current waiters; a later waiter waits for the next change."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _seconds_to_next_round(self) -> float:
        if self._term:
            return self._options.retry_period
        look = self._options.retry_period / _READS_PER_PERIOD * self._rng.uniform(1.0, LEADER_JITTER)
        if self._seen is None or not self._seen.holder:
            return look
        left = self._expiry(self._seen) - self._clock.now()
        return min(look, left) if left > 0 else look


def _claim(lease: Lease) -> tuple[object, ...]:
    return lease.holder, lease.transitions, lease.acquire_time, lease.renew_time, lease.duration_seconds
