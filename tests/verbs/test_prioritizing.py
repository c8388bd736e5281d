"""The prioritize verb: both scales, and the empty answer that costs the scheduler least."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from extender.index.cluster import ClusterIndex
from extender.model.objects import Object
from extender.rules.catalog import PreparedFilters
from extender.settings.configuration import Settings
from extender.verbs.prioritize import prioritize_nodes
from extender.verbs.select_host import TRIED, find_node_elsewhere
from extender.wire.objects.kinds import PODS
from tests.builders import (
    Json,
    asking,
    index_of,
    matching,
    node,
    node_json,
    pod,
    pod_json,
    settings,
    spread,
    taint,
    term,
    weighted,
)
from tests.contenders import cluster, contender, contender_json, stage
from tests.deciding import filter_nodes

EXTENDER, IN_TREE = settings(), settings(answers={"scoreScale": "inTree"})
NEAR_WEB = pod_json(prefers=[weighted(10, term("zone", app="web"))])


def web_in(*zones: str) -> list[Object]:
    """Three nodes in three zones, and a web pod in each of these zones."""
    nodes = [node(zone, zone=zone) for zone in ("z1", "z2", "z3")]
    return [*nodes, *(pod(f"web-{number}", on=zone, app="web") for number, zone in enumerate(zones))]


def scores(index: ClusterIndex, asked: Json, *, in_tree: bool = False) -> dict[str, int]:
    args = asking(asked, *sorted(index.view.known))
    return dict(prioritize_nodes(args, index.view, IN_TREE if in_tree else EXTENDER))


def test_in_tree_points_keep_every_difference() -> None:
    index = index_of(*web_in("z1", "z1", "z1", "z2"))
    assert scores(index, NEAR_WEB, in_tree=True) == {"z1": 200, "z2": 66, "z3": 0}


def test_both_rules_add_up_in_tree_and_share_the_ten_points() -> None:
    index = index_of(*web_in("z1", "z1", "z2"))
    asked = pod_json(prefers=[weighted(10, term("zone", app="web"))], spreads=[spread(hard=False, app="web")])
    # Raw spread scores are 2 and 1 pods times ln(3 + 2), rounded: 3, 2 and 0.
    assert scores(index, asked, in_tree=True) == {"z1": 200 + 0, "z2": 100 + 66, "z3": 0 + 200}
    assert scores(index, asked) == {"z1": 5, "z2": 4, "z3": 5}


def test_differences_that_ten_steps_cannot_show_are_an_empty_answer() -> None:
    index = index_of(*web_in("z1", "z1", "z1", "z2"))
    asked = pod_json(prefers=[weighted(10, term("zone", app="web"))], spreads=[spread(hard=False, app="web")])
    assert len(set(scores(index, asked, in_tree=True).values())) > 1
    assert scores(index, asked) == {}


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(pod_json(), id="no preference"),
        pytest.param(NEAR_WEB, id="no preferred pod is there"),
        pytest.param(pod_json(spreads=[spread(hard=False, app="web")]), id="equally spread"),
        pytest.param(pod_json(near=[term("zone", app="web")]), id="required terms do not score"),
    ],
)
def test_equal_nodes_are_not_scored_at_all(asked: Json) -> None:
    assert scores(index_of(*web_in()), asked) == {}
    assert scores(index_of(*web_in("z1", "z2", "z3")), asked, in_tree=True) == {}


def test_names_that_are_not_known_get_no_score() -> None:
    index = index_of(*web_in("z1"))
    args = asking(NEAR_WEB, "z1", "ghost", "z2")
    assert prioritize_nodes(args, index.view, EXTENDER) == {"z1": 10, "z2": 0}


@pytest.mark.parametrize("weight", [0, 100])
def test_a_hard_weight_of_nought_switches_that_off(weight: int) -> None:
    chosen = settings(rules={"interPodAffinity": {"hardPodAffinityWeight": weight}})
    host = pod("host", on="z2", near=[term("zone", app="guest")])
    index = index_of(*web_in(), host, rules=chosen.rules)
    found = prioritize_nodes(asking(pod_json(app="guest"), "z1", "z2"), index.view, chosen)
    assert found == ({} if not weight else {"z1": 0, "z2": 10})


def test_existing_pods_preferences_can_be_ignored_for_pods_without_their_own() -> None:
    chosen = settings(rules={"interPodAffinity": {"ignorePreferredTermsOfExistingPods": True}})
    host = pod("host", on="z2", prefers=[weighted(10, term("zone", app="guest"))])
    index = index_of(*web_in("z1"), host, rules=chosen.rules)
    plain = pod_json(app="guest")
    picky = pod_json(app="guest", prefers=[weighted(1, term("zone", app="web"))])
    assert prioritize_nodes(asking(plain, "z1", "z2"), index.view, chosen) == {}
    assert prioritize_nodes(asking(picky, "z1", "z2"), index.view, chosen) == {"z1": 0, "z2": 10}


def test_nodes_of_the_request_are_scored_by_their_own_labels() -> None:
    index = index_of(*web_in("z1"))
    nodes = [node_json("new-1", zone="z1"), node_json("new-2", zone="z9"), node_json("new-3")]
    found = prioritize_nodes(asking(NEAR_WEB, nodes=nodes), index.view, EXTENDER)
    assert found == {"new-1": 10, "new-2": 0, "new-3": 0}


def test_a_pod_whose_terms_cannot_be_read_gets_no_scores() -> None:
    broken = term("zone", selector=matching(("app", "In", [])))
    assert scores(index_of(*web_in("z1")), pod_json(prefers=[weighted(10, broken)])) == {}


# -- The one node of a decisive answer, among equals, and the node of the whole cluster to which a pod is nominated ----

DECISIVE = settings(placement="decisive")
SHY = taint("busy", effect="PreferNoSchedule")
LONELY: dict[str, Any] = {"app": "web", "apart": [term("host", app="web")]}


def chosen(index: ClusterIndex, asked: Json, seed: int = 0, avoid: str = "") -> list[str]:
    return list(filter_nodes(asking(asked, *sorted(index.view.known)), index.view, DECISIVE, seed, avoid).passed)


def always(index: ClusterIndex, asked: Json, strategy: str = "LeastAllocated") -> set[str]:
    """The nodes that are answered over several seeds, each time one."""
    chosen = settings(placement="decisive", answers={"scoringStrategy": strategy})
    args = asking(asked, *sorted(index.view.known))
    answers = [list(filter_nodes(args, index.view, chosen, seed).passed) for seed in range(6)]
    assert all(len(each) == 1 for each in answers)
    return {name for (name,) in answers}


def test_a_pod_that_others_may_count_gets_one_node() -> None:
    index = cluster(stage("n1"), stage("n2"))
    assert len(chosen(index, contender_json("asking", **LONELY))) == 1
    assert len(chosen(index, contender_json("asking", app="web"))) == 1, "the constraints above count web pods"
    assert len(chosen(index, contender_json("asking", app="db"))) == 2


def test_among_equals_the_one_with_the_larger_share_of_free_cpu_and_memory_is_taken() -> None:
    """A share and not an amount: half of a small node is less free than seven eighths of a large one."""
    small, large = stage("n1", cpu=1000), stage("n2", cpu=8000)
    index = cluster(small, large, contender("a", on="n1", cpu=500), contender("b", on="n2", cpu=1000))
    assert always(index, contender_json("asking", **LONELY)) == {"n2"}
    fuller = cluster(small, large, contender("a", on="n1", cpu=100), contender("b", on="n2", cpu=4000))
    assert always(fuller, contender_json("asking", **LONELY)) == {"n1"}


def test_the_pod_s_own_requests_count_in_that_share() -> None:
    index = cluster(stage("n1", cpu=1000), stage("n2", cpu=8000), contender("b", on="n2", cpu=4000))
    assert always(index, contender_json("asking", cpu=100, **LONELY)) == {"n1"}
    assert always(index, contender_json("asking", cpu=900, **LONELY)) == {"n2"}


def test_a_pod_without_requests_takes_a_share_as_kube_scheduler_counts_it() -> None:
    index = cluster(stage("n1"), stage("n2"), contender("a", on="n1"))
    assert always(index, contender_json("asking", **LONELY)) == {"n2"}


def test_the_larger_of_the_shares_of_cpu_and_memory_decides() -> None:
    """A third of both is better than half of one: NodeResourcesFit prefers the second by 8 points, balanced allocation the first by 25."""
    offered = {"cpu": "4", "memory": "8Gi"}
    index = index_of(node("n1", allocatable=offered), node("n2", allocatable=offered))
    index.upsert(pod("a", on="n1", requests={"cpu": "2", "memory": "1"}))
    index.upsert(pod("b", on="n2", requests={"cpu": "1333m", "memory": "2730Mi"}))
    assert always(index, pod_json(**LONELY)) == {"n2"}
    assert always(index, pod_json(**LONELY), "MostAllocated") == {"n2"}
    index.upsert(pod("c", on="n1", requests={"cpu": "1", "memory": "6Gi"}))
    assert always(index, pod_json(**LONELY), "MostAllocated") == {"n1"}


def test_resources_can_be_ignored() -> None:
    index = cluster(stage("n1"), stage("n2"), contender("a", on="n1", cpu=3000))
    assert always(index, contender_json("asking", **LONELY), "Ignored") == {"n1", "n2"}


@pytest.mark.parametrize("strategy", ["LeastAllocated", "MostAllocated"])
def test_all_of_a_hundred_nodes_are_compared(strategy: str) -> None:
    """As many as kube-scheduler samples at least."""
    nodes = [stage(f"n{number:02}") for number in range(100)]
    index = cluster(*nodes, *(contender(f"p{each.name}", on=each.name, cpu=2000) for each in nodes))
    index.upsert(contender("pn57", on="n57", cpu=1900 if strategy == "LeastAllocated" else 2100))
    assert always(index, contender_json("asking", **LONELY), strategy) == {"n57"}


def test_names_are_read_on_while_few_nodes_are_equal() -> None:
    """Of 300 nodes 30 pass, and they are in three of the hundreds that are read at once."""
    nodes = [stage(f"n{number:03}") for number in range(300)]
    index = cluster(*nodes)
    for number, each in enumerate(nodes):
        index.upsert(contender(f"p{number}", on=each.name, cpu=2000, app="db" if number % 10 == 0 else "web"))
    index.upsert(contender("p170", on="n170", cpu=1900, app="db"))
    assert always(index, contender_json("asking", **LONELY)) == {"n170"}


def test_a_large_node_is_found_among_small_ones_that_are_emptier_without_the_pod() -> None:
    nodes = [stage(f"n{number:02}", cpu=2000) for number in range(60)]
    index = cluster(*nodes, stage("large", cpu=64000), contender("a", on="large", cpu=6400))
    assert always(index, contender_json("asking", cpu=1500, **LONELY)) == {"large"}
    assert always(index, contender_json("asking", cpu=100, **LONELY)).isdisjoint({"large"})


def test_nodes_that_a_request_brings_along_are_compared_by_what_they_offer_themselves() -> None:
    index = cluster(stage("n1"), contender("a", on="n1", cpu=400), contender("w", on="elsewhere", **LONELY))
    offered = [("n1", "4"), ("new", "2")]
    nodes = [node_json(name, allocatable={"cpu": cpu}) for name, cpu in offered]

    def answered(cpu: int) -> set[str]:
        args = asking(contender_json("asking", cpu=cpu, **LONELY), nodes=nodes)
        return {name for seed in range(4) for name in filter_nodes(args, index.view, DECISIVE, seed).passed}

    assert answered(100) == {"new"}
    assert answered(1000) == {"n1"}
    nodes[0]["spec"]["taints"] = [SHY]
    assert answered(1000) == {"new"}


def test_a_node_with_a_soft_taint_is_taken_only_where_no_other_passes_whatever_the_rules_prefer() -> None:
    index = cluster(stage("n1", taints=[SHY]), stage("n2"), stage("n3", taints=[SHY, {**SHY, "key": "leaving"}]))
    index.upsert(contender("db", on="n1", app="db"))
    asked = contender_json("asking", **LONELY, prefers=[weighted(1, term("host", app="db"))])
    assert always(index, asked) == {"n2"}
    assert chosen(index, asked, avoid="n2") == ["n1"]
    index.upsert(contender("w2", on="n2", app="web"))
    assert always(index, asked) == {"n1"}
    index.delete(contender("db", on="n1", app="db"))
    index.upsert(contender("b", on="n1", cpu=3000))
    assert always(index, asked) == {"n1"}, "of two nodes with such taints the one with fewer"
    assert chosen(index, asked, avoid="n1") == ["n3"]


def test_fewer_taints_that_would_rather_not_have_the_pod_count_more_than_free_resources() -> None:
    index = cluster(stage("n1", taints=[SHY]), stage("n2"), contender("b", on="n2", cpu=3000))
    assert always(index, contender_json("asking", **LONELY)) == {"n2"}
    tolerant = [{"key": "busy", "operator": "Exists"}]
    assert always(index, contender_json("asking", tolerations=tolerant, **LONELY)) == {"n1"}


def test_the_node_where_the_pod_did_not_arrive_is_taken_only_where_nothing_else_passes() -> None:
    index = cluster(stage("n1"), stage("n2", cpu=1000), contender("b", on="n2", cpu=900))
    asked = contender_json("asking", **LONELY)
    assert [chosen(index, asked, seed, avoid="n1") for seed in range(4)] == [["n2"]] * 4
    index.upsert(contender("w", on="n2", app="web"))
    assert chosen(index, asked, avoid="n1") == ["n1"]


# -- The search past the scheduler's sample: which node of the whole cluster a pod is nominated to -----------------------


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
