"""A figure that takes long is measured in slices, and a scrape reads what the last round has found."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

from extender.tasks.index_upkeep import EVERY_SECONDS, FIGURE_PAUSE_SECONDS, SlicedFigure
from tests.fakes import FakeClock, until


async def test_a_round_pauses_after_each_slice_and_is_read_when_it_is_complete() -> None:
    clock, seen = FakeClock(), list[int]()

    def measure() -> Generator[None, None, int]:
        for _ in range(4):
            seen.append(figure.value)
            clock.time += 0.005  # each step is a slice
            yield
        return 7

    figure = SlicedFigure(measure, clock, 0)
    running = asyncio.create_task(figure.run())
    await until(lambda: figure.value == 7)
    running.cancel()
    assert seen[:4] == [0, 0, 0, 0]
    assert clock.slept[:4] == [FIGURE_PAUSE_SECONDS] * 4


async def test_rounds_that_take_long_are_rare() -> None:
    clock = FakeClock()
    lasting = [0.001, 2.0]

    def measure() -> Generator[None, None, int]:
        clock.time += lasting[0]
        yield
        return 1

    for number, expected in enumerate((EVERY_SECONDS, 200.0)):
        lasting[0] = (0.001, 2.0)[number]
        clock.slept.clear()
        running = asyncio.create_task(SlicedFigure(measure, clock, 0).run())
        await until(lambda: [each for each in clock.slept if each != FIGURE_PAUSE_SECONDS])
        running.cancel()
        assert round(next(each for each in clock.slept if each != FIGURE_PAUSE_SECONDS), 3) == expected
