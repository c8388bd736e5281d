"""Laws of what-if: each verdict is that of filter and node fit, and changes are as good as a fresh index with them."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.model.answers.what_if import WhatIf
from extender.settings.configuration import Settings
from extender.wire.manifests import decode_what_if
from tests.builders import settings
from tests.laws.cases import case, meets_its_case
from tests.laws.explain_strategies import roomy_clusters
from tests.laws.observing import SYSTEM_DEFAULTS, Cluster, fresh
from tests.laws.placements import agrees, answered, changed, changes, in_order, pending
from tests.strategies import one_of

COOPERATIVE = settings(preemption={"mode": "execute"})
DECISIVE = settings(placement="decisive", answers={"shortlist": 2})


@meets_its_case
@given(st.data(), roomy_clusters(), one_of([COOPERATIVE, DECISIVE]))
def test_without_changes_each_verdict_is_that_of_filter_and_node_fit(
    data: st.DataObject, clustered: tuple[ClusterIndex, Cluster], chosen: Settings
) -> None:
    index, cluster = clustered
    data.draw(pending(index, cluster))
    expected = {
        pod.full_name for pod in index.pods.values() if not (pod.node or pod.gated or pod.terminating or pod.finished)
    }
    pods = {pod.full_name: pod for pod in index.pods.values()}
    answer = answered(WhatIf(), index, chosen)
    assert {each.pod for each in answer.placements} == expected
    assert in_order(answer, pods)
    assert audit(index) == []
    rejected = agrees(answer.placements, fresh(cluster, SYSTEM_DEFAULTS), chosen)
    assert (answer.summary.placed, answer.summary.rejected) == (len(answer.placements) - rejected, rejected)
    case(0 < rejected < len(answer.placements))


@meets_its_case
@given(st.data(), roomy_clusters(), one_of([COOPERATIVE, DECISIVE]))
def test_changes_are_as_good_as_a_fresh_index_with_them(
    data: st.DataObject, clustered: tuple[ClusterIndex, Cluster], chosen: Settings
) -> None:
    index, cluster = clustered
    data.draw(pending(index, cluster))
    what_if = decode_what_if(orjson.dumps(data.draw(changes(index))), chosen)
    expected, displaced, deleted = changed(cluster, what_if)
    answer = answered(what_if, index, chosen)
    assert audit(index) == []
    assert {each.pod for each in answer.placements if each.state == "gone"} == deleted
    assert {each.pod for each in answer.placements if each.origin == "displaced" and each.state != "gone"} == displaced
    waiting = [
        pod
        for pod in expected.pods.values()
        if not (pod.node or pod.gated or pod.terminating)
        and (what_if.pending or pod.full_name in displaced or pod.uid == pod.full_name)
    ]
    decided = [each.pod for each in answer.placements if each.state in ("placed", "rejected")]
    assert sorted(decided) == sorted(pod.full_name for pod in waiting)
    assert in_order(answer, {pod.full_name: pod for pod in expected.pods.values()})
    rejected = agrees(answer.placements, expected, chosen)
    # The index of the what-if holds what the other one holds now.
    assert {(pod.full_name, pod.node) for pod in index.pods.values()} == {
        (pod.full_name, pod.node) for pod in expected.pods.values()
    }
    case(answer.summary.placed and (rejected or answer.summary.displaced))
