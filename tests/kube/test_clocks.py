"""The time of day that decisions compare dates with: a jump of it counts once it has lasted for a minute."""

from __future__ import annotations

import pytest

from extender.kube.timing import WallClock
from tests.fakes import FakeClock

NOON = 1_767_268_800.0


class Day:
    """A clock of the day that can be set, read once a second beside one that cannot."""

    def __init__(self) -> None:
        self.clock, self.set_by = FakeClock(), 0.0
        self.begun = self.clock.now()
        self.wall = WallClock(self.clock, lambda: NOON + self.clock.now() - self.begun + self.set_by)

    def after(self, seconds: float) -> float:
        """The seconds since noon that it says then."""
        for _ in range(round(seconds)):
            self.clock.time += 1.0
            self.wall.seconds()
        return self.wall.seconds() - NOON


@pytest.mark.parametrize("jump", [3600.0, -3600.0, 0.7])
def test_a_jump_counts_once_it_has_lasted_for_a_minute(jump: float) -> None:
    day = Day()
    assert day.after(10) == 10
    day.set_by = jump
    assert day.after(60) == 70
    assert day.after(2) == pytest.approx(72 + jump)
    assert day.wall.utc().timestamp() == pytest.approx(NOON + 72 + jump)


def test_jumps_that_are_taken_back_do_not_add_up() -> None:
    day = Day()
    for _ in range(10):
        day.set_by = 3600.0
        day.after(30)
        day.set_by = 0.0
        day.after(1)
    assert day.wall.seconds() - NOON == 310


def test_a_clock_that_is_slewed_is_followed_at_once() -> None:
    day = Day()
    for _ in range(100):
        day.set_by += 0.05
        assert day.after(1) == pytest.approx(day.clock.now() - day.begun + day.set_by)
