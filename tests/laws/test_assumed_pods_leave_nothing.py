"""Pods that count by our answer alone, among all other changes: counts stay true, and what ends leaves nothing behind."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from hypothesis import event, given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.index.claims.assumed import AssumptionTimeouts
from extender.index.cluster import ClusterIndex
from extender.index.view import ClusterView
from extender.model.objects import Pod
from tests.builders import Json
from tests.laws.cases import case, meets_its_case
from tests.laws.observing import (
    WHOLE_ANSWERS,
    Cluster,
    answers_of,
    apply,
    built,
    fresh,
    pending,
    requested_pods,
    seen,
    shape_of,
    verdicts_of,
)
from tests.strategies import (
    NODE_NAMES,
    POD_NAMES,
    Change,
    Step,
    decoded,
    histories,
    histories_with_room,
    mostly_linked,
    pods,
    steps,
)

# A pod that was let through, and the nodes that were answered for it; empty: every assumed pod is in doubt.
Answer = tuple[Json, list[str]] | tuple[()]

ANSWERS: st.SearchStrategy[Answer] = st.one_of(
    st.tuples(
        st.sampled_from(POD_NAMES).flatmap(pods),
        st.lists(st.sampled_from((*NODE_NAMES, "ghost")), unique=True, max_size=3),
    ),
    st.just(()),
)
DOUBTING = AssumptionTimeouts(expiry=inf, failure_grace=inf, doubt=1.0)
MIXED = st.lists(st.one_of(steps(), steps(), ANSWERS), max_size=12)


def _assume(index: ClusterIndex, answer: Answer) -> None:
    if not answer:
        index.assumed.review(1.0, DOUBTING)
        return
    body, names = answer
    pod = decoded("pods", body)
    assert isinstance(pod, Pod)
    index.assume(pod, names, now=0.0)


def _take(index: ClusterIndex, cluster: Cluster, step: Step | Answer) -> None:
    if isinstance(step, tuple):
        _assume(index, step)
    else:
        apply(index, cluster, step)


@given(histories(4), MIXED)
def test_counts_are_true_while_pods_are_assumed_and_settled(history: list[Step], more: Sequence[Step | Answer]) -> None:
    index, cluster = built(history)
    for step in more:
        _take(index, cluster, step)
        assert audit(index) == []
        places: dict[str, dict[str, Pod]] = {}
        for pod, nodes, _ in index.view.undetermined():
            for node in nodes:
                places.setdefault(node, {})[pod.uid] = pod
        assert index.view.undetermined_on() == places


def _after(history: list[Step], more: Sequence[Step | Answer]) -> tuple[ClusterIndex, Cluster, list[Json]]:
    """The index, the cluster, and the pods of all requests."""
    index, cluster = built(history)
    for step in more:
        _take(index, cluster, step)
    return index, cluster, requested_pods([*history, *(step for step in more if not isinstance(step, tuple))])


@given(histories(4), MIXED)
def test_assumptions_that_have_ended_leave_nothing_behind(history: list[Step], more: Sequence[Step | Answer]) -> None:
    index, cluster, requested = _after(history, more)
    index.assumed.review(1.0, AssumptionTimeouts(expiry=0.0, failure_grace=0.0))
    assert index.statistics()["assumed_pods"] == 0
    assert audit(index) == []
    assert seen(index, requested) == seen(fresh(cluster), requested)


@given(histories(4), MIXED)
def test_what_is_pending_does_not_depend_on_what_came_before(
    history: list[Step], more: Sequence[Step | Answer]
) -> None:
    index, cluster, requested = _after(history, more)
    other = fresh(cluster)
    for assumed in index.assumed.held.values():
        other.assume(assumed.pod, assumed.nodes, now=0.0 if assumed.doubted else 1.0)
    other.assumed.review(1.0, DOUBTING)
    for pod in requested:
        assert _pending(index.view, pod) == _pending(other.view, pod)


def _pending(view: ClusterView, pod: Json) -> object:
    """For each group of the filter that counts undetermined pods: how many, and where they may stand."""
    compiled = view.compiled(shape_of(pod))
    groups = [group for group in compiled.filter_groups() if group.undetermined]
    places = [
        [sorted((group.key.value(d), n) for d, n in part.items()) for part in view.expected(group)] for group in groups
    ]
    found = [(g.key.key, g.undetermined, at) for g, at in zip(groups, places, strict=True)]
    return view.is_undetermined(compiled), sorted(found)


@given(histories(), pods("p9"), st.sampled_from(NODE_NAMES), pods())
def test_a_pod_assumed_on_one_node_counts_as_if_it_stood_there(
    history: list[Step], coming: Json, node: str, incoming: Json
) -> None:
    index, cluster = built(history)
    coming = pending(coming)
    coming["metadata"].pop("deletionTimestamp", None)
    _assume(index, (coming, [node]))
    cluster.put(Change("pods", "p9", {**coming, "spec": {**coming["spec"], "nodeName": node}}))
    assert verdicts_of(index.view, incoming) == verdicts_of(fresh(cluster).view, incoming)


@meets_its_case
@given(
    histories_with_room(),
    mostly_linked("p9"),
    st.lists(st.sampled_from(NODE_NAMES), min_size=2, max_size=3, unique=True),
    mostly_linked("incoming"),
)
def test_a_node_that_passes_while_a_pod_s_place_is_unknown_passes_wherever_the_pod_is(
    history: list[Step], coming: Json, names: list[str], incoming: Json
) -> None:
    index, _ = built(history, WHOLE_ANSWERS)
    coming = pending(coming)
    index.view.compiled(shape_of(incoming))
    _assume(index, (coming, names))
    passing = answers_of(index.view, incoming).passed
    case(passing and index.view.is_undetermined(index.view.compiled(shape_of(incoming))))
    for node in names:
        index.assumed.forget("uid-p9")
        _assume(index, (coming, [node]))
        assert passing <= answers_of(index.view, incoming).passed


@given(histories(), pods("p9"), st.lists(st.sampled_from(NODE_NAMES), min_size=1, max_size=2, unique=True), pods())
def test_a_node_that_passes_while_a_pod_is_in_doubt_passes_wherever_the_pod_is_and_if_it_is_nowhere(
    history: list[Step], coming: Json, names: list[str], incoming: Json
) -> None:
    index, _ = built(history, WHOLE_ANSWERS)
    coming = pending(coming)
    index.view.compiled(shape_of(incoming))
    nowhere = answers_of(index.view, incoming).passed
    _assume(index, (coming, names))
    _assume(index, ())
    passing = answers_of(index.view, incoming).passed
    event(f"the doubt refuses a node: {passing < nowhere}")
    assert passing <= nowhere
    for node in names:
        index.assumed.forget("uid-p9")
        _assume(index, (coming, [node]))
        assert passing <= answers_of(index.view, incoming).passed
