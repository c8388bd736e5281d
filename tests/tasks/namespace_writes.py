"""Writes of several namespaces through one limiter."""

from __future__ import annotations

import asyncio

from extender.model.bounded import Steps
from extender.tasks.fair_queue import RateLimiter, in_turns, turns_of_work
from tests.fakes import FakeClock


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


async def taken(rate_limiter: RateLimiter, clock: FakeClock, times: int) -> list[float]:
    """When each turn began, in seconds since the first."""
    begun = []
    for _ in range(times):
        async with rate_limiter.acquire():
            begun.append(clock.time)
    return [round(at - begun[0], 6) for at in begun]


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
