"""Where the pods of a released group land: by their preferences, as they would without a gate, in both placements.

A small scheduler asks filter about each released pod, as kube-scheduler does, and chooses among the answered nodes by the scores of
the in-tree plugins that know preferences: NodeAffinity, TaintToleration, NodeResourcesFit, and the points of the extender.
"""

from __future__ import annotations

from collections import Counter

import pytest

from extender.model.constraints.labels import HOSTNAME, ZONE
from extender.model.constraints.taints import PREFER_NO_SCHEDULE
from extender.model.release import Domain
from tests.builders import Json, spread, taint, term, weighted
from tests.contenders import contender, stage
from tests.verbs.group_board import Board, nodes
from tests.verbs.preferring import prefers

MACHINE = "machine"
BOTH_PLACEMENTS = pytest.mark.parametrize("placement", ["decisive", "cooperative"])


@BOTH_PLACEMENTS
def test_a_gang_with_soft_spread_by_host_lands_on_as_many_nodes_as_it_has_pods(placement: str) -> None:
    board = Board(placement, *nodes(4))
    assert set(board.place("x", 4, spreads=[spread("host", hard=False, gang="x")]).values()) == {"s0", "s1", "s2", "s3"}


@BOTH_PLACEMENTS
def test_a_gang_lands_on_the_nodes_that_its_domain_prefers(placement: str) -> None:
    kinds = {"s0": "m", "s1": "m", "s2": "n", "s3": "n"}
    board = Board(placement, *(stage(name, "a", cpu=2000, labels={MACHINE: kind}) for name, kind in kinds.items()))
    domains = (Domain("both", ("m", "n"), preferred=("n",)),)
    found = board.place("x", 4, topology=[MACHINE], domains=domains)
    assert Counter(found.values()) == {"s2": 2, "s3": 2}


@BOTH_PLACEMENTS
def test_a_gang_lands_on_the_node_that_its_pods_prefer(placement: str) -> None:
    board = Board(placement, *nodes(3))
    assert set(board.place("x", 2, preferred_nodes=prefers(HOSTNAME, "s2")).values()) == {"s2"}


@BOTH_PLACEMENTS
def test_pods_of_a_gang_land_beside_those_that_they_prefer_and_away_from_those_that_they_avoid(placement: str) -> None:
    db = contender("db", cpu=1000, on="s2", app="db")
    near, away = [weighted(50, term("host", app="db"))], [weighted(50, term("host", gang="y"))]
    board = Board(placement, *nodes(4), db)
    assert set(board.place("x", 2, prefers=near).values()) == {"s2"}
    board = Board(placement, *nodes(4), db)
    assert Counter(board.place("y", 4, avoids=away).values()) == {"s0": 1, "s1": 1, "s2": 1, "s3": 1}


@BOTH_PLACEMENTS
def test_a_gang_stays_away_from_nodes_with_taints_that_its_pods_do_not_tolerate(placement: str) -> None:
    soft = [taint("old", "yes", PREFER_NO_SCHEDULE)]
    tainted = (stage(name, "a", taints=soft) for name in ("s0", "s1"))
    board = Board(placement, *tainted, stage("s2", "a"), stage("s3", "a"))
    assert set(board.place("x", 4).values()) == {"s2", "s3"}


@BOTH_PLACEMENTS
def test_a_gang_without_preferences_lands_where_the_least_is_requested(placement: str) -> None:
    board = Board(placement, *nodes(4), contender("big", cpu=3000, on="s0"))
    assert Counter(board.place("x", 3).values()) == {"s1": 1, "s2": 1, "s3": 1}


@BOTH_PLACEMENTS
def test_every_node_of_the_domain_that_holds_the_pod_is_answered_in_cooperative_placement(placement: str) -> None:
    board = Board(placement, *nodes(3), stage("other", "b", cpu=1000))
    board.place("x", 2)
    assert [len(board.answers[name]) for name in ("x-0", "x-1")] == ([1, 1] if placement == "decisive" else [3, 3])


@BOTH_PLACEMENTS
def test_groups_that_each_need_one_node_are_spread_over_all_nodes(placement: str) -> None:
    """150 groups of four on ten nodes, each of which is a domain: they were packed on six (kubernetes 107888)."""
    board = Board(placement, *nodes(10, cpu=100))
    found = Counter[str]()
    for number in range(150):
        (node,) = set(board.place(f"x{number}", 4, topology=[HOSTNAME]).values())
        found[node] += 1
    assert found == {f"s{number}": 15 for number in range(10)}


@BOTH_PLACEMENTS
@pytest.mark.parametrize("wanted", ["labels", "pods", "taints"])
def test_of_nodes_that_are_domains_a_group_gets_the_one_that_its_pods_prefer(placement: str, wanted: str) -> None:
    """s0 is the tightest, and s2 the one that is preferred."""
    soft = [taint("old", "yes", PREFER_NO_SCHEDULE)] if wanted == "taints" else []
    tainted = [stage(name, "a", taints=soft) for name in ("s0", "s1")]
    board = Board(placement, *tainted, stage("s2", "a", cpu=8000), contender("db", cpu=1000, on="s2", app="db"))
    fields: Json = {
        "labels": {"preferred_nodes": prefers(HOSTNAME, "s2")},
        "pods": {"prefers": [weighted(50, term("host", app="db"))]},
        "taints": {},
    }
    assert set(board.place("x", 2, topology=[HOSTNAME], **fields[wanted]).values()) == {"s2"}


@BOTH_PLACEMENTS
def test_of_equal_zones_a_group_gets_the_one_that_its_pods_prefer(placement: str) -> None:
    board = Board(placement, *(stage(f"n-{zone}", zone) for zone in "abc"))
    assert set(board.place("x", 2, preferred_nodes=prefers(ZONE, "c")).values()) == {"n-c"}
    assert set(board.place("y", 2).values()) == {"n-c"}, "the tightest one, whatever comes first by its name"


def test_room_is_reserved_where_the_pods_prefer_to_be() -> None:
    """So that other pods cannot take it before they are scheduled. The nodes are not used up, and the first ones fit too."""
    board = Board("cooperative", *nodes(6))
    assert len(set(board.slots("x", 6, spreads=[spread("host", hard=False, gang="x")]))) == 6
    assert set(board.slots("y", 2, preferred_nodes=prefers(HOSTNAME, "s4"))) == {"s4"}
    board.index.upsert(contender("big", cpu=3000, on="s0"))
    assert sorted(board.slots("z", 5)) == ["s1", "s2", "s3", "s4", "s5"]


def test_room_is_reserved_where_the_group_fits_if_it_does_not_fit_where_its_pods_prefer_to_be() -> None:
    """Two pods that prefer the large node would leave the third one, which needs it, no room."""
    board = Board("cooperative", stage("s0", "a", cpu=2000), stage("s1", "a", cpu=2000))
    bodies = [
        board.body(f"x-{number}", "x", cpu=cpu, preferred_nodes=prefers(HOSTNAME, "s1"))
        for number, cpu in enumerate((1000, 1000, 2000))
    ]
    assert sorted(board.reserved("x", bodies)) == ["s0", "s0", "s1"]


def test_what_is_reserved_for_other_groups_counts_as_requested() -> None:
    board = Board("cooperative", *nodes(4))
    assert len({*board.slots("x", 2, reserve=True), *board.slots("y", 2, reserve=True)}) == 4


@pytest.mark.parametrize(("strategy", "node"), [("LeastAllocated", "s2"), ("MostAllocated", "s0"), ("Ignored", "s1")])
def test_room_is_reserved_by_the_scoring_strategy(strategy: str, node: str) -> None:
    """Five eighths of s0 are in use, and s1 is the tightest."""
    used = contender("x", cpu=5000, on="s0")
    sizes = (stage(name, "a", cpu=cpu) for name, cpu in (("s0", 8000), ("s1", 2000), ("s2", 9000)))
    assert Board("cooperative", *sizes, used, scoringStrategy=strategy).slots("x", 2) == [node, node]
