"""After any sequence of changes every running count equals a recount from the objects alone."""

from __future__ import annotations

import pytest
from hypothesis import given

from extender.index.audit import audit, audit_steps
from extender.index.cluster import ClusterIndex
from extender.index.counts import compiled_constraints
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings
from tests.laws.observing import SYSTEM_DEFAULTS, WHOLE_ANSWERS, Cluster, apply, fresh, requested_pods, seen
from tests.strategies import Step, histories


@given(histories())
def test_counts_are_true_after_each_step(history: list[Step]) -> None:
    index, cluster = ClusterIndex(WHOLE_ANSWERS.rules, counts_of_rules()), Cluster()
    for step in history:
        apply(index, cluster, step)
        assert audit(index) == []


@pytest.mark.parametrize("chosen", [WHOLE_ANSWERS, SYSTEM_DEFAULTS], ids=["List defaults", "System defaults"])
@given(history=histories())
def test_answers_are_those_of_an_index_that_was_never_changed(chosen: Settings, history: list[Step]) -> None:
    index, cluster = ClusterIndex(chosen.rules, counts_of_rules()), Cluster()
    for step in history:
        apply(index, cluster, step)
    pods = requested_pods(history)
    assert seen(index, pods, chosen) == seen(fresh(cluster, chosen), pods, chosen)


@given(history=histories())
def test_counts_are_true_while_requests_are_forgotten_for_new_ones(history: list[Step]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_constraints, "MOST_COMPILED", 1)
        index, cluster = ClusterIndex(WHOLE_ANSWERS.rules, counts_of_rules()), Cluster()
        for step in history:
            apply(index, cluster, step)
            assert audit(index) == []
            assert index.statistics()["compiled_constraints"] <= 1
        pods = requested_pods(history)
        assert seen(index, pods) == seen(fresh(cluster), pods)


@pytest.mark.parametrize("most", [1, compiled_constraints.MOST_COMPILED], ids=["questions are forgotten", "none is"])
@given(before=histories(), after=histories())
def test_an_audit_finds_nothing_wrong_with_what_changes_between_its_steps(
    most: int, before: list[Step], after: list[Step]
) -> None:
    """Groups given back, made anew or not yet corrected for a relabelled namespace have not drifted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_constraints, "MOST_COMPILED", most)
        index, cluster = ClusterIndex(WHOLE_ANSWERS.rules, counts_of_rules()), Cluster()
        for step in before:
            apply(index, cluster, step)
        checks = list(audit_steps(index))
        for step in after:
            apply(index, cluster, step)
        assert [line for check in checks for line in check()] == []
        index.rebuild()
        assert [line for check in checks for line in check()] == []
