"""The one node of a pod that no rule touches has the highest sum of the profile's score plugins of all nodes that pass."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import (
    PREFERRED,
    Json,
    extender_args,
    index_of,
    node_json,
    pod_json,
    read_node,
    read_pod,
    requirement,
    settings,
    taint,
)
from tests.deciding import filter_nodes
from tests.in_tree_scores import UsedNode, scores
from tests.laws.cases import case, meets_its_case

REQUESTS: tuple[Json, ...] = (
    {},
    {"cpu": "100m"},
    {"memory": "1Gi"},
    {"cpu": "200m", "memory": "100Mi"},
    {"cpu": "50m", "memory": "600Mi"},
)
SIZES: tuple[Json, ...] = ({"cpu": "16", "memory": "64Gi"}, {"cpu": "32", "memory": "32Gi"})
SOFT = [taint("busy", effect="PreferNoSchedule"), taint("slow", effect="PreferNoSchedule")]
TOLERATION = {"key": "busy", "operator": "Exists"}


def _preferring(weight: int, key: str) -> Json:
    return {"weight": weight, "preference": {"matchExpressions": [requirement(key, "Exists", [])]}}


TERMS = [[], [_preferring(10, "ssd")], [_preferring(10, "ssd"), _preferring(3, "gpu")]]

NODES = st.lists(
    st.builds(
        lambda size, taints, labels, pods: (node_json(allocatable=size, taints=taints, labels=labels), pods),
        st.sampled_from(SIZES),
        st.sampled_from([[], [], SOFT[:1], SOFT[1:], SOFT]),
        st.sampled_from([{}, {"ssd": "1"}, {"gpu": "1"}, {"ssd": "1", "gpu": "1"}]),
        st.lists(st.sampled_from(REQUESTS), max_size=12),
    ),
    min_size=2,
    max_size=8,
)
WEIGHTS = st.fixed_dictionaries({
    "taintToleration": st.sampled_from([3, 0, 1]),
    "nodeAffinity": st.sampled_from([2, 0, 1]),
    "nodeResourcesFit": st.sampled_from([1, 0, 3]),
    "nodeResourcesBalancedAllocation": st.sampled_from([1, 0, 5]),
})  # fmt: skip


@meets_its_case
@pytest.mark.parametrize("strategy", ["LeastAllocated", "MostAllocated"])
@pytest.mark.parametrize("schedulers", ["one", "many"])
@given(NODES, st.sampled_from(REQUESTS), st.sampled_from(TERMS), st.booleans(), WEIGHTS, st.integers(0, 9))
def test_no_node_that_passes_has_more_points_than_the_one_answered(
    schedulers: str,
    strategy: str,
    nodes: Sequence[tuple[Json, Sequence[Json]]],
    requests: Json,
    terms: list[Json],
    tolerates: bool,  # noqa: FBT001 (given by Hypothesis)
    weights: Json,
    seed: int,
) -> None:
    chosen = settings(
        placement="decisive",
        schedulers=schedulers,
        answers={"names": "one", "scores": weights, "scoringStrategy": strategy},
    )
    index, used = index_of(rules=chosen.rules), list[UsedNode]()
    for number, (body, pods) in enumerate(nodes):
        body["metadata"]["name"] = name = f"n{number}"
        used.append(UsedNode(read_node(body)))
        index.upsert(used[-1].node)
        for place, wanted in enumerate(pods):
            existing = read_pod(pod_json(f"{name}-{place}", on=name, requests=wanted))
            index.upsert(existing)
            used[-1].add(existing)
    incoming = pod_json(requests=requests, tolerations=[TOLERATION] if tolerates else [])
    if terms:
        incoming["spec"]["affinity"] = {"nodeAffinity": {PREFERRED: terms}}
    asking = read_pod(incoming)
    sums = scores(asking, used, chosen.answers, rounds=False).sums(chosen.answers)
    case(max(sums) > min(sums))
    names = [each.node.name for each in used]
    (answered,) = filter_nodes(extender_args(incoming, *names), index.view, chosen, seed).passed
    assert sums[names.index(answered)] == pytest.approx(max(sums), abs=1e-6)
