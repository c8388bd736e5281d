"""Work for people is done in slices, counted by what became of it, and gives way to requests of the scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest

from extender.model.answers.explanations import Cause, NotExplained
from extender.tasks.sliced_work import Places, SlicedWork, Traffic
from tests.fakes import FakeClock, until

Steps = Generator[None, None, list[str]]


def steps(done: list[str], count: int = 3) -> Steps:
    """Work that notes each of its steps."""
    for _ in range(count):
        done.append("step")
        yield
    return done


def refusing() -> Steps:
    """Work that finds that there is no such pod."""
    yield
    raise NotExplained(Cause.UNKNOWN, "pod a/b is not known")


def failing() -> Steps:
    """Work with a bug."""
    yield
    raise ZeroDivisionError


def counted(work: SlicedWork) -> dict[tuple[str, str], int]:
    """The outcomes that are not zero."""
    return {key: count for key, count in work.outcomes.items() if count}


async def test_what_becomes_of_work_is_counted_and_so_is_the_time_of_its_slices() -> None:
    work = SlicedWork(FakeClock(step=0.001))
    assert await work.run(steps([]), 1.0, "explanation") == ["step"] * 3
    for kind, each in (("page", refusing()), ("event", failing())):
        with pytest.raises((NotExplained, ZeroDivisionError)):
            await work.run(each, 1.0, "page" if kind == "page" else "event")
    with pytest.raises(NotExplained, match=r"the explanation would take more than 0\.002 s"):
        await work.run(steps([], 9), 0.002, "explanation")
    places = Places(1, "page", work)
    with places, pytest.raises(NotExplained, match="1 other pages are wanted already"), places:
        pass
    assert counted(work) == {
        ("explanation", "done"): 1,
        ("explanation", "too_expensive"): 1,
        ("page", "unknown"): 1,
        ("page", "busy"): 1,
        ("event", "failed"): 1,
    }
    assert 0.005 < work.seconds["explanation"] < 0.02
    assert work.seconds["event"] > 0


async def test_work_whose_client_is_gone_is_counted_as_abandoned() -> None:
    clock = FakeClock(step=0.001)
    work = SlicedWork(clock)
    task = asyncio.create_task(work.run(steps([], 1000), 99.0, "page"))
    await until(lambda: clock.slept)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert counted(work) == {("page", "abandoned"): 1}


async def test_a_slice_begins_once_no_request_is_in_flight() -> None:
    clock = FakeClock(step=0.001)
    traffic, done = Traffic(clock), list[str]()
    work = SlicedWork(clock, traffic)
    traffic.begin()
    traffic.begin()
    task = asyncio.create_task(work.run(steps(done), 1.0, "page"))
    await until(lambda: done)
    for _ in range(50):
        await asyncio.sleep(0)
    assert done == ["step"]
    traffic.end()
    await asyncio.sleep(0)
    assert done == ["step"]
    traffic.end()
    await until(lambda: len(done) == 2)
    assert clock.slept == []
    traffic.begin()
    traffic.end()
    assert await task == ["step"] * 3


async def test_work_goes_on_beside_a_request_that_waits_for_long() -> None:
    clock = FakeClock(step=0.001)
    traffic = Traffic(clock)
    traffic.begin()
    assert await SlicedWork(clock, traffic).run(steps([]), 1.0, "page") == ["step"] * 3
    assert clock.slept == []


async def test_some_time_after_the_last_answer_work_makes_short_pauses_again() -> None:
    clock = FakeClock(step=0.001)
    traffic = Traffic(clock)
    traffic.begin()
    traffic.end()
    clock.time += 0.3
    await SlicedWork(clock, traffic).run(steps([]), 1.0, "page")
    assert set(clock.slept) == {0.003}
