"""What is read of a condition, and which pods can be compared at all."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from extender.compose.foundation import make_index
from extender.index.counts import compiled_constraints
from extender.model.rejections import Reason
from extender.settings.configuration import default_settings
from extender.verbs.shadow import Compared, Said, is_comparable, judge_message, judge_request, read_message
from tests.builders import node, pod, term
from tests.explaining import finished

HEAD = "Unschedulable: 0/9 nodes are available:"
SHADOW = replace(default_settings("augment"), shadow=True)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            (
                f"{HEAD} 1 Insufficient cpu, 1 Too many pods, 2 node(s) had untolerated taint(s), "
                "3 node(s) didn't match pod topology spread constraints, 4 node(s) didn't match pod topology spread "
                "constraints (missing required label). no new claims to deallocate, preemption: 0/9 nodes are available: "
                "9 Preemption is not helpful for scheduling."
            ),
            Said(9, {Reason.SPREAD_SKEW: 3, Reason.SPREAD_LABEL_MISSING: 4}, 0),
        ),
        (
            f"{HEAD} 5 node(s) didn't match pod affinity rules, 4 node(s) had volume node affinity conflict.",
            Said(9, {Reason.AFFINITY: 5}, 4),
        ),
        (
            (
                f"{HEAD} 1 node(s) had untolerated taint {{node.kubernetes.io/unreachable: }}, "
                "8 node(s) didn't satisfy existing pods anti-affinity rules. preemption: 0/9 nodes ar… 0f0f"
            ),
            Said(9, {Reason.EXISTING_ANTI_AFFINITY: 8}, 0),
        ),
        (f"{HEAD} pod has unbound immediate PersistentVolumeClaims. preemption: 0/9 nodes are available.", None),
        (f"{HEAD} 1 Insufficient cpu, 3 node(s) didn't match pod topolo… 0f0f0f0f", None),
        ('SchedulerError: running Bind plugin "DefaultBinder": 0/9 nodes are available: 9 Insufficient cpu.', None),
        ("", None),
    ],
)
def test_the_counts_of_a_condition_are_read_and_one_that_was_cut_is_left_out(message: str, said: Said | None) -> None:
    assert read_message(message) == said


def test_pods_that_terms_of_policies_may_reject_are_not_compared() -> None:
    index = make_index(SHADOW)
    for each in (node("n1"), pod("loud", on="n1", apart=[term("host", app="web")])):
        index.upsert(each)
    web, other = pod("web", app="web"), pod("other", app="other")
    assert [is_comparable(each, index.view, has_policy_terms=True) for each in (web, other)] == [False, True]
    assert is_comparable(web, index.view, has_policy_terms=False)


def test_constraints_that_no_pod_has_any_more_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_constraints, "MOST_IDLE", 0)
    index = make_index(SHADOW)
    index.upsert(web := pod("web", app="web", apart=[term("host", app="web")]))
    judge_request(web, (), index.view)
    assert index.counts.shadow is not None
    assert len(index.counts.shadow) == 1
    index.delete(web)
    assert len(index.counts.shadow) == 0


def test_where_neither_side_counts_a_reason_of_ours_nothing_is_compared() -> None:
    index = make_index(SHADOW)
    index.upsert(node("n0"))
    assert finished(judge_message(pod("plain"), Said(1, {}, 1), index.view)) == Compared()
    for number in range(300):
        index.upsert(node(f"n{number}"))
    assert list(judge_message(pod("plain"), Said(300, {}, 300), index.view)) == [], "no node is looked at"
