"""Answers in the form in which a recording has them, so that those of two runs can be compared.

The texts of a redacted recording are not comparable, as they may have names. There nodes are counted by reason instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import orjson
from msgspec import Struct

from extender.model.preemption import Candidate, PreemptionPlan
from extender.model.rejections import Reason
from extender.wire.extender_v1 import FilterResult, encode_filter

_DIGEST_BYTES: Final = 8
_ERROR: Final = "error"  # for the text of an error in a redacted recording
_FAILED: Final = ("FailedNodes", "FailedAndUnresolvableNodes")
_REASON_TEXTS: Final = frozenset(reason.text for reason in Reason)


class Answer(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What was answered, in a form that two runs can be compared by.

    ``passed`` are the names of nodes that passed filter, best first. ``reasons`` are the labels of why nodes were rejected,
    ``digest`` is a hash of the rejection texts of all nodes. ``plan``: the node of a preemption and then the UIDs of its
    victims. ``scores`` by node are those of prioritize, ``victims`` the UIDs by node of the candidates that preempt answers.
    """

    passed: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    error: str = ""
    digest: str = ""
    plan: tuple[str, ...] = ()
    scores: dict[str, int] = {}
    victims: dict[str, tuple[str, ...]] = {}


def filter_answer(result: FilterResult, plan: PreemptionPlan | None, *, redacted: bool = False) -> Answer:
    """What a filter result is compared by. ``redacted``: without the texts, which may have names. O(rejected nodes)."""
    reasons = tuple(sorted(reason.label for reason in result.reasons))
    if redacted:
        digest = "" if result.passed or result.error else _digest(_nodes_by_reason(result))
        return Answer(tuple(result.passed), reasons, _ERROR if result.error else "", digest, _planned(plan))
    digest = "" if result.passed or result.error else _digest(orjson.loads(encode_filter(result)))
    return Answer(tuple(result.passed), reasons, result.error, digest, _planned(plan))


def _digest(found: object) -> str:
    body = orjson.dumps(found, option=orjson.OPT_SORT_KEYS)
    return blake2b(body, digest_size=_DIGEST_BYTES).hexdigest()


def _nodes_by_reason(result: FilterResult) -> dict[str, int]:
    """How many nodes have each text of a reason; all other texts are one."""
    failed = orjson.loads(encode_filter(result))
    texts = [text for name in _FAILED for text in (failed.get(name) or {}).values()]
    return Counter(text if text in _REASON_TEXTS else "" for text in texts)


def preemption_answer(candidates: Sequence[Candidate], plan: PreemptionPlan | None) -> Answer:
    """What an answer of preempt is compared by. O(victims)."""
    victims = {each.node: tuple(victim.uid for victim in each.victims) for each in candidates}
    return Answer(plan=_planned(plan), victims=victims)


def _planned(plan: PreemptionPlan | None) -> tuple[str, ...]:
    return () if plan is None else (plan.node, *(each.uid for each in plan.victims))
