"""Candidates for leadership: writers, jobs and the turns that they take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress

from extender.kube.effects import Lease, PodRef
from extender.kube.session import Connection
from extender.kube.writer import Writer
from extender.tasks.leader_election import LeaderElector, LeadershipLost, LeaderTerm
from extender.tasks.takeover import Takeover
from tests.fakes import FakeClock
from tests.tasks.electing import NOON, Replica


@asynccontextmanager
async def running(*replicas: Replica) -> AsyncIterator[None]:
    """Their loops, until the block is left."""
    tasks = [asyncio.create_task(found.leadership.run()) for found in replicas]
    yield
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def held_by(other: str, **changes: object) -> Lease:
    """A Lease as another replica has written it."""
    fields: dict[str, object] = {"acquire_time": NOON, "renew_time": NOON, "transitions": 7, "resource_version": "1"}
    return Lease("kube-system", "extender", holder=other, **(fields | changes))  # type: ignore[arg-type]  # as the test gives it


async def until_leading(clock: FakeClock, leadership: LeaderElector, step: float = 0.1, most: float = 60.0) -> float:
    """Let time pass until it leads; returns how much."""
    begun = clock.time
    while not leadership.is_leader:
        assert clock.time - begun < most, "it never leads"
        await clock.advance(step)
    return clock.time - begun


WEB = PodRef("team-a", "web-1", "u-1")


class Sent(Connection):
    """A connection that notes the methods of calls, and answers that a pod is on no node."""

    def __init__(self) -> None:
        self.methods: list[str] = []

    async def call(self, method: str, *_: object, **__: object) -> bytes:
        self.methods.append(method)
        return b'{"metadata":{"name":"web-1","namespace":"team-a","uid":"u-1"},"spec":{}}'


def writer_of(sent: Sent, turns: Turns) -> Writer:
    """What writes while it is the turn of this replica."""
    return Writer(sent, "test", "test", check=turns.check_term)


class Turns(Takeover):
    """Leadership as the test says."""

    def __init__(self) -> None:
        self.now: LeaderTerm | None = None
        self._changed = asyncio.Event()

    @property
    def term(self) -> LeaderTerm | None:
        return self.now

    @property
    def ready_term(self) -> LeaderTerm | None:
        """Nothing is handed over here."""
        return self.term

    def become(self, term: LeaderTerm | None) -> None:
        self.now = term
        reported, self._changed = self._changed, asyncio.Event()
        reported.set()

    def wait_for_change(self) -> Awaitable[object]:
        return self._changed.wait()


class Job:
    """A job that writes when it is told to, and knows how often it was begun and cancelled."""

    def __init__(self, writer: Writer) -> None:
        self.begun = 0
        self.cancelled = 0
        self.rejected: list[str] = []
        self.leftover: asyncio.Task[None] | None = None
        self.go = asyncio.Event()
        self._writer = writer

    async def run(self) -> None:
        """Begin, start something that outlives us, and wait."""
        self.begun += 1
        if self.leftover is None:
            self.leftover = asyncio.create_task(self._write_later())
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def _write_later(self) -> None:
        await self.go.wait()
        try:
            await self._writer.bind(WEB, "node-a")
        except LeadershipLost as error:
            self.rejected.append(str(error))
