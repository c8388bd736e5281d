"""A leader that takes over, the pods that the leader before let through, and the watch that shows them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from extender.kube.effects import Lease
from extender.kube.errors import KubeError
from extender.kube.listing import WatchFreshness
from extender.tasks.takeover import Takeover
from tests.fakes import FakeClock
from tests.tasks.electing import Leases, Replica


@dataclass
class Cluster(WatchFreshness):
    """The API server's newest version and ours; ``quiet`` says what a second watch would tell."""

    clock: FakeClock
    newest: str = "500"
    ours: str = "400"
    quiet: bool = False
    failures: list[KubeError] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    async def newest_version(self) -> str:
        self.requests.append("newest")
        if self.failures:
            raise self.failures.pop(0)
        return self.newest

    async def is_quiet_since(self, version: str) -> bool:
        """After a second."""
        self.requests.append(f"since {version}")
        await self.clock.sleep(1.0)
        return self.quiet


@dataclass
class Stand:
    """One replica that takes a Lease over, and the cluster around it."""

    clock: FakeClock
    leases: Leases
    cluster: Cluster
    replica: Replica
    takeover: Takeover
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def begins(self, record: Lease | None, ours: str = "400", *, quiet: bool = False) -> None:
        """The replica starts, in front of that record, with its watch at that version."""
        self.leases.record, self.cluster.ours, self.cluster.quiet = record, ours, quiet
        self.tasks = [asyncio.create_task(run()) for run in (self.takeover.run, self.replica.leadership.run)]
        await self.clock.advance(0.0)

    @property
    def missing(self) -> str:
        return self.takeover.checks()["leadership"]

    async def ready_after(self, most: float = 60.0) -> float:
        """Let time pass until it is ready; returns the seconds since the term began."""
        end = self.clock.time + most
        while not self.takeover.is_ready:
            assert self.clock.time < end, self.missing
            await self.clock.advance(0.01)
        term = self.takeover.term
        assert term
        return self.clock.time - term.since


@dataclass
class Part:
    """A part that is as the test says."""

    is_ready: bool
    is_stale: bool = False
    missing: dict[str, str] = field(default_factory=dict)

    def checks(self) -> dict[str, str]:
        return self.missing


@dataclass
class Turn:
    """A replica that is as the test says."""

    is_ready: bool = True
    is_leader: bool = True
    problem: str = ""

    def checks(self) -> dict[str, str]:
        return {"leadership": "" if self.is_ready else "standby"}
