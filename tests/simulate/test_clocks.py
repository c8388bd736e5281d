"""The clock that scenarios make jump."""

import asyncio
import time

from extender.simulate.clocks import JumpingClock
from tests.fakes import until


async def test_a_jump_passes_all_that_time_at_once_and_wakes_who_sleeps_past_it() -> None:
    clock, woken = JumpingClock(), list[str]()

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    tasks = [asyncio.create_task(sleep("short", 60.0)), asyncio.create_task(sleep("long", 7200.0))]
    before = clock.now()
    await asyncio.sleep(0)
    clock.jump(600.0)
    await until(lambda: woken == ["short"])
    assert 600.0 <= clock.now() - before < 700.0
    clock.jump(7000.0)
    await until(lambda: woken == ["short", "long"])
    await asyncio.gather(*tasks)


async def test_without_jumps_it_is_the_monotonic_clock() -> None:
    clock = JumpingClock()
    before = time.monotonic()
    await clock.sleep(0.02)
    assert before + 0.02 <= clock.now() <= time.monotonic()
    await clock.sleep(0)
