"""The heartbeat: notices a loop that stands still, and what is to blame."""

import asyncio
import gc
import time

from tests.fakes import PATIENCE
from tests.tools.bench.service import Collections, Heartbeat, timed_steps


async def _with_heartbeat(block: float, *, by_work: bool) -> dict[str, float]:
    heart = Heartbeat()
    beating = asyncio.create_task(heart.beat())
    await asyncio.sleep(0)
    used = time.thread_time()
    if by_work:
        while time.thread_time() - used < block:
            pass
    else:
        time.sleep(block)  # noqa: ASYNC251 (the pause that is to be noticed)
    async with asyncio.timeout(PATIENCE):
        while not (figures := heart.figures()):  # noqa: ASYNC110 (a heartbeat has no event)
            await asyncio.sleep(0)
    beating.cancel()
    return figures


async def test_our_own_work_is_a_pause_by_both_measures() -> None:
    figures = await _with_heartbeat(0.1, by_work=True)
    assert figures["pause.max"] > 50
    assert figures["pauseWall.max"] >= figures["pause.max"]


async def test_standing_still_without_working_is_a_pause_by_the_clock_only() -> None:
    figures = await _with_heartbeat(0.1, by_work=False)
    assert figures["pauseWall.max"] > 50
    assert figures["pause.max"] < 50


async def test_figures_begin_anew_each_time() -> None:
    heart = Heartbeat()
    assert heart.figures() == {}


def test_collections_are_timed_since_the_last_call() -> None:
    before = list(gc.callbacks)
    try:
        collections = Collections()
        gc.collect()
        assert collections.figures()["gc.max"] > 0
        assert collections.figures() == {}
    finally:
        gc.callbacks[:] = before


def test_the_steps_of_an_audit_are_timed_one_by_one() -> None:
    found, figures = timed_steps([list, lambda: ["wrong"], list])
    assert (found, figures["auditSteps"]) == (["wrong"], 3)
    assert figures["auditSeconds"] * 1000 >= figures["auditStep.max"] > 0
