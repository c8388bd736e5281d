"""Ten minutes of load and faults: nothing is wrong after any round, and nothing is kept that a round should give back.

`make soak`; SOAK_SECONDS and SOAK_SEED choose another length and other faults.
"""

from __future__ import annotations

import logging
import os
from typing import Final

import pytest

from tests.simulator.scenario.soaking import soak

SECONDS: Final = float(os.environ.get("SOAK_SECONDS", "600"))
SEED: Final = int(os.environ.get("SOAK_SEED", "1"))
SLACK: Final = 240.0  # for what comes to rest and is judged after the last round
MOST: Final = 1.5  # times as much in the last third of the rounds as in the first: a leak would make it five times


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + SLACK)
async def test_faults_and_load_for_long_leave_nothing_wrong_and_nothing_behind() -> None:
    logging.getLogger("extender").setLevel(logging.ERROR)  # pytest would keep every line about a fault
    result = await soak(SECONDS, SEED)
    grown = result.growth()
    print(f"\n{len(result.kept)} rounds, {result.placed} pods placed, seed {SEED}; faults: {dict(result.injected)}")  # noqa: T201 (for people)
    for name, first in result.kept[0].items():
        print(f"{name}: {first:.0f} -> {result.kept[-1].get(name, 0):.0f} (x{grown.get(name, 0):.2f})")  # noqa: T201 (for people)
    assert result.problems == []
    assert {name: times for name, times in grown.items() if times > MOST} == {}
    assert result.placed > 0
    assert len(result.injected) > 1


async def test_a_round_leaves_nothing_wrong() -> None:
    """The soak in small, so that it does not rot between two long ones."""
    result = await soak(0.0, seed=4)
    assert (len(result.kept), result.problems) == (1, [])
    assert result.placed > 0
