"""`answers.names: one`: which pods that no rule touches get one node, and which keep the list."""

from __future__ import annotations

from typing import Any

import pytest

from extender.index.nodes import requested_shares
from extender.settings.configuration import Settings
from tests.builders import Json, extender_args, index_of, node, node_json, pod, pod_json, settings
from tests.deciding import filter_nodes

SIZE = {"cpu": "4", "memory": "8Gi"}
NAMES = ("n1", "n2", "n3", "n4")
VOLUME = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}


def one(answers: Json | None = None, **sections: Any) -> Settings:
    return settings(placement="decisive", answers={"names": "one", "shortlist": 3, **(answers or {})}, **sections)


def answered(chosen: Settings, incoming: Json | None = None, *, seed: int = 0, avoid: str = "") -> list[str]:
    index = index_of(*(node(name, allocatable=SIZE) for name in NAMES), rules=chosen.rules)
    index.upsert(pod("old", on="n1", requests={"cpu": "1"}))
    request = extender_args(incoming or pod_json(), "gone", *NAMES)
    return list(filter_nodes(request, index.view, chosen, seed, avoid).passed)


def with_volume() -> Json:
    body = pod_json()
    return {**body, "spec": {**body["spec"], "volumes": [VOLUME]}}


SHORTLISTS: dict[str, tuple[Settings, Json]] = {
    "answers.names is shortlist": (one({"names": "shortlist"}), pod_json()),
    "the pod has a volume, which VolumeBinding may score": (one(), with_volume()),
    "the profile has a score plugin of its own": (one({"scores": {"others": ["Coscheduling"]}}), pod_json()),
    "NodeResourcesFit scores by an unknown strategy": (one({"scoringStrategy": "Ignored"}), pod_json()),
    "PodTopologySpread scores in the scheduler": (one(rules={"topologySpread": {"enabled": False}}), pod_json()),
    "InterPodAffinity scores in the scheduler": (one(rules={"interPodAffinity": {"enabled": False}}), pod_json()),
}


@pytest.mark.parametrize(("chosen", "incoming"), SHORTLISTS.values(), ids=SHORTLISTS)
def test_where_the_extender_does_not_know_all_scores_the_scheduler_chooses_from_a_list(
    chosen: Settings, incoming: Json
) -> None:
    assert len(answered(chosen, incoming)) == 3


def test_equal_nodes_are_taken_in_turns_and_the_fuller_one_never() -> None:
    assert {*[tuple(answered(one(), seed=seed)) for seed in range(8)]} == {("n2",), ("n3",), ("n4",)}


def test_equal_nodes_stay_equal_after_the_table_of_shares_was_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requested_shares, "_MOST_SHARED", 1)
    assert {*[tuple(answered(one(), seed=seed)) for seed in range(8)]} == {("n2",), ("n3",), ("n4",)}


def test_the_node_where_the_pod_was_not_bound_is_taken_only_if_no_other_passes() -> None:
    assert {*[tuple(answered(one(), seed=seed, avoid="n3")) for seed in range(8)]} == {("n2",), ("n4",)}
    index = index_of(node("n3", allocatable=SIZE))
    request = extender_args(pod_json(), "gone", "n3")
    assert filter_nodes(request, index.view, one(), 0, avoid="n3").passed == ["n3"]


def test_a_pod_gets_one_of_the_whole_nodes_of_a_request_only_among_several_schedulers() -> None:
    nodes = [node_json(name, allocatable=SIZE) for name in NAMES]
    index = index_of(*(node(name, allocatable=SIZE) for name in NAMES))
    for schedulers, count in (("one", 3), ("many", 1)):
        chosen = one(schedulers=schedulers)
        assert len(filter_nodes(extender_args(pod_json(), nodes=nodes), index.view, chosen, 0).passed) == count


def test_soft_taints_are_weighed_against_preferred_nodes() -> None:
    """NodeAffinity gives 2 × 100 points to n1, its taint takes 3 × 100; with equal weights free resources decide."""
    busy = {"key": "busy", "effect": "PreferNoSchedule"}
    incoming = pod_json()
    terms = [
        {"weight": 1, "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}}
    ]
    incoming["spec"]["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    index = index_of(node("n1", allocatable=SIZE, taints=[busy]), node("n2", allocatable=SIZE))
    request = extender_args(incoming, "n1", "n2")
    for weights, expected in (({}, "n2"), ({"nodeAffinity": 4}, "n1"), ({"taintToleration": 0}, "n1")):
        assert filter_nodes(request, index.view, one({"scores": weights}), 0).passed == [expected]


def test_a_fuller_node_is_taken_where_balance_has_much_weight() -> None:
    """A pod that requests CPU alone makes n2 more even, on which half of the memory is requested."""
    index = index_of(node("n1", allocatable=SIZE), node("n2", allocatable=SIZE))
    index.upsert(pod("light", on="n1", requests={"memory": "1Gi"}))
    index.upsert(pod("heavy", on="n2", requests={"memory": "4Gi"}))
    request = extender_args(pod_json(requests={"cpu": "1"}), "n1", "n2")
    for weight, expected in ((1, "n1"), (100, "n2")):
        chosen = one({"scores": {"nodeResourcesBalancedAllocation": weight}})
        assert filter_nodes(request, index.view, chosen, 0).passed == [expected]
