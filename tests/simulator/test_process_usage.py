"""What other processes of a real cluster would do counts apart: a block once, of a coroutine its steps only."""

from __future__ import annotations

import asyncio
import time

import pytest

from extender.simulator.process_usage import OtherWork
from tests.fakes import until


def spend(seconds: float) -> None:
    """Uses processor time of this thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_a_block_within_a_block_counts_once() -> None:
    work, begun = OtherWork(), time.thread_time()
    with work.counted():
        spend(0.01)
        with work.counted():
            spend(0.01)
    assert 0.02 <= work.seconds <= time.thread_time() - begun


async def test_of_a_coroutine_each_step_counts_and_not_what_happens_meanwhile() -> None:
    work, going_on = OtherWork(), asyncio.Event()

    async def steps() -> str:
        spend(0.01)
        await going_on.wait()
        spend(0.01)
        return "done"

    running = asyncio.create_task(work.of(steps()))
    await until(lambda: work.seconds > 0)
    before = work.seconds
    spend(0.05)
    assert work.seconds == before
    going_on.set()
    assert await running == "done"
    assert work.seconds >= before + 0.01


async def test_errors_and_cancellation_reach_the_work_and_its_caller() -> None:
    work, caught = OtherWork(), []

    async def failing() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            caught.append("cancelled")
            raise

    async def handling(future: asyncio.Future[None]) -> str:
        with pytest.raises(OSError, match="broken"):
            await future
        return "handled"

    running = asyncio.create_task(work.of(failing()))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert caught == ["cancelled"]

    unbegun = asyncio.create_task(work.of(failing()))  # which would warn of a coroutine that was never awaited
    unbegun.cancel()
    with pytest.raises(asyncio.CancelledError):
        await unbegun

    future = asyncio.get_running_loop().create_future()
    running_on = asyncio.create_task(work.of(handling(future)))
    future.set_exception(OSError("broken"))
    assert await running_on == "handled"
    assert await work.of(asyncio.sleep(0, "awaited")) == "awaited"
