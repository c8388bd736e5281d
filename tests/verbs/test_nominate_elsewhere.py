"""The search past the scheduler's sample: which node of the whole cluster a pod is nominated to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from extender.index.cluster import ClusterIndex
from extender.rules.catalog import PreparedFilters
from extender.settings.configuration import Settings
from extender.verbs.select_host import TRIED, find_node_elsewhere
from extender.wire.objects.kinds import PODS
from tests.builders import Json, index_of, node, pod, term, weighted
from tests.contenders import cluster, contender, contender_json, stage

LONELY: dict[str, Any] = {"app": "web", "apart": [term("host", app="web")]}


def found(index: ClusterIndex, asked: Json, seed: int = 0) -> tuple[str, bool]:
    """The node, and whether any passes our rules."""
    return find_node_elsewhere(PODS.decode_object(orjson.dumps(asked)), index.view, Settings(), seed)


def test_equally_good_nodes_take_turns_so_that_pods_rejected_together_do_not_all_go_to_one() -> None:
    index = cluster(*(stage(f"n{number}") for number in range(4)))
    chosen = [found(index, contender_json("asking", **LONELY), seed)[0] for seed in range(8)]
    assert set(chosen[:4]) == {"n0", "n1", "n2", "n3"}
    assert chosen[:4] == chosen[4:]


def test_the_best_node_is_found_from_every_seed() -> None:
    index = cluster(*(stage(f"n{number}") for number in range(4)), contender("db", on="n2", app="db"))
    asked = contender_json("asking", **LONELY, prefers=[weighted(10, term("host", app="db"))])
    assert {found(index, asked, seed) for seed in range(8)} == {("n2", True)}


def test_in_an_empty_cluster_there_is_no_node() -> None:
    assert found(index_of(), contender_json("asking", **LONELY)) == ("", False)


def test_where_no_node_passes_our_rules_none_is_reported() -> None:
    index = cluster(stage("n1"), contender("web", on="n1", app="web"))
    assert found(index, contender_json("asking", **LONELY)) == ("", False)


def test_a_node_that_passes_our_rules_and_has_no_room_is_distinguished_from_none() -> None:
    index = cluster(stage("n1", cpu=1000))
    assert found(index, contender_json("asking", cpu=2000, **LONELY)) == ("", True)


def test_a_pod_with_volumes_which_the_index_does_not_count_gets_no_node() -> None:
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]
    assert found(cluster(stage("n1")), contender_json("asking", volumes=volumes, **LONELY)) == ("", True)


def test_room_is_left_for_nominated_pods_that_are_as_important_and_for_no_others() -> None:
    def beside(priority: int) -> tuple[str, bool]:
        index = cluster(stage("n1", cpu=1000), contender("coming", nominated="n1", cpu=1000, priority=priority))
        return found(index, contender_json("asking", cpu=1000, priority=5, **LONELY))

    assert [beside(priority) for priority in (4, 5, 6)] == [("n1", True), ("", True), ("", True)]


def test_a_node_kept_for_nominated_pods_is_no_place_whatever_keeps_it() -> None:
    """As `filter` decides: otherwise the pod is nominated to a node where it is rejected again, and again."""
    coming: dict[str, Any] = {"nominated": "n1", "priority": 9}
    alone = contender("coming", **coming, app="db", apart=[term("host", app="web")])
    kept = cluster(stage("n1"), alone)
    assert found(kept, contender_json("asking", app="web")) == ("", True)
    assert found(kept, contender_json("asking", app="web", priority=10)) == ("n1", True)
    rival = cluster(stage("n1"), contender("coming", **coming, app="web"))
    assert found(rival, contender_json("asking", **LONELY)) == ("", True)
    rival.upsert(stage("n2"))
    assert {found(rival, contender_json("asking", **LONELY), seed) for seed in range(4)} == {("n2", True)}


def test_a_pod_s_own_nomination_takes_no_room_from_it() -> None:
    index = cluster(stage("n1", cpu=1000), contender("asking", nominated="n1", cpu=1000))
    assert found(index, contender_json("asking", cpu=1000, **LONELY)) == ("n1", True)


def test_only_so_many_nodes_are_tried_for_room_and_those_alone_that_admit_the_pod() -> None:
    tainted = [{"key": "gpu", "effect": "NoSchedule"}]
    full = [stage(f"f{number:02}", cpu=0) for number in range(TRIED - 1)]
    others = [stage(f"t{number}", taints=tainted) for number in range(5)]
    roomy = cluster(*others, *full, stage("z"))
    assert found(roomy, contender_json("asking", cpu=1, **LONELY)) == ("z", True)
    conflicting_nodes = cluster(*others, *full, stage("f99", cpu=0), stage("z"))
    assert found(conflicting_nodes, contender_json("asking", cpu=1, **LONELY)) == ("", True)


def test_a_pod_whose_node_is_not_known_yet_counts_wherever_it_may_be() -> None:
    index = cluster(stage("n1"), stage("n2"), stage("n3"))
    index.assume(pod("web", app="web"), ("n1", "n2"), now=0.0)
    assert {found(index, contender_json("asking", **LONELY), seed) for seed in range(6)} == {("n3", True)}


def test_an_unschedulable_node_is_no_place() -> None:
    index = index_of(node("n1", unschedulable=True, allocatable={"pods": "1"}))
    assert found(index, contender_json("asking", **LONELY)) == ("", True)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many nodes the filters are asked about, by call."""
    counts: list[int] = []
    passing = PreparedFilters.passing

    def counted(filters: PreparedFilters, positions: Sequence[int]) -> Sequence[int]:
        counts.append(len(positions))
        return passing(filters, positions)

    monkeypatch.setattr(PreparedFilters, "passing", counted)
    return counts


def test_where_most_nodes_pass_a_few_hundred_of_them_are_read(read: list[int]) -> None:
    """With a hundred thousand nodes all of them take 40 ms, for each rejected pod."""
    index = cluster(*(stage(f"n{number}", cpu=1000 if number % 50 else 4000) for number in range(3000)))
    assert found(index, contender_json("asking", cpu=2000, **LONELY), 1) == ("n50", True)
    assert sum(read) < 600


def test_where_most_nodes_pass_and_have_room_a_handful_is_read(read: list[int]) -> None:
    index = cluster(*(stage(f"n{number}") for number in range(300)), contender("web", on="n7", app="web"))
    assert found(index, contender_json("asking", **LONELY), 7) == ("n8", True)
    assert sum(read) <= 10


def test_a_node_that_is_gone_is_no_place_although_pods_are_on_it() -> None:
    index = cluster(stage("n1"), contender("db", on="gone", app="db"))
    assert {found(index, contender_json("asking", **LONELY), seed) for seed in range(4)} == {("n1", True)}


def test_nodes_after_the_first_hundreds_are_tried_where_these_have_another_reason() -> None:
    taint = [{"key": "reserved", "effect": "NoSchedule"}]
    index = cluster(*(stage(f"n{number}", taints=taint) for number in range(400)), stage("last"))
    assert found(index, contender_json("asking", **LONELY), 1) == ("last", True)
