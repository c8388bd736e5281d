"""The pace of writes for objects of many namespaces, which take turns."""

from __future__ import annotations

import asyncio

import pytest

from extender.model.bounded import Steps
from extender.tasks.fair_queue import RateLimiter, in_turns
from tests.fakes import FakeClock, until
from tests.tasks.namespace_writes import Work, Writes, taken


async def test_after_a_burst_writes_come_at_the_given_rate_and_only_so_many_at_once() -> None:
    writes = Writes(2)
    await writes.clock.sleep(100)
    await writes.all(*"aaaaa")
    assert (writes.seconds(), writes.most <= 2) == ([0.0, 0.0, 0.1, 0.2, 0.3], True)
    await writes.clock.sleep(100)
    del writes.begun[:]
    await writes.all(*"aaaa")
    assert writes.seconds() == [0.0, 0.0, 0.1, 0.2]


async def test_the_namespace_that_used_least_is_first_and_equals_take_turns() -> None:
    """The first one begins at once, before the others wait."""
    assert await Writes(1).all(*"aaaaaabbc") == "abcabaaaa"


async def test_what_was_used_long_ago_counts_for_nothing() -> None:
    writes = Writes(1)
    await writes.all(*"aaaaaaaa")
    await writes.clock.sleep(3600)
    del writes.begun[:]
    assert await writes.all(*"babab") in ("babab", "baabb", "babba")


async def test_one_that_comes_late_waits_for_one_of_the_others_and_not_for_all_that_wait() -> None:
    writes = Writes(2)
    tenants = [asyncio.ensure_future(writes.write("a")) for _ in range(1000)]
    await until(lambda: len(writes.begun) >= 10)
    before = len(writes.begun)
    await asyncio.gather(*(writes.write("b") for _ in range(5)))
    order = [namespace for namespace, _ in writes.begun[before:]]
    assert order.index("b") <= 2, "those that had a place already"
    assert order[order.index("b") :][:5] == ["b"] * 5, "it has used less than the others"
    await asyncio.gather(*tenants)


async def test_a_write_that_is_cancelled_gives_its_place_back() -> None:
    writes = Writes(1)
    writes.hold.clear()
    held = asyncio.ensure_future(writes.write("a"))
    waits = [asyncio.ensure_future(writes.write("b")) for _ in range(3)]
    await asyncio.sleep(0)
    for each in waits[:2]:
        each.cancel()
    held.cancel()
    await asyncio.gather(held, *waits[:2], return_exceptions=True)
    writes.hold.set()
    await waits[2]
    assert [namespace for namespace, _ in writes.begun] == ["a", "b"] or len(writes.begun) == 1
    before = len(writes.begun)
    await writes.all("c")
    assert len(writes.begun) == before + 1


async def test_a_write_that_is_cancelled_in_the_moment_of_its_turn_gives_its_place_back() -> None:
    writes = Writes(1)
    first = asyncio.ensure_future(writes.write("a"))
    await asyncio.sleep(0)  # it has the place, and has not been told yet or waits for the rate
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert await writes.all("b") == "b"


async def test_it_is_busy_while_a_place_is_held_or_waited_for() -> None:
    writes = Writes(1)
    assert writes.limiter.last_busy == float("-inf")
    writes.hold.clear()
    held = asyncio.ensure_future(writes.write("a"))
    await asyncio.sleep(0)
    writes.clock.time += 5
    assert writes.limiter.last_busy == writes.clock.time
    writes.hold.set()
    await held
    ended = writes.clock.time
    writes.clock.time += 5
    assert writes.limiter.last_busy == ended


# -- The pace of writes: a burst, then one after the other -------------------------------------------------------------


async def test_after_a_burst_turns_come_at_the_given_rate() -> None:
    clock = FakeClock()
    rate_limiter = RateLimiter(clock, 2, 10.0)
    await clock.sleep(100)
    assert await taken(rate_limiter, clock, 5) == [0.0, 0.0, 0.1, 0.2, 0.3]


async def test_time_that_passes_unused_gives_another_burst_and_no_more() -> None:
    clock = FakeClock()
    rate_limiter = RateLimiter(clock, 2, 10.0)
    await taken(rate_limiter, clock, 5)
    await clock.sleep(100)
    assert await taken(rate_limiter, clock, 4) == [0.0, 0.0, 0.1, 0.2]


# -- Work in turns: one step in an iteration of the event loop ---------------------------------------------------------


async def test_work_of_one_namespace_comes_before_the_second_work_of_another() -> None:
    work = Work()
    many = [work.start("hostile") for _ in range(50)]
    assert await work.start("honest") == "honest"
    assert work.done[:2] == ["hostile", "honest"]
    assert await asyncio.gather(*many) == ["hostile"] * 50


async def test_work_of_many_steps_is_not_all_before_that_of_others() -> None:
    work = Work()
    long = work.start("hostile", 1000)
    await asyncio.gather(*(work.start("honest") for _ in range(3)))
    assert (work.done.count("honest"), work.done.count("hostile") <= 4) == (3, True)
    assert await long == "hostile"


async def test_what_else_the_loop_does_waits_for_one_step_in_an_iteration() -> None:
    """As a call of the scheduler does, which takes some iterations to be read, answered and sent."""
    work = Work()
    many = [work.start("hostile", 3) for _ in range(100)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(work.done) <= 5
    await asyncio.gather(*many)
    assert len(work.done) == 300


async def test_work_that_fails_or_is_cancelled_gives_its_place_back() -> None:
    def fails() -> Steps[str]:
        yield
        raise ValueError("no")

    work = Work()
    with pytest.raises(ValueError, match="no"):
        await in_turns(fails(), work.turns, "a")
    running, waiting = work.start("a", 10**6), work.start("b")
    await asyncio.sleep(0)
    running.cancel()
    waiting.cancel()
    assert await work.start("c") == "c"
