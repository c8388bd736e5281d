"""What placed pods with affinity across namespaces close to others, by namespace."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from extender.index.cluster import ClusterIndex
from extender.index.crossing import Crossing, count_crossing, measure_crossing
from extender.model.objects import Pod
from tests.builders import index_of, node, pod, settings, term


def closed_nodes(index: ClusterIndex) -> dict[str, float]:
    return dict(count_crossing(index).closed_nodes)


def crossing_pods(index: ClusterIndex) -> dict[str, float]:
    return dict(count_crossing(index).pods)


EVERYWHERE: dict[str, Any] = {"namespace_selector": {}}


def cluster(*pods: Pod) -> ClusterIndex:
    """Six nodes in three zones, two in each."""
    return index_of(*(node(f"n{number}", zone=f"z{number // 2}") for number in range(6)), *pods)


def apart(
    name: str, on: str, key: str = "zone", namespace: str = "red", *, terminating: bool = False, **reach: Any
) -> Pod:
    terms = [term(key, app="web", **(reach or EVERYWHERE))]
    return pod(name, on=on, namespace=namespace, apart=terms, terminating=terminating)


def test_the_nodes_of_each_domain_with_such_a_pod_are_closed_once() -> None:
    index = cluster(apart("a", "n0"), apart("b", "n1"), apart("c", "n2"), apart("d", "n5", "host", "blue"))
    assert closed_nodes(index) == {"red": 4, "blue": 1}
    assert crossing_pods(index) == {"(others)": 0, "red": 3, "blue": 1}


def test_terms_over_several_keys_close_a_node_once() -> None:
    index = cluster(apart("a", "n0"), apart("b", "n1", "host"), apart("c", "n2", "host"))
    assert closed_nodes(index) == {"red": 3}


def test_terms_that_stay_in_their_namespace_close_nothing_to_others_and_count() -> None:
    index = cluster(
        apart("own", "n0", namespaces=["red"]), pod("near", on="n1", near=[term("zone", app="web", **EVERYWHERE)])
    )
    assert (closed_nodes(index), crossing_pods(index)) == ({}, {"(others)": 0, "red": 1, "default": 1})


def test_a_term_whose_namespace_selector_is_ignored_closes_nothing_to_others() -> None:
    """KEP-2249, "Upgrade / Downgrade Strategy": the selector is ignored though it is set."""
    ignored = settings(rules={"interPodAffinity": {"namespaceSelector": False}}).rules
    index = index_of(node("n0", zone="z0"), node("n1", zone="z1"), apart("a", "n0"), rules=ignored)
    assert closed_nodes(index) == {}
    index.upsert(apart("b", "n1", namespaces=["green"], namespace_selector={}))
    assert closed_nodes(index) == {"red": 1}


def test_pending_pods_close_nothing_and_deleted_ones_no_more() -> None:
    index = cluster(apart("a", ""), gone := apart("b", "n0"))
    index.delete(gone)
    assert (closed_nodes(index), crossing_pods(index)) == ({}, {"(others)": 0})


def test_a_pod_that_is_being_deleted_still_closes_its_domain() -> None:
    index = cluster(apart("a", "n0", terminating=True))
    assert (closed_nodes(index), crossing_pods(index)["red"]) == ({"red": 2}, 1)


def test_nothing_is_kept_of_signatures_whose_pods_are_gone() -> None:
    index = cluster(apart("stays", "n0", namespaces=["red"]), gone := apart("b", "n0"))
    index.delete(gone)
    assert len(index.namespace_budgets.by_namespace["red"].crossing) == 1


def test_keys_and_nodes_that_do_not_exist_close_nothing() -> None:
    index = cluster(apart("a", "n0", "rack"), apart("b", "ghost"))
    assert closed_nodes(index) == {}


def test_only_the_ten_namespaces_with_most_are_named() -> None:
    pods = [
        apart(f"p{number}-{each}", "n0", namespace=f"ns{number}")
        for number in range(12)
        for each in range(1 + number // 6)
    ]
    found = crossing_pods(cluster(*pods))
    assert (len(found), found["(others)"], sum(found.values())) == (11, 2, 18)
    assert len(closed_nodes(cluster(*pods))) == 10


def test_a_step_reads_a_bounded_number_of_nodes_and_pods_may_go_between_two() -> None:
    """A scrape of all at once would hold each answer for seconds where a million pods have such affinity."""
    nodes = [node(f"n{number}", zone="z") for number in range(100)]
    pods = [apart(f"p{number}", f"n{number}", "host", namespace=f"ns{number % 5}") for number in range(100)]
    index = index_of(*nodes, *pods)
    steps = measure_crossing(index)
    taken = sum(1 for _ in steps)
    assert taken >= 5, "one for each namespace at least"
    steps = measure_crossing(index)
    next(steps)
    for each in pods:
        index.delete(each)
    found = rest_of(steps)
    assert sum(found.pods.values()) <= 20, "those of the first namespace, which was counted before"


def rest_of(steps: Generator[None, None, Crossing]) -> Crossing:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Crossing = end.value
            return found
