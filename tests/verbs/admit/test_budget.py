"""What all policies of one object may cost together: their directives are weighed, and the first ones are applied."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.model.policies import Items, Moment, Policy, Size
from extender.verbs.admit.injection import Injection
from extender.verbs.admit.pod_fields import Changes
from extender.verbs.admit.term_product import DIRECTIVES
from extender.wire.policies.node_terms import TOLERATIONS, list_item
from tests.builders import Json
from tests.policies import policy
from tests.verbs.admit.reviewing import ask, pod, review, template_spec, verb

TOO_MUCH = "the policies before it direct all that one admission applies"


def heavy(number: int, elements: int = 90, **spec: Any) -> Policy:
    """A policy with so many tolerations of its own, the lower the number the earlier."""
    tolerations = [{"key": f"t{number}-{each}", "operator": "Exists"} for each in range(elements)]
    return policy(f"p{number:04}", priority=-number, tolerations=tolerations, **spec)


def test_policies_beyond_the_budget_are_conflicts_and_the_first_ones_are_applied() -> None:
    many = [heavy(number) for number in range(DIRECTIVES // 91 + 2)]
    admit = verb(*many)
    answer = ask(admit, pod())
    assert len(template_spec(answer.obj)["tolerations"]) == 90
    conflicts = [each for done in _changes(many) for each in done]
    assert conflicts[0] != TOO_MUCH
    assert conflicts.count(TOO_MUCH) == 2


def _changes(policies: list[Policy]) -> list[list[str]]:
    """The messages of the conflicts of each policy."""
    found = verb(*policies).admit(review(pod()))
    return [[conflict.message for conflict in each.conflicts] for each in found.changes]


@pytest.mark.parametrize("conflict_policy", ["KeepPod", "Override"])
def test_applying_the_same_policies_again_stops_at_the_same_one_and_changes_nothing(conflict_policy: str) -> None:
    """The weight is that of the policies, not of what the pod still lacks."""
    many = [heavy(number, 60, conflictPolicy=conflict_policy, schedulerName="s") for number in range(400)]
    last = policy("last", priority=-1000, priorityClassName="high")
    admit = verb(*many, last)
    once = ask(admit, pod())
    assert "priorityClassName" not in template_spec(once.obj)
    assert ask(admit, once.obj).patch == []


def test_a_policy_that_overrides_is_applied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one may have overridden what a policy gave way to, but none overrides the value of an earlier policy."""
    applied: Counter[str] = Counter()
    apply = Injection.apply

    def counted(self: Injection, given_policy: Policy, moment: Moment = Moment.ADMISSION) -> Changes:
        applied[given_policy.key.name] += 1
        return apply(self, given_policy, moment)

    monkeypatch.setattr(Injection, "apply", counted)
    overriding = [
        policy(f"p{number}", priority=-number, conflictPolicy="Override", schedulerName=f"s{number}")
        for number in range(9)
    ]
    keeping = policy("keeping", priority=5, nodeSelector={"pool": "a"}, priorityClassName="low")
    answer = ask(verb(*overriding, keeping), pod({"schedulerName": "mine", "priorityClassName": "high"}))
    assert template_spec(answer.obj)["schedulerName"] == "s0"
    assert applied == {"keeping": 2} | dict.fromkeys((f"p{number}" for number in range(9)), 1)


VALUES = st.lists(st.sampled_from("abcdef"), unique=True).map(
    lambda names: Items(list_item(TOLERATIONS, toleration(name)) for name in names)
)


def toleration(name: str) -> Json:
    """One of a key."""
    return {"key": name, "operator": "Exists"}


@given(VALUES, st.sets(st.sampled_from("abcdef")))
def test_what_a_list_lacks_is_the_same_as_when_each_element_is_looked_at(items: Items, known: set[str]) -> None:
    keys = {list_item(TOLERATIONS, toleration(name)).key for name in known}
    left = items.without(keys)
    assert list(left) == [item for item in items if item.key not in keys]
    assert left.keys == {item.key for item in left}
    assert left.size == Size(*map(sum, zip(Size(), *(item.size for item in left), strict=True)))
