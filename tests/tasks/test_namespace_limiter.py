"""The pace of writes for objects of many namespaces, which take turns."""

from __future__ import annotations

import asyncio

import pytest

from extender.model.bounded import Steps
from extender.tasks.fair_queue import RateLimiter, in_turns, turns_of_work
from tests.fakes import FakeClock, until


class Writes:
    """Notes which holder writes, in order and with the time; every write ends when ``hold`` is set."""

    def __init__(self, at_once: int, per_second: float = 10.0) -> None:
        self.clock = FakeClock()
        self.limiter = RateLimiter(self.clock, at_once, per_second)
        self.begun: list[tuple[str, float]] = []
        self.under_way = 0
        self.most = 0
        self.hold = asyncio.Event()
        self.hold.set()

    async def write(self, namespace: str) -> None:
        async with self.limiter.acquire(namespace):
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            self.begun.append((namespace, self.clock.time))
            await self.hold.wait()
            await asyncio.sleep(0)
            self.under_way -= 1

    async def all(self, *namespaces: str) -> str:
        await asyncio.gather(*map(self.write, namespaces))
        return "".join(namespace for namespace, _ in self.begun)

    def seconds(self) -> list[float]:
        return [round(at - self.begun[0][1], 6) for _, at in self.begun]


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


async def taken(rate_limiter: RateLimiter, clock: FakeClock, times: int) -> list[float]:
    """When each turn began, in seconds since the first."""
    begun = []
    for _ in range(times):
        async with rate_limiter.acquire():
            begun.append(clock.time)
    return [round(at - begun[0], 6) for at in begun]


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


class Work:
    """Notes which namespace has taken a step."""

    def __init__(self) -> None:
        self.turns = turns_of_work(FakeClock())
        self.done: list[str] = []

    def steps(self, namespace: str, count: int) -> Steps[str]:
        for number in range(count):
            self.done.append(namespace)
            if number < count - 1:
                yield
        return namespace

    def start(self, namespace: str, count: int = 1) -> asyncio.Task[str]:
        return asyncio.create_task(in_turns(self.steps(namespace, count), self.turns, namespace))


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
