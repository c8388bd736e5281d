"""What the tests of leadership share: replicas, and the Lease that they write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random

from extender.kube.effects import Lease, decode_lease, lease_body
from extender.kube.errors import KubeError, Unreachable
from extender.kube.writer import Writer
from extender.simulator.apiserver.kinds import LEASES
from extender.tasks.leader_election import LeaderElectionOptions, LeaderElector
from tests.fake_api import FakeApi
from tests.fakes import FakeClock

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


class Leases(FakeApi):
    """The apiserver's side. ``failures`` are raised before anything is done, ``lost`` after it was."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock
        self.objects = Writer(self, "extender", "a")
        self.failures: list[KubeError] = []
        self.lost: list[KubeError] = []
        self.is_away = False
        self.fail = lambda _call, _name: self._failure()
        self.lose_answer = lambda _call, _name: self.lost.pop(0) if self.lost else None

    @property
    def record(self) -> Lease | None:
        """The Lease as it is stored; None removes it."""
        lines = self.rows(LEASES).lines()
        return decode_lease(lines[0]) if lines else None

    @record.setter
    def record(self, lease: Lease | None) -> None:
        rows = self.rows(LEASES)
        rows.clear()
        if lease is not None:
            rows[f"{lease.namespace}/{lease.name}"] = lease_body(lease)

    def edit(self, **changes: object) -> None:
        assert self.record is not None
        self.record = replace(self.record, **changes)  # type: ignore[arg-type]  # as the test gives it

    def _failure(self) -> KubeError | None:
        if self.is_away:
            return Unreachable("connection refused")
        return self.failures.pop(0) if self.failures else None


class Wire(Writer):
    """One replica's way to the Lease, which can be cut. ``there`` and ``back``: seconds that it takes."""

    def __init__(self, leases: Leases) -> None:
        self.leases = leases
        self.is_cut = False
        self.there = 0.0
        self.back = 0.0

    async def get_lease(self, namespace: str, name: str) -> Lease:
        return await self._pass(lambda: self.leases.objects.get_lease(namespace, name))

    async def create_lease(self, lease: Lease) -> Lease:
        return await self._pass(lambda: self.leases.objects.create_lease(lease))

    async def update_lease(self, lease: Lease) -> Lease:
        return await self._pass(lambda: self.leases.objects.update_lease(lease))

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
