"""What was decided in one term is not written in another, and jobs live no longer than their term."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from extender.kube.effects import PodRef
from extender.kube.session import Connection
from extender.kube.writer import Writer
from extender.tasks.leader_election import LeadershipLost, LeaderTerm
from extender.tasks.takeover import Takeover
from tests.fakes import until

WEB = PodRef("team-a", "web-1", "u-1")
FIRST, SECOND = LeaderTerm(4, 10.0, 10.0), LeaderTerm(6, 50.0, 50.0)
WRITES: dict[str, Callable[[Writer], object]] = {
    "PATCH": lambda writer: writer.nominate(WEB, "node-a"),
    "DELETE": lambda writer: writer.delete(WEB, 5),
    "POST": lambda writer: writer.bind(WEB, "node-a"),
}


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
        told, self._changed = self._changed, asyncio.Event()
        told.set()

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


@pytest.mark.parametrize("effect", WRITES)
async def test_a_leader_writes_and_a_standby_does_not(effect: str) -> None:
    sent, turns = Sent(), Turns()
    writer = writer_of(sent, turns)
    with pytest.raises(LeadershipLost, match="another replica leads"):
        await WRITES[effect](writer)  # type: ignore[misc]  # bound in the loop
    assert await writer.node_of(WEB) == "", "a standby reads"
    turns.become(FIRST)
    await WRITES[effect](writer)  # type: ignore[misc]  # bound in the loop
    assert sent.methods == ["GET", effect]


async def test_a_job_runs_once_in_every_term_and_is_cancelled_with_it() -> None:
    turns = Turns()
    job = Job(writer_of(Sent(), turns))
    running = asyncio.create_task(turns.run_while_leading(job.run))
    await asyncio.sleep(0)
    assert job.begun == 0
    for count, term in enumerate((FIRST, SECOND), 1):
        turns.become(term)
        await until(lambda count=count: job.begun == count)  # type: ignore[misc]  # bound in the loop
        turns.become(None)
        await until(lambda count=count: job.cancelled == count)  # type: ignore[misc]  # bound in the loop
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_writes_of_an_earlier_term_are_rejected_in_the_next() -> None:
    sent, turns = Sent(), Turns()
    job = Job(writer_of(sent, turns))
    running = asyncio.create_task(turns.run_while_leading(job.run))
    turns.become(FIRST)
    await until(lambda: job.begun == 1)
    turns.become(SECOND)
    await until(lambda: job.begun == 2)
    job.go.set()
    await until(lambda: job.rejected)
    assert (job.rejected, sent.methods) == (["decided in term 4, now is term 6"], [])
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_what_a_job_dies_of_comes_out() -> None:
    turns = Turns()
    turns.become(FIRST)

    async def fails() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await turns.run_while_leading(fails)
