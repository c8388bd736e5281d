"""Which candidate node a preemption prefers: five criteria, one after the other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from extender.model.preemption import Candidate, Victim, best_candidates

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def victim(priority: int = 0, started: int = 0) -> Victim:
    """A victim of this priority that started so many minutes after noon."""
    return Victim(f"{priority}-{started}", priority, NOON + timedelta(minutes=started))


def candidate(node: str, *victims: Victim, violations: int = 0) -> Candidate:
    return Candidate(node, victims, violations)


ONE, TWO = candidate("a", victim(1)), candidate("b", victim(2))


@pytest.mark.parametrize(
    ("candidates", "best"),
    [
        # Examples; tests/parity has the choices of kube-scheduler.
        ([candidate("a", victim(1), victim(1)), TWO], "a"),
        ([candidate("a", victim(-5)), candidate("b", victim(-5), victim(-10))], "a"),
        ([candidate("a", victim(1), victim(9)), candidate("b", victim(2), victim(2))], "a"),
        ([ONE, candidate("b", victim(1)), candidate("c", victim(2))], "ab"),
        ([candidate("a")], ""),
        ([candidate("a"), candidate("b", victim(9))], "b"),
        ([], ""),
    ],
    ids=[
        *("a lower highest priority", "fewer victims, though the others are negative"),
        *("the first victim has the highest priority", "equal ones", "without victims", "with and without", "none"),
    ],
)
def test_the_best_candidates(candidates: list[Candidate], best: str) -> None:
    assert [found.node for found in best_candidates(candidates)] == [*best]
    assert sorted(found.node for found in best_candidates(candidates[::-1])) == [*best]
