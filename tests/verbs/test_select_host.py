"""The one node of a decisive answer: which pods get one, and which node among equals."""

from __future__ import annotations

from typing import Any

from extender.index.cluster import ClusterIndex
from tests.builders import Json, asking, settings, taint, term, weighted
from tests.contenders import cluster, contender, contender_json, stage
from tests.deciding import filter_nodes

DECISIVE = settings(placement="decisive")
LONELY: dict[str, Any] = {"app": "web", "apart": [term("host", app="web")]}


def chosen(index: ClusterIndex, asked: Json, seed: int = 0, avoid: str = "") -> list[str]:
    """The names in the answer."""
    return list(filter_nodes(asking(asked, *sorted(index.view.known)), index.view, DECISIVE, seed, avoid).passed)


def always(index: ClusterIndex, asked: Json) -> set[str]:
    """The nodes that are answered over several seeds, each time one."""
    answers = [chosen(index, asked, seed) for seed in range(6)]
    assert all(len(each) == 1 for each in answers)
    return {name for (name,) in answers}


def test_a_pod_that_no_constraint_selects_and_that_has_none_gets_every_node() -> None:
    assert chosen(cluster(stage("n1"), stage("n2")), contender_json("asking")) == ["n1", "n2"]


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


def test_fewer_taints_that_would_rather_not_have_the_pod_count_more_than_free_resources() -> None:
    shy = taint("busy", effect="PreferNoSchedule")
    index = cluster(stage("n1", taints=[shy]), stage("n2"), contender("b", on="n2", cpu=3000))
    assert always(index, contender_json("asking", **LONELY)) == {"n2"}
    tolerant = [{"key": "busy", "operator": "Exists"}]
    assert always(index, contender_json("asking", tolerations=tolerant, **LONELY)) == {"n1"}


def test_a_node_that_the_rules_prefer_is_taken_however_full_it_is() -> None:
    index = cluster(stage("n1"), stage("n2"), contender("db", on="n2", app="db", cpu=3900))
    asked = contender_json("asking", **LONELY, prefers=[weighted(1, term("host", app="db"))])
    assert always(index, asked) == {"n2"}


def test_the_node_where_the_pod_did_not_arrive_is_taken_only_where_nothing_else_passes() -> None:
    index = cluster(stage("n1"), stage("n2", cpu=1000), contender("b", on="n2", cpu=900))
    asked = contender_json("asking", **LONELY)
    assert [chosen(index, asked, seed, avoid="n1") for seed in range(4)] == [["n2"]] * 4
    index.upsert(contender("w", on="n2", app="web"))
    assert chosen(index, asked, avoid="n1") == ["n1"]
