"""The outcome of a replayed answer says what would have become of the pod."""

from __future__ import annotations

import pytest

from extender.compose.replay import ReplayOutcome, outcome_of
from extender.wire.recordings.recording import RecordedAnswer

REJECTED = RecordedAnswer(reasons=("taint",), digest="a")


@pytest.mark.parametrize(
    ("recorded", "replayed", "outcome"),
    [
        (RecordedAnswer(("a",)), RecordedAnswer(("b", "c")), ReplayOutcome.ELSEWHERE),
        (RecordedAnswer(("a", "b")), RecordedAnswer(("b", "c")), ReplayOutcome.NARROWER),
        (RecordedAnswer(("a",)), RecordedAnswer(("b", "a")), ReplayOutcome.WIDER),
        (RecordedAnswer(("a", "b")), RecordedAnswer(("b", "a")), ReplayOutcome.ORDER),
        (RecordedAnswer(("a",)), REJECTED, ReplayOutcome.REJECTED),
        (REJECTED, RecordedAnswer(("a",)), ReplayOutcome.PASSED),
        (REJECTED, RecordedAnswer(reasons=("cordoned",), digest="b"), ReplayOutcome.REASON),
        (REJECTED, RecordedAnswer(reasons=("taint",), digest="a", plan=("a", "victim")), ReplayOutcome.PREEMPTION),
        (RecordedAnswer(victims={"a": ("v",)}), RecordedAnswer(), ReplayOutcome.PREEMPTION),
        (RecordedAnswer(scores={"a": 1}), RecordedAnswer(scores={"a": 2}), ReplayOutcome.SCORES),
    ],
)
def test_two_answers_have_the_outcome(
    recorded: RecordedAnswer, replayed: RecordedAnswer, outcome: ReplayOutcome
) -> None:
    assert outcome_of(recorded, replayed) is outcome
