"""The best of the passing nodes under our own score, drawn fairly among equals, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from extender.index.cluster import ClusterIndex
from extender.model.objects import Pod
from extender.rules.frames import IndexFrame
from extender.rules.interpod_affinity import InterPodAffinity
from extender.rules.rule import RankedGroup
from extender.settings.configuration import Settings
from extender.verbs import ranking
from extender.verbs.request import RequestedNodes, RequestSearch, prepared
from tests.builders import (
    PREFERRED,
    Json,
    extender_args,
    index_of,
    node,
    node_json,
    pod,
    pod_json,
    settings,
    spread,
    taint,
    term,
    weighted,
    workload,
)
from tests.deciding import filter_nodes

TEN = [f"n{number}" for number in range(10)]
WEB_ZONES = {"z1": 1, "z2": 3, "z3": 2}


def shortlist(index: ClusterIndex, incoming: Json, names: Sequence[str], most: int, seed: int = 0) -> list[str]:
    """The names that pass, in the order of the answer."""
    chosen = settings(answers={"shortlist": most})
    return list(filter_nodes(extender_args(incoming, *names), index.view, chosen, seed).passed)


def three_zones() -> ClusterIndex:
    """Two nodes in each of three zones, with one, three and two web pods on the first of them."""
    nodes = [node(f"{zone}-{which}", zone=zone) for zone in WEB_ZONES for which in "ab"]
    pods = [pod(f"{zone}-{n}", on=f"{zone}-a", app="web") for zone, count in WEB_ZONES.items() for n in range(count)]
    return index_of(*nodes, *pods)


def zones(names: Sequence[str]) -> list[str]:
    return [name.split("-")[0] for name in names]


@pytest.mark.parametrize("most", [1, 3, 9])
def test_equal_nodes_are_drawn_fairly_over_the_seeds(most: int) -> None:
    index = index_of(*map(node, TEN))
    drawn = [shortlist(index, pod_json(), TEN, most, seed) for seed in range(20)]
    assert {len(set(names)) for names in drawn} == {most}
    assert Counter(name for names in drawn for name in names) == dict.fromkeys(TEN, 2 * most)


def test_a_request_no_longer_than_the_list_keeps_its_order() -> None:
    index = index_of(*map(node, TEN))
    assert shortlist(index, pod_json(), TEN[::-1], 10, seed=4) == TEN[::-1]


class Unread(str):
    """A name that must not be looked up."""

    __slots__ = ()

    def __hash__(self) -> int:
        raise AssertionError(self)


def test_of_a_pod_that_no_rule_can_reject_no_more_names_are_read_than_answered() -> None:
    index = index_of(*map(node, TEN))
    names = [*TEN[:2], Unread("n2"), "unknown", *TEN[4:]]
    requested = RequestedNodes(names, IndexFrame(), index.view)
    assert requested.known_from(3, 8) == [*TEN[4:], *TEN[:2]]


def test_of_a_pod_that_no_rule_can_reject_unknown_nodes_are_left_out() -> None:
    index = index_of(*map(node, TEN))
    assert shortlist(index, pod_json(), ["gone", *TEN], 3, seed=10) == ["n9", "n0", "n1"]


def test_no_limit_names_every_node_that_passes() -> None:
    index = index_of(*map(node, TEN))
    assert shortlist(index, pod_json(), TEN, 0, seed=4) == TEN


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("incoming", "best"),
    [
        pytest.param(pod_json(prefers=[weighted(10, term("zone", app="web"))]), ["z2", "z2", "z3"], id="prefers"),
        pytest.param(pod_json(avoids=[weighted(10, term("zone", app="web"))]), ["z1", "z1", "z3"], id="avoids"),
        pytest.param(pod_json(spreads=[spread(hard=False, app="web")]), ["z1", "z1", "z3"], id="soft spread"),
        pytest.param(
            pod_json(
                prefers=[weighted(10, term("zone", app="web"))],
                spreads=[spread("zone", hard=False, app="other")],
            ),
            ["z2", "z2", "z3"],
            id="both rules",
        ),
    ],
)
def test_the_best_come_first_wherever_the_search_starts(incoming: Json, best: list[str], seed: int) -> None:
    index = three_zones()
    assert zones(shortlist(index, incoming, sorted(index.view.known), 3, seed)) == best


@pytest.mark.parametrize("seed", range(3))
def test_a_node_that_a_request_brings_without_the_key_is_best_in_the_same_way(seed: int) -> None:
    index = three_zones()
    incoming = pod_json(avoids=[weighted(10, term("zone", app="web"))])
    nodes = [node_json("z1-a", zone="z1"), node_json("z3-a", zone="z3"), node_json("template")]
    chosen = settings(answers={"shortlist": 1})
    assert filter_nodes(extender_args(incoming, nodes=nodes), index.view, chosen, seed).passed == ["template"]


@pytest.mark.parametrize("seed", range(4))
def test_the_emptiest_zone_is_found_although_nodes_without_a_zone_hold_pods_too(seed: int) -> None:
    """System defaults count nodes without the key as one more domain, which must not hide an empty one."""
    index = index_of(
        node("a1", zone="z1"),
        node("a2", zone="z1"),
        node("b", zone="z2"),
        node("nowhere"),
        workload("Service", "web", {"app": "web"}),
        *(pod(f"w{number}", on="a1", app="web") for number in range(3)),
        pod("lost", on="nowhere", app="web"),
    )
    assert shortlist(index, pod_json(app="web"), ["a2", "b"], 1, seed) == ["b"]


@pytest.mark.parametrize("prefers", [True, False])
def test_nodes_that_the_pod_prefers_are_not_cut_off(*, prefers: bool) -> None:
    """kube-scheduler scores preferred node affinity among the answered nodes only."""
    names = [f"n{number}" for number in range(100)]
    index = index_of(*(node(name, disk="ssd" if name in {"n3", "n77"} else "hdd") for name in names))
    incoming = pod_json()
    if prefers:
        preference = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
        incoming["spec"]["affinity"] = {"nodeAffinity": {PREFERRED: [{"weight": 5, "preference": preference}]}}
    answers = [shortlist(index, incoming, names, 4, seed) for seed in range(20)]
    assert {len(set(each)) for each in answers} == {4}
    assert all({"n3", "n77"} <= set(each) for each in answers) is prefers


def test_nodes_with_soft_taints_are_on_the_list_only_where_too_few_others_pass() -> None:
    """kube-scheduler weighs taints among the answered nodes only."""
    shy = [taint("leaving", effect="PreferNoSchedule")]
    names = [f"n{number}" for number in range(40)]
    index = index_of(
        *(node(name, allocatable={"cpu": "4"}, taints=shy if number < 30 else ()) for number, name in enumerate(names))
    )
    assert {*shortlist(index, pod_json(), names, 5)} < {*names[30:]}
    assert {*shortlist(index, pod_json(tolerations=[{"operator": "Exists"}]), names, 5)} < {*names[:30]}
    assert len(shortlist(index, pod_json(), names[:20], 5)) == 5


def test_nodes_with_soft_taints_fill_a_list_that_is_not_full_without_them() -> None:
    """They pass, so kube-scheduler may choose one of them by what it scores beside taints."""
    shy = [taint("leaving", effect="PreferNoSchedule")]
    index = index_of(node("n1", taints=shy), node("n2"), node("n3", taints=shy), node("n4", taints=shy))
    found = shortlist(index, pod_json(), ["n1", "n2", "n3", "n4"], 3)
    assert (found[0], len(set(found))) == ("n2", 3)


# -- long requests with preferences that attract: found from the domains with most pods, as by ranking all ----------------

NODES_THERE = 40
NAMES = [f"n{number}" for number in range(NODES_THERE)]


def liking(weight: int = 3, app: str = "web") -> Json:
    """Fields of a pod that would be beside web pods, and never beside bad ones."""
    return {"app": app, "prefers": [weighted(weight, term("host", app="web"))], "apart": [term("host", app="bad")]}


def many_nodes(*pods: Pod) -> ClusterIndex:
    return index_of(*map(node, NAMES), *pods)


def search_of(index: ClusterIndex, names: Sequence[str]) -> tuple[RequestSearch, Sequence[RankedGroup]]:
    """The search of a pod that likes web pods, and the groups that rank its nodes."""
    requested = RequestedNodes(names, IndexFrame(), index.view)
    search = prepared(pod("asking", **liking()), requested, index.view, Settings())
    found = InterPodAffinity().ranked_groups(search.compiled, index.view, NODES_THERE, Settings().rules)
    assert found is not None
    return search, found


@hypothesis_settings(max_examples=60, deadline=None)
@given(
    placed=st.lists(
        st.tuples(st.sampled_from(NAMES), st.sampled_from(["web", "web", "bad"]), st.sampled_from([1, 5])), max_size=60
    ),
    requested=st.sets(st.sampled_from(NAMES), min_size=1),
    most=st.integers(1, 12),
    turn=st.integers(0, 1000),
)
def test_the_ranks_are_those_of_the_best_nodes(
    placed: list[tuple[str, str, int]], requested: set[str], most: int, turn: int
) -> None:
    index = many_nodes(*(pod(f"p{at}", on=on, **liking(weight, app)) for at, (on, app, weight) in enumerate(placed)))
    names = sorted(requested)
    search, groups = search_of(index, names)
    if not groups:
        return
    assert ranking.has_small_domains(groups)
    ranked = ranking.best_by_top_domains(groups, search, most, turn % len(names))

    def rank(node: int) -> float:
        return float(sum(part.weight * part.group.counts.get(part.group.key.of_node[node], 0) for part in groups))

    passing = search.filters.passing([index.view.known[name] for name in names])
    assert [found for found, _ in ranked] == sorted(map(rank, passing), reverse=True)[:most]
    assert all(rank(node) == found and node in passing for found, node in ranked)
    assert len({node for _, node in ranked}) == len(ranked)
    best = {node for node in passing if rank(node) == max(map(rank, passing))}
    equals = ranking.equals_by_top_domains(groups, search, most, turn % len(names))
    assert len(set(equals)) == len(equals) >= min(most, len(best))
    assert set(equals) <= best


@pytest.mark.parametrize("refusing", range(12))
def test_as_many_nodes_are_found_as_are_wanted_however_many_reject(refusing: int) -> None:
    """Where few attract, the rest is looked up a piece at a time; no piece may be the last too early."""
    bad = [pod(f"bad-{name}", on=name, app="bad") for name in NAMES[:refusing]]
    index = many_nodes(*bad, pod("web", on=NAMES[-1], app="web"))
    search, groups = search_of(index, NAMES)
    for most in (2, 3):
        ranked = ranking.best_by_top_domains(groups, search, most, 0)
        found = [index.view.node_names[node] for _, node in ranked]
        assert found == [NAMES[-1], *NAMES[refusing : refusing + most - 1]]


def test_preferences_that_repel_are_not_sought_from_the_top() -> None:
    incoming = pod("asking", avoids=[weighted(1, term("host", app="web"))])
    index = many_nodes(pod("web", on="n0", app="web"))
    compiled = index.view.compiled(incoming.signature)
    groups = InterPodAffinity().ranked_groups(compiled, index.view, NODES_THERE, Settings().rules)
    assert groups
    assert not ranking.has_small_domains(groups)


def test_for_equals_no_domain_is_tried_that_is_worse_than_a_node_that_was_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    more = [pod(f"more-{name}", on=name, **liking(1)) for name in NAMES[:3]]
    index = many_nodes(*(pod(f"web-{name}", on=name, **liking(1)) for name in NAMES), *more)
    (search, groups), tried, passing = search_of(index, NAMES[1:20]), list[int](), RequestSearch.passing

    def counted(searched: RequestSearch, nodes: Sequence[int]) -> Sequence[int]:
        tried.append(len(nodes))
        return passing(searched, nodes)

    monkeypatch.setattr(RequestSearch, "passing", counted)
    found = ranking.equals_by_top_domains(groups, search, 32, 0)
    assert sorted(index.view.node_names[node] for node in found) == ["n1", "n2"]
    assert sum(tried) == 2
