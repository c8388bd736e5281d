"""Prioritize after filter for one pod, with changes of the cluster in between (KEP-2249, Design Details: within a scheduling cycle)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extender.verbs.prioritize import prioritize_nodes, prioritize_watched
from tests.builders import Json, extender_args
from tests.deciding import filter_nodes
from tests.laws.cases import case, meets_its_case
from tests.laws.observing import WHOLE_ANSWERS, apply, built, fresh
from tests.strategies import Change, Step, histories, pods, steps


@meets_its_case
@given(histories(), pods(), st.lists(steps(), min_size=1, max_size=5))
def test_scores_are_those_of_the_cluster_as_it_is_now_among_the_nodes_that_filter_answered(
    history: list[Step], pod: Json, between: list[Step]
) -> None:
    """Counts and namespace labels are never older than filter's, and a node that filter rejected never has a score."""
    index, cluster = built(history)
    apply(index, cluster, Change("pods", "asking", pod))
    before = sorted(index.view.known)
    passed = list(filter_nodes(extender_args(pod, *before), index.view, WHOLE_ANSWERS, 0).passed)
    index.assume(extender_args(pod).pod, passed, 0.0)
    # With one node there is no choice, and a pod that has ended or is being deleted is not scored.
    shown = index.view.pod(pod["metadata"]["uid"])
    assumed = index.view.assumed_nodes(pod["metadata"]["uid"])
    case(shown is not None and not shown.terminating and assumed is not None and len(assumed) > 1)
    for step in between:
        apply(index, cluster, step)
    found = prioritize_watched(extender_args(pod, *before), index.view, WHOLE_ANSWERS)
    assert set(found) <= set(passed)
    assert found == prioritize_nodes(extender_args(pod, *passed), fresh(cluster).view, WHOLE_ANSWERS)
