"""What the tests of leadership share: time that a test moves, and a Lease kept in memory with an apiserver's manners."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random

from extender.kube.effects import Lease
from extender.kube.errors import Conflict, KubeError, NotFound, Unreachable
from extender.kube.writer import Writer
from extender.tasks.leader_election import LeaderElectionOptions, LeaderElector
from tests.fakes import FakeClock

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@dataclass
class Leases:
    """The apiserver's side. ``failures`` are raised before anything is done, ``lost`` after it was."""

    clock: FakeClock
    record: Lease | None = None
    failures: list[KubeError] = field(default_factory=list)
    lost: list[KubeError] = field(default_factory=list)
    is_away: bool = False
    calls: list[str] = field(default_factory=list)
    _versions: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    async def get_lease(self, namespace: str, name: str) -> Lease:
        self._admit(f"get {namespace}/{name}")
        if self.record is None:
            raise NotFound("404 not found", status=404)
        return self.record

    async def create_lease(self, lease: Lease) -> Lease:
        """409 when there is one."""
        self._admit("create")
        if self.record is not None:
            raise Conflict("409 already exists", status=409)
        return self._store(lease)

    async def update_lease(self, lease: Lease) -> Lease:
        """409 when another client was faster."""
        self._admit("update")
        if self.record is None:
            raise NotFound("404 not found", status=404)
        if lease.resource_version != self.record.resource_version:
            raise Conflict("409 the object has been modified", status=409)
        return self._store(lease)

    def edit(self, **changes: object) -> None:
        assert self.record is not None
        changed = replace(self.record, **changes)  # type: ignore[arg-type]  # as the test gives it
        self.record = replace(changed, resource_version=str(next(self._versions)))

    def _admit(self, call: str) -> None:
        self.calls.append(call)
        if self.is_away:
            raise Unreachable("connection refused")
        if self.failures:
            raise self.failures.pop(0)

    def _store(self, lease: Lease) -> Lease:
        self.record = replace(lease, resource_version=str(next(self._versions)))
        if self.lost:
            raise self.lost.pop(0)
        return self.record


class Wire(Writer):
    """One replica's way to the Lease, which can be cut. ``there`` and ``back``: seconds that it takes."""

    def __init__(self, leases: Leases) -> None:
        self.leases = leases
        self.is_cut = False
        self.there = 0.0
        self.back = 0.0

    async def get_lease(self, namespace: str, name: str) -> Lease:
        return await self._pass(lambda: self.leases.get_lease(namespace, name))

    async def create_lease(self, lease: Lease) -> Lease:
        return await self._pass(lambda: self.leases.create_lease(lease))

    async def update_lease(self, lease: Lease) -> Lease:
        return await self._pass(lambda: self.leases.update_lease(lease))

    async def _pass(self, call: Callable[[], Awaitable[Lease]]) -> Lease:
        if self.is_cut:
            raise Unreachable("no route to host")
        if self.there:
            await self.leases.clock.sleep(self.there)
        found = await call()
        if self.back:
            await self.leases.clock.sleep(self.back)
        return found


@dataclass
class Replica:
    """One contender: its leadership, its own wall clock, and whether it could answer."""

    leadership: LeaderElector
    wire: Wire
    wall: timedelta = timedelta()
    may_lead: bool = True


def replica(
    name: str,
    leases: Leases,
    clock: FakeClock | None = None,
    now: Callable[[], datetime] = lambda: NOON,
    options: LeaderElectionOptions | None = None,
) -> Replica:
    """A contender with client-go's periods."""
    wire = Wire(leases)
    found = Replica(None, wire)  # type: ignore[arg-type]  # filled in the next line
    found.leadership = LeaderElector(
        wire,
        options or LeaderElectionOptions("kube-system", "extender", name),
        clock or leases.clock,
        Random(name),
        lambda: now() + found.wall,
        lambda: found.may_lead,
    )
    return found
