"""What is broken of running pods, case by case, and since when."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from extender.features.execution.broken import Place
from extender.features.execution.directive import WatchedConstraint
from extender.model.bounded import at_once
from extender.model.objects import Object
from tests.builders import node, pod, spread, term
from tests.features.execution.watching import texts, watch, watched, web, webs, zoned

NEAR_DB = [term("zone", app="db")]
APART = [term("host", app="web")]
# The pods on one node in each of three zones; what is broken, and the measure.
CASES: dict[str, tuple[Sequence[Object], list[str], int]] = {
    "an even spread": (webs(2, 1, 1), [], 0),
    "a zone above the minimum and maxSkew": (
        webs(5, 2, 2),
        ["topology.kubernetes.io/zone=a has 5 pods, at most 3 keep the spread"],
        2,
    ),
    "two zones above": (
        webs(3, 2, 0),
        [
            "topology.kubernetes.io/zone=a has 3 pods, at most 1 keep the spread",
            "topology.kubernetes.io/zone=b has 2 pods, at most 1 keep the spread",
        ],
        3,
    ),
    "pods of one constraint count once, whatever else differs": (
        [*webs(3, 0, 0), *webs(3, 0, 0, tier="x")][1:],
        ["topology.kubernetes.io/zone=a has 3 pods, at most 1 keep the spread"],
        2,
    ),
    "terminating pods do not count": ([*webs(2, 1, 1), web("old", "a0", terminating=True)], [], 0),
    "the node was relabelled": (
        [web("web", "a0", spreads=[], node_selector={"pool": "x"})],
        ["required node affinity does not match node a0"],
        1,
    ),
    "the pod that it needs is in another zone": (
        [web("web", "a0", spreads=[], near=NEAR_DB), pod("db", on="b0", app="db")],
        ["required affinity selects no pod in topology.kubernetes.io/zone=a"],
        1,
    ),
    "the pod that it needs is there": ([web("web", "a0", spreads=[], near=NEAR_DB), pod("db", on="a0", app="db")], [], 0),
    "the first pod that its own term selects": ([web("web", "a0", spreads=[], near=[term("zone", app="web")])], [], 0),
    "two of them in two zones": (
        [web(f"web-{at}", at, spreads=[], near=[term("zone", app="web")]) for at in ("a0", "b0")],
        [
            "required affinity selects no pod in topology.kubernetes.io/zone=a",
            "required affinity selects no pod in topology.kubernetes.io/zone=b",
        ],
        2,
    ),
    "two pods that exclude each other, each in both directions": (
        webs(2, spreads=[], apart=APART),
        ["anti-affinity excludes 1 pod in kubernetes.io/hostname=a0"],
        4,
    ),
    "a pod that another one excludes": (
        [web("web", "a0", spreads=[]), pod("db", on="a0", app="db", apart=APART)],
        # Once for each of the two pods.
        ["anti-affinity excludes 1 pod in kubernetes.io/hostname=a0"] * 2,
        2,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("pods", "expected", "measure"), CASES.values(), ids=CASES)
def test_what_is_broken(pods: Sequence[Object], expected: list[str], measure: int) -> None:
    _, broken = watched(*zoned(1, 1, 1), *{each.key: each for each in pods}.values())
    assert (texts(broken), broken.measure) == (expected, measure)


def test_only_the_kinds_that_the_policy_names_are_watched() -> None:
    pods = webs(5, 2, 2, node_selector={"pool": "x"})
    _, broken = watched(*zoned(1, 1, 1), *pods, policy=watch(constraints=["NodeAffinity"]))
    assert set(texts(broken)) == {f"required node affinity does not match node {zone}0" for zone in "abc"}


def test_a_policy_of_a_namespace_watches_its_own_pods() -> None:
    _, broken = watched(*zoned(1, 1, 1), *webs(5, 2, 2), policy=watch("other"))
    assert texts(broken) == []


def test_what_stays_broken_is_broken_since_the_round_that_found_it() -> None:
    index, broken = watched(*zoned(1, 1, 1), *webs(5, 2, 2))
    (signature,) = broken.found
    place = Place(WatchedConstraint.TOPOLOGY_SPREAD, "topology.kubernetes.io/zone", "a")
    index.delete(web("web-a4", "a0"))
    at_once(broken.round(10.0))
    assert (broken.since, broken.measure) == ({signature: {place: 0.0}}, 1)
    index.delete(web("web-a3", "a0"))
    at_once(broken.round(20.0))
    assert (broken.since, broken.found) == ({}, {})


def test_a_round_after_no_change_compares_nothing() -> None:
    index, broken = watched(*zoned(1, 1, 1), *webs(2, 2, 2), web("db", "a0", app="db", spreads=[]))
    judged = broken.judged
    at_once(broken.round(10.0))
    assert broken.judged == judged
    # A pod that no watched constraint counts: the round compares, and judges only its own signature.
    index.upsert(web("other", "a0", app="other", spreads=[]))
    at_once(broken.round(20.0))
    assert broken.judged == judged + 1


def test_a_relabelled_node_is_noticed() -> None:
    pods = [web("web", "a0", spreads=[], node_selector={"pool": "x"})]
    index, broken = watched(node("a0", pool="x"), *pods)
    assert texts(broken) == []
    index.upsert(node("a0", pool="y"))
    at_once(broken.round(1.0))
    assert texts(broken) == ["required node affinity does not match node a0"]


def test_a_pod_that_terminates_is_no_longer_judged() -> None:
    index, broken = watched(*zoned(1, 1, 1), web("web", "a0", spreads=[], node_selector={"pool": "x"}))
    assert texts(broken)
    index.upsert(replace(web("web", "a0", spreads=[], node_selector={"pool": "x"}), terminating=True))
    at_once(broken.round(1.0))
    assert (broken.found, broken.since) == ({}, {})


def test_excluded_and_needed_domains_are_those_of_filter() -> None:
    """Two zones where minDomains asks for three: the minimum is 0."""
    strict = [spread("zone", app="web", min_domains=3)]
    _, broken = watched(*zoned(1, 1), *webs(2, 2, spreads=strict))
    assert broken.measure == 2
