"""The clock that scenarios make jump."""

import asyncio
import time

from extender.simulator.process_usage import LoopStalls
from extender.simulator.scenario.simulated_cluster import JumpingClock
from tests.fakes import until


async def test_a_jump_passes_all_that_time_at_once_and_wakes_tasks_that_sleep_past_it() -> None:
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


async def test_time_in_which_the_loop_was_held_up_is_left_out() -> None:
    found = LoopStalls()
    found.start()
    before = time.monotonic()
    time.sleep(0.3)  # noqa: ASYNC251 (a stalled loop is the case)
    after = time.monotonic()
    await until(lambda: found.without_stalls(after + 1.0) < after + 0.9)
    found.stop()
    assert found.without_stalls(before) == before
    assert found.without_stalls(after + 1.0) <= after + 1.0 - 0.2


async def test_a_beat_in_time_finds_nothing() -> None:
    now = [100.0]
    found = LoopStalls(lambda: now[0])
    found.start()
    found.stop()
    for late in (0.0, 0.04):
        now[0] = 100.02 + late
        found.check()
        assert found.without_stalls(200.0) == 200.0
    now[0] = 101.02
    found.check()
    assert found.without_stalls(200.0) == 199.0
    assert found.without_stalls(101.0) == 101.0
