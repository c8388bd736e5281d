"""The pace of writes: a burst, then one after the other."""

from __future__ import annotations

from extender.tasks.fair_queue import RateLimiter
from tests.fakes import FakeClock


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
