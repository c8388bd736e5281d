"""Where the pods of a released group land: by their preferences, as they would without a gate, in both placements.

A small scheduler asks filter about each released pod, as kube-scheduler does, and chooses among the answered nodes by the scores of
the in-tree plugins that know preferences: NodeAffinity, TaintToleration, NodeResourcesFit, and the points of the extender.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

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


SOFT_TAINTS = [taint("old", "yes", PREFER_NO_SCHEDULE)]
DB = contender("db", cpu=1000, on="s2", app="db")
KINDS = [stage(f"s{at}", "a", cpu=2000, labels={MACHINE: "mmnn"[at]}) for at in range(4)]
TAINTED = [stage(name, "a", taints=SOFT_TAINTS) for name in ("s0", "s1")]
PREFERRED_N: Json = {"topology": [MACHINE], "domains": (Domain("both", ("m", "n"), preferred=("n",)),)}
# In the last three s0 is the tightest node, and each node is a domain.
LARGE_S2 = [stage("s0", "a"), stage("s1", "a"), stage("s2", "a", cpu=8000), DB]
LARGE_S2_TAINTED = [*TAINTED, *LARGE_S2[2:]]
BY_HOST: Json = {"topology": [HOSTNAME]}
# The cluster, the group, its pods, what they ask for, and how many land on each node.
LANDINGS: dict[str, tuple[list[Any], str, int, Json, dict[str, int]]] = {
    "soft spread by host": (
        nodes(4), "x", 4, {"spreads": [spread("host", hard=False, gang="x")]}, {"s0": 1, "s1": 1, "s2": 1, "s3": 1},
    ),
    "nodes that the domain prefers": (KINDS, "x", 4, PREFERRED_N, {"s2": 2, "s3": 2}),
    "the node that the pods prefer": (nodes(3), "x", 2, {"preferred_nodes": prefers(HOSTNAME, "s2")}, {"s2": 2}),
    "beside pods that they prefer": (
        [*nodes(4), DB], "x", 2, {"prefers": [weighted(50, term("host", app="db"))]}, {"s2": 2},
    ),
    "away from pods that they avoid": (
        [*nodes(4), DB], "y", 4, {"avoids": [weighted(50, term("host", gang="y"))]},
        {"s0": 1, "s1": 1, "s2": 1, "s3": 1},
    ),
    "away from soft taints": ([*TAINTED, stage("s2", "a"), stage("s3", "a")], "x", 4, {}, {"s2": 2, "s3": 2}),
    "where the least is requested": (
        [*nodes(4), contender("big", cpu=3000, on="s0")], "x", 3, {}, {"s1": 1, "s2": 1, "s3": 1},
    ),
    "a domain by labels": (LARGE_S2, "x", 2, BY_HOST | {"preferred_nodes": prefers(HOSTNAME, "s2")}, {"s2": 2}),
    "a domain by pods": (LARGE_S2, "x", 2, BY_HOST | {"prefers": [weighted(50, term("host", app="db"))]}, {"s2": 2}),
    "a domain by taints": (LARGE_S2_TAINTED, "x", 2, BY_HOST, {"s2": 2}),
}  # fmt: skip


@BOTH_PLACEMENTS
@pytest.mark.parametrize(("objects", "name", "count", "fields", "expected"), LANDINGS.values(), ids=LANDINGS)
def test_where_a_gang_lands(
    objects: list[Any], name: str, count: int, fields: Json, expected: dict[str, int], placement: str
) -> None:
    assert Counter(Board(placement, *objects).place(name, count, **fields).values()) == expected


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
