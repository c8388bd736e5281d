"""How a replayed answer differs from the recorded one, in terms of what would have become of the pod."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from extender.wire.recordings.recording import Answer, Verb


class Outcome(StrEnum):
    """What differs, the gravest first.

    ``UNKNOWN``: the recording does not have the pod, so the question was not asked. ``ELSEWHERE``: no recorded node is in the
    answer. ``NARROWER``: only some are. ``WIDER``: all are, and others too. ``ORDER``: the same nodes, another one first.
    """

    UNKNOWN = "unknown"
    REJECTED = "rejected"
    ELSEWHERE = "elsewhere"
    NARROWER = "narrower"
    PASSED = "passed"
    PREEMPTION = "preemption"
    REASON = "reason"
    WIDER = "wider"
    ORDER = "order"
    SCORES = "scores"


class Difference(msgspec.Struct, frozen=True):
    """A question with another answer than recorded. ``line`` is its line in the file; ``pod`` is ``namespace/name``.

    ``why``: the labels of what rejects the recorded nodes that the replayed answer lacks. Empty where none of them is
    rejected, so that others were only preferred.
    """

    line: int
    verb: Verb
    pod: str
    uid: str
    outcome: Outcome
    recorded: Answer
    replayed: Answer
    why: tuple[str, ...] = ()


def outcome_of(recorded: Answer, replayed: Answer) -> Outcome:
    """The outcome of two answers that differ. O(nodes of both)."""
    if recorded.scores != replayed.scores:
        return Outcome.SCORES
    if recorded.victims != replayed.victims:
        return Outcome.PREEMPTION
    if recorded.passed and replayed.passed:
        return _of_passed(set(recorded.passed), set(replayed.passed))
    if recorded.passed:
        return Outcome.REJECTED
    if replayed.passed:
        return Outcome.PASSED
    return Outcome.PREEMPTION if recorded.plan != replayed.plan else Outcome.REASON


def _of_passed(recorded: set[str], replayed: set[str]) -> Outcome:
    if recorded == replayed:
        return Outcome.ORDER
    if recorded <= replayed:
        return Outcome.WIDER
    return Outcome.NARROWER if recorded & replayed else Outcome.ELSEWHERE
