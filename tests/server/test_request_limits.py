"""Deadlines of requests, and the turns in which large bodies are decoded."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import pairwise

import pytest

from extender.server.request_checks import Deadline, Deadlines
from extender.server.transport.turns import Turns
from tests.fakes import PATIENCE


async def within(deadlines: Deadlines, goes_on: asyncio.Event) -> str:
    """How a request ends that waits for something."""
    try:
        with Deadline(deadlines):
            await goes_on.wait()
    except TimeoutError:
        return "timed out"
    except asyncio.CancelledError:
        return "cancelled"
    return "answered"


async def test_requests_that_are_late_end_and_those_before_and_after_do_not() -> None:
    deadlines, now, never = Deadlines(0.02), asyncio.Event(), asyncio.Event()
    now.set()
    async with asyncio.timeout(PATIENCE):
        for _ in range(2):  # the timer that ended the first ones is armed again for the others
            ends = await asyncio.gather(*(within(deadlines, event) for event in (now, never, now, never)))
            assert ends == ["answered", "timed out", "answered", "timed out"]


async def test_a_request_that_is_cancelled_for_another_reason_is_not_late() -> None:
    deadlines, never = Deadlines(PATIENCE), asyncio.Event()
    task = asyncio.create_task(within(deadlines, never))
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "cancelled"


async def test_many_deadlines_share_a_timer() -> None:
    deadlines, armed = Deadlines(PATIENCE), list[float]()
    loop, now = asyncio.get_running_loop(), asyncio.Event()
    now.set()
    call_at = loop.call_at

    def counting(when: float, *args: object) -> asyncio.TimerHandle:
        armed.append(when)
        return call_at(when, *args)  # type: ignore[arg-type] # handed on as it came

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "call_at", counting)
        for _ in range(100):
            assert await within(deadlines, now) == "answered"
    assert len(armed) == 1


async def test_long_work_is_done_one_piece_in_each_iteration_of_the_loop() -> None:
    turns, decoded = Turns(), list[int]()

    async def decode(number: int) -> None:
        await turns.take()
        decoded.append(number)

    tasks = [asyncio.create_task(decode(number)) for number in range(5)]
    await asyncio.sleep(0)
    assert decoded == [0], "one that is alone does not wait"
    tasks[2].cancel()
    counts = []
    for _ in range(10):
        await asyncio.sleep(0)
        counts.append(len(decoded))
    assert decoded == [0, 1, 3, 4]
    assert all(after - before <= 1 for before, after in pairwise(counts))
    with suppress(asyncio.CancelledError):
        await tasks[2]
    await asyncio.wait_for(decode(5), PATIENCE)
    assert decoded[-1] == 5


async def test_several_pieces_of_shorter_work_begin_in_one_iteration_and_the_cancelled_take_no_turn() -> None:
    turns, begun = Turns(2), list[int]()

    async def begin(number: int) -> None:
        await turns.take()
        begun.append(number)

    tasks = [asyncio.create_task(begin(number)) for number in range(7)]
    await asyncio.sleep(0)
    assert begun == [0, 1]
    tasks[2].cancel()
    counts = [2]
    while len(begun) < 6:
        await asyncio.sleep(0)
        counts.append(len(begun))
    assert begun == [0, 1, 3, 4, 5, 6]
    assert {after - before for before, after in pairwise(counts)} <= {0, 2}
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_is_half_done_goes_ahead_of_what_has_not_begun() -> None:
    turns, done = Turns(), list[str]()

    async def work(name: str) -> None:
        await turns.take()
        done.append(f"{name} decoded")
        await turns.take(ahead=True)
        done.append(f"{name} decided")

    await asyncio.gather(*(work(name) for name in "abc"))
    assert done == [f"{name} {step}" for name in "abc" for step in ("decoded", "decided")]
