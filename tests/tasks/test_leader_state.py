"""What was decided in one term is not written in another, and jobs live no longer than their term."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from extender.kube.effects import PodCondition, PodEvent, PodRef
from extender.tasks.leadership.state import AlwaysLeader, LeadershipLost, LeaderTerm, LeaderWriter, run_while_leading
from extender.tasks.ports import ClusterWriter
from tests.fakes import FakeWriter, until
from tests.tasks.electing import NOON

WEB = PodRef("team-a", "web-1", "u-1")
FIRST, SECOND = LeaderTerm(4, 10.0, 10.0), LeaderTerm(6, 50.0, 50.0)
WRITES: dict[str, Callable[[ClusterWriter], object]] = {
    "nominate web-1 node-a": lambda writer: writer.nominate(WEB, "node-a"),
    "condition web-1 Ready=True": lambda writer: writer.set_condition(
        WEB, PodCondition("Ready", "True", "Because", "", NOON)
    ),
    "annotate web-1 a=b": lambda writer: writer.annotate(WEB, "a", "b"),
    "delete web-1 5": lambda writer: writer.delete(WEB, 5),
    "evict web-1 None": lambda writer: writer.evict(WEB),
    "bind web-1 node-a": lambda writer: writer.bind(WEB, "node-a"),
    "event web-1 Preempted": lambda writer: writer.create_event(
        PodEvent(WEB, "Normal", "Preempted", "Preempting", "", NOON)
    ),
}


class Turns:
    """Leadership as the test says."""

    def __init__(self) -> None:
        self.term: LeaderTerm | None = None
        self._changed = asyncio.Event()

    @property
    def ready_term(self) -> LeaderTerm | None:
        """Nothing is handed over here."""
        return self.term

    def become(self, term: LeaderTerm | None) -> None:
        """A term begins or ends."""
        self.term = term
        told, self._changed = self._changed, asyncio.Event()
        told.set()

    def wait_for_change(self) -> Awaitable[object]:
        """The next one."""
        return self._changed.wait()


class Job:
    """A job that writes when it is told to, and knows how often it was begun and cancelled."""

    def __init__(self, writer: ClusterWriter) -> None:
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
    inner, turns = FakeWriter(), Turns()
    writer = LeaderWriter(inner, turns)
    with pytest.raises(LeadershipLost, match="another replica leads"):
        await WRITES[effect](writer)  # type: ignore[misc]  # bound in the loop
    assert inner.effects == []
    turns.become(FIRST)
    await WRITES[effect](writer)  # type: ignore[misc]  # bound in the loop
    assert inner.effects == [effect]


async def test_the_only_one_always_leads() -> None:
    inner = FakeWriter()
    await LeaderWriter(inner, AlwaysLeader()).bind(WEB, "node-a")
    assert inner.effects == ["bind web-1 node-a"]


async def test_a_job_runs_once_in_every_term_and_is_cancelled_with_it() -> None:
    turns = Turns()
    job = Job(LeaderWriter(FakeWriter(), turns))
    running = asyncio.create_task(run_while_leading(turns, job.run))
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
    inner, turns = FakeWriter(), Turns()
    job = Job(LeaderWriter(inner, turns))
    running = asyncio.create_task(run_while_leading(turns, job.run))
    turns.become(FIRST)
    await until(lambda: job.begun == 1)
    turns.become(SECOND)
    await until(lambda: job.begun == 2)
    job.go.set()
    await until(lambda: job.rejected)
    assert (job.rejected, inner.effects) == (["decided in term 4, now is term 6"], [])
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_what_a_job_dies_of_comes_out() -> None:
    turns = Turns()
    turns.become(FIRST)

    async def fails() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await run_while_leading(turns, fails)
