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


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        pytest.param(candidate("a", victim(1), victim(1)), candidate("b", victim(2)), id="a lower highest priority"),
        pytest.param(
            candidate("a", victim(-5)),
            candidate("b", victim(-5), victim(-10)),
            id="fewer, though the others are negative",
        ),
    ],
)
def test_a_candidate_is_preferred_for(better: Candidate, worse: Candidate) -> None:
    """Two examples; tests/parity has the choices of kube-scheduler."""
    assert best_candidates([better, worse]) == [better]
    assert best_candidates([worse, better]) == [better]


def test_the_first_victim_s_priority_is_taken_as_the_highest() -> None:
    trusted = candidate("a", victim(1), victim(9))
    assert best_candidates([trusted, candidate("b", victim(2), victim(2))]) == [trusted]


def test_equal_candidates_are_all_best() -> None:
    equal = [candidate("a", victim(1)), candidate("b", victim(1))]
    assert best_candidates([*equal, candidate("c", victim(2))]) == equal


def test_a_candidate_without_victims_is_none() -> None:
    assert best_candidates([candidate("a")]) == []
    assert best_candidates([candidate("a"), candidate("b", victim(9))]) == [candidate("b", victim(9))]
    assert best_candidates([]) == []
