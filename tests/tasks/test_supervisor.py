"""Jobs that run, fail, end and stop: in order, and never unseen."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from random import Random

import pytest

from extender.tasks.supervisor import Supervisor
from extender.telemetry.logs import fields_of
from tests.fakes import PATIENCE, FakeClock, until


class Log:
    """What happened, in order, and jobs and steps that write it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def job(self, name: str, *failures: Exception | None) -> Job:
        """A job that runs until cancelled, after so many attempts that fail (or end, for None)."""
        return Job(self, name, list(failures))

    def step(self, name: str) -> Step:
        return Step(self, name)


class Job:
    """Fails or ends as often as it was told, then runs until cancelled."""

    def __init__(self, log: Log, name: str, failures: list[Exception | None]) -> None:
        self.log, self.name, self.failures = log, name, failures

    async def __call__(self) -> None:
        self.log.lines.append(f"{self.name} runs")
        if self.failures:
            failure = self.failures.pop(0)
            if failure:
                raise failure
            return
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.log.lines.append(f"{self.name} over")


class Step:
    """Writes its name."""

    def __init__(self, log: Log, name: str) -> None:
        self.log, self.name = log, name

    async def __call__(self) -> None:
        self.log.lines.append(self.name)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def supervisor(clock: FakeClock) -> Supervisor:
    return Supervisor(clock, Random(1))


async def test_jobs_start_in_order_and_end_when_stopped(supervisor: Supervisor, log: Log) -> None:
    for name in ("a", "b", "c"):
        supervisor.add(name, log.job(name))
    running = asyncio.ensure_future(supervisor.run())
    await until(lambda: len(log.lines) == 3)
    supervisor.stop("enough")
    await running
    assert log.lines == ["a runs", "b runs", "c runs", "c over", "b over", "a over"]


async def test_the_way_down_goes_step_by_step_while_jobs_still_run(supervisor: Supervisor, log: Log) -> None:
    supervisor.add("feed", log.job("feed"))
    supervisor.add_drain("not ready", log.step("not ready"), 1.0)
    supervisor.add_drain("in flight", log.step("in flight"), 1.0)
    running = asyncio.ensure_future(supervisor.run())
    await until(lambda: log.lines)
    supervisor.stop("SIGTERM")
    await running
    assert log.lines == ["feed runs", "not ready", "in flight", "feed over"]


async def test_a_restartable_job_that_fails_is_reported_counted_and_started_again_with_growing_pauses(
    supervisor: Supervisor, log: Log, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor.add("feed", log.job("feed", *(RuntimeError(f"upset {number}") for number in range(4))))
    with caplog.at_level(logging.ERROR):
        running = asyncio.ensure_future(supervisor.run())
        await until(lambda: len(log.lines) == 5)
    supervisor.stop("enough")
    await running
    assert supervisor.restarts == {"feed": 4}
    assert [record.exc_info[1].args for record in caplog.records if record.exc_info and record.exc_info[1]] == [
        (f"upset {number}",) for number in range(4)
    ]
    assert all(0.4 * 2**turn <= pause <= 0.8 * 2**turn for turn, pause in enumerate(clock.slept))


async def test_a_restartable_job_that_merely_ends_is_started_again_too(supervisor: Supervisor, log: Log) -> None:
    supervisor.add("feed", log.job("feed", None))
    running = asyncio.ensure_future(supervisor.run())
    await until(lambda: len(log.lines) == 2)
    supervisor.stop("enough")
    await running
    assert supervisor.restarts == {"feed": 1}


async def test_a_job_that_ran_for_long_fails_for_the_first_time_again(
    supervisor: Supervisor, log: Log, clock: FakeClock
) -> None:
    failures: list[Exception | None] = [RuntimeError("upset")] * 6
    job = log.job("feed", *failures)

    async def long_running() -> None:
        if len(job.failures) == 1:
            clock.time += 61
        await job()

    supervisor.add("feed", long_running)
    running = asyncio.ensure_future(supervisor.run())
    await until(lambda: len(log.lines) == 7)
    supervisor.stop("enough")
    await running
    assert clock.slept[4] > 6.0
    assert clock.slept[5] <= 0.8


async def test_other_jobs_do_not_notice(supervisor: Supervisor, log: Log) -> None:
    supervisor.add("steady", log.job("steady"))
    supervisor.add("feed", log.job("feed", RuntimeError("upset")))
    running = asyncio.ensure_future(supervisor.run())
    await until(lambda: log.lines.count("feed runs") == 2)
    assert "steady over" not in log.lines
    supervisor.stop("enough")
    await running


async def test_a_step_that_fails_or_hangs_does_not_keep_the_others_from_their_turn(
    supervisor: Supervisor, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    async def hang() -> None:
        await asyncio.get_running_loop().create_future()

    async def fail() -> None:
        raise RuntimeError("step is upset")

    supervisor.add_drain("hangs", hang, 0.02)
    supervisor.add_drain("fails", fail, 1.0)
    supervisor.add_drain("last", log.step("last"), 1.0)
    supervisor.stop("enough")
    with caplog.at_level(logging.WARNING):
        await supervisor.run()
    assert log.lines == ["last"]
    fields = {record.getMessage(): fields_of(record) for record in caplog.records}
    assert fields["shutdown step not finished"] == {"step": "hangs", "limit_seconds": 0.02}
    assert fields["shutdown step failed"] == {"step": "fails"}
    assert "step is upset" in caplog.text


async def test_a_second_stop_does_not_wait_for_what_is_in_flight(supervisor: Supervisor, log: Log) -> None:
    async def hang() -> None:
        log.lines.append("waiting for answers")
        await asyncio.get_running_loop().create_future()

    supervisor.add_drain("in flight", hang, 3600.0)
    running = asyncio.ensure_future(supervisor.run())
    supervisor.stop("SIGTERM")
    await until(lambda: log.lines)
    supervisor.stop("SIGINT")
    async with asyncio.timeout(PATIENCE):
        await running
    assert log.lines == ["waiting for answers"]


async def test_a_job_that_fails_on_the_way_down_is_reported_and_not_started_again(
    supervisor: Supervisor, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    stopping = asyncio.Event()

    async def dies_late() -> None:
        await stopping.wait()
        raise RuntimeError("upset by the end")

    async def begin_to_stop() -> None:
        stopping.set()
        await until(lambda: "upset by the end" in caplog.text)

    supervisor.add("feed", dies_late)
    supervisor.add_drain("not ready", begin_to_stop, 5.0)
    supervisor.add_drain("next", log.step("next"), 1.0)
    supervisor.stop("enough")
    with caplog.at_level(logging.ERROR):
        await supervisor.run()
    assert (log.lines, supervisor.restarts.total()) == (["next"], 0)


async def test_cancelling_the_whole_ends_every_job(supervisor: Supervisor, log: Log) -> None:
    supervisor.add("feed", log.job("feed"))
    running = asyncio.ensure_future(supervisor.run())
    await until(lambda: log.lines)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert log.lines == ["feed runs", "feed over"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_the_service(supervisor: Supervisor, log: Log, number: signal.Signals) -> None:
    supervisor.add("feed", log.job("feed"))
    supervisor.stop_on_signals()
    running = asyncio.ensure_future(supervisor.run())
    await until(lambda: log.lines)
    os.kill(os.getpid(), number)
    async with asyncio.timeout(PATIENCE):
        await running
    assert log.lines == ["feed runs", "feed over"]
