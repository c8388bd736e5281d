"""Events about preemptions: nothing waits for them, and they are told when there is time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from extender.kube.effects import PodEvent, PodRef
from extender.kube.errors import Rejected
from extender.kube.writer import Writer
from extender.tasks.preemption.event_recorder import EventRecorder
from extender.tasks.preemption.executor import RateLimiter
from tests.fakes import FakeClock, until


def event(name: str) -> PodEvent:
    return PodEvent(PodRef("default", name, f"uid-{name}"), "Normal", "Preempted", "Preempting", "", datetime.now(UTC))


class Journal(Writer):
    """Takes events down; ``refuses`` one of them. ``is_held``: it takes no end."""

    def __init__(self, refuses: str = "") -> None:
        self.names: list[str] = []
        self.is_held = False
        self._refuses = refuses

    async def create_event(self, event: PodEvent) -> None:
        """Written, or refused."""
        if event.pod.name == self._refuses:
            raise Rejected("403", status=403)
        self.names.append(event.pod.name)
        if self.is_held:
            await asyncio.Event().wait()


class Stage:
    """A journal and a pace on a clock."""

    def __init__(self, refuses: str = "", most_waiting: int = 10, at_once: int = 8) -> None:
        self.clock = FakeClock()
        self.journal = Journal(refuses)
        self.rate_limiter = RateLimiter(self.clock, 4, 1e6)
        self.recorder = EventRecorder(self.journal, self.rate_limiter, self.clock, most_waiting, at_once)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Events are being told until the block is left."""
        job = asyncio.ensure_future(self.recorder.run())
        try:
            yield
        finally:
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)


async def test_events_are_reported_in_order_and_a_rejected_one_is_lost() -> None:
    stage = Stage(refuses="b")
    async with stage.running():
        for name in "abc":
            stage.recorder.record(event(name))
        await stage.recorder.flush()
    assert (stage.journal.names, stage.recorder.lost) == (["a", "c"], 1)


async def test_an_event_waits_until_more_urgent_writes_have_been_done_for_a_while() -> None:
    stage = Stage()
    async with stage.running():
        async with stage.rate_limiter.acquire():
            stage.recorder.record(event("a"))
            await until(lambda: stage.clock.slept)
            assert stage.journal.names == []
        left = stage.clock.time
        await stage.recorder.flush()
    assert stage.journal.names == ["a"]
    assert 0.1 <= stage.clock.time - left <= 0.2


async def test_a_burst_without_an_end_does_not_silence_them() -> None:
    stage = Stage()
    async with stage.running(), stage.rate_limiter.acquire():
        begun = stage.clock.time
        stage.recorder.record(event("a"))
        await stage.recorder.flush()
    assert stage.journal.names == ["a"]
    assert 0.25 <= stage.clock.time - begun <= 0.35
    assert len([pause for pause in stage.clock.slept if pause > 0.01]) == 3, (
        "as rarely as a pause of 0.1 s can be found"
    )


async def test_what_does_not_fit_is_lost_and_so_is_what_waits_at_the_end() -> None:
    stage = Stage(most_waiting=2, at_once=1)
    for name in "abc":
        stage.recorder.record(event(name))
    assert stage.recorder.lost == 1
    stage.journal.is_held = True
    async with stage.running():
        await until(lambda: stage.journal.names)
    await stage.recorder.flush()
    assert (stage.journal.names, stage.recorder.lost) == (["a"], 2)


async def test_a_few_that_wait_are_written_side_by_side_and_no_more() -> None:
    stage = Stage(at_once=3)
    for name in "abcd":
        stage.recorder.record(event(name))
    stage.journal.is_held = True
    async with stage.running():
        await until(lambda: len(stage.journal.names) == 3)
        for _ in range(20):
            await asyncio.sleep(0)
        assert stage.journal.names == ["a", "b", "c"]
