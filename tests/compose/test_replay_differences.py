"""The outcome of a replayed answer says what would have become of the pod."""

from __future__ import annotations

import pytest

from extender.compose.replay import Outcome, outcome_of
from extender.wire.recordings.recording import Answer

REJECTED = Answer(reasons=("taint",), digest="a")


@pytest.mark.parametrize(
    ("recorded", "replayed", "outcome"),
    [
        (Answer(("a",)), Answer(("b", "c")), Outcome.ELSEWHERE),
        (Answer(("a", "b")), Answer(("b", "c")), Outcome.NARROWER),
        (Answer(("a",)), Answer(("b", "a")), Outcome.WIDER),
        (Answer(("a", "b")), Answer(("b", "a")), Outcome.ORDER),
        (Answer(("a",)), REJECTED, Outcome.REJECTED),
        (REJECTED, Answer(("a",)), Outcome.PASSED),
        (REJECTED, Answer(reasons=("cordoned",), digest="b"), Outcome.REASON),
        (REJECTED, Answer(reasons=("taint",), digest="a", plan=("a", "victim")), Outcome.PREEMPTION),
        (Answer(victims={"a": ("v",)}), Answer(), Outcome.PREEMPTION),
        (Answer(scores={"a": 1}), Answer(scores={"a": 2}), Outcome.SCORES),
    ],
)
def test_two_answers_have_the_outcome(recorded: Answer, replayed: Answer, outcome: Outcome) -> None:
    assert outcome_of(recorded, replayed) is outcome
