"""The law of the states, in the release itself: whatever a policy says and whatever fails, no step of a group is one that the table forbids."""

from __future__ import annotations

import pytest

from extender.verbs.release import states
from extender.verbs.release.states import STATES
from tests.tasks.release.any_policy import Transitions, play


async def test_the_release_makes_the_transitions_of_the_table_under_any_policy_whatever_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A forbidden one is an error that `GroupReconciler.failures` counts."""
    made = Transitions()
    monkeypatch.setattr(states, "advance", made.advance)
    for seed in range(25):
        await play(seed)
    reached = {after for _, _, after in made}
    assert {state.__name__ for state in STATES if state not in reached} == set()
