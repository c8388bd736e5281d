"""What placed pods with affinity across namespaces close to others, by namespace."""

from __future__ import annotations

from typing import Any

import pytest

from extender.features.quotas.crossing import count_crossing, measure_crossing
from extender.index.cluster import ClusterIndex
from extender.model.objects import Pod
from tests.builders import index_of, node, pod, settings, term
from tests.explaining import finished
from tests.index.counting import Deleted, Step, apply

EVERYWHERE: dict[str, Any] = {"namespace_selector": {}}


def cluster(*pods: Pod) -> ClusterIndex:
    """Six nodes in three zones, two in each."""
    return index_of(*(node(f"n{number}", zone=f"z{number // 2}") for number in range(6)), *pods)


def apart(
    name: str, on: str, key: str = "zone", namespace: str = "red", *, terminating: bool = False, **reach: Any
) -> Pod:
    terms = [term(key, app="web", **(reach or EVERYWHERE))]
    return pod(name, on=on, namespace=namespace, apart=terms, terminating=terminating)


DELETED, OWN = apart("b", "n0"), apart("own", "n0", namespaces=["red"])
NEAR = pod("near", on="n1", near=[term("zone", app="web", **EVERYWHERE)])
# Steps, the nodes that are closed to others, and the pods with such affinity, by namespace.
CROSSINGS: dict[str, tuple[list[Step], dict[str, float], dict[str, float]]] = {
    "the nodes of each domain": (
        [apart("a", "n0"), apart("b", "n1"), apart("c", "n2"), apart("d", "n5", "host", "blue")],
        {"red": 4, "blue": 1}, {"red": 3, "blue": 1},
    ),
    "terms over several keys": ([apart("a", "n0"), apart("b", "n1", "host"), apart("c", "n2", "host")], {"red": 3}, {"red": 3}),
    "terms that stay in their namespace": ([OWN, NEAR], {}, {"red": 1, "default": 1}),
    "a pending pod and a deleted one": ([apart("a", ""), DELETED, Deleted(DELETED)], {}, {}),
    "a terminating pod": ([apart("a", "n0", terminating=True)], {"red": 2}, {"red": 1}),
    "a signature whose pods are deleted": ([OWN, DELETED, Deleted(DELETED)], {}, {"red": 1}),
    "keys and nodes that do not exist": ([apart("a", "n0", "rack"), apart("b", "ghost")], {}, {"red": 2}),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "closed", "pods"), CROSSINGS.values(), ids=CROSSINGS)
def test_each_node_of_a_domain_with_such_a_pod_is_closed_once(
    steps: list[Step], closed: dict[str, float], pods: dict[str, float]
) -> None:
    found = count_crossing(apply(cluster(), *steps))
    assert (found.closed_nodes, found.pods) == (closed, {"(others)": 0} | pods)


def test_nothing_is_kept_of_signatures_whose_pods_are_deleted() -> None:
    index = apply(cluster(), OWN, DELETED, Deleted(DELETED))
    assert len(index.namespace_budgets.by_namespace["red"].crossing) == 1


def test_a_term_whose_namespace_selector_is_ignored_closes_nothing_to_others() -> None:
    """KEP-2249, "Upgrade / Downgrade Strategy": the selector is ignored though it is set."""
    ignored = settings(rules={"interPodAffinity": {"namespaceSelector": False}}).rules
    index = index_of(node("n0", zone="z0"), node("n1", zone="z1"), apart("a", "n0"), rules=ignored)
    assert count_crossing(index).closed_nodes == {}
    index.upsert(apart("b", "n1", namespaces=["green"], namespace_selector={}))
    assert count_crossing(index).closed_nodes == {"red": 1}


def test_only_the_ten_namespaces_with_most_are_named() -> None:
    sizes = {f"ns{number}": 1 + number // 6 for number in range(12)}
    index = cluster(
        *(apart(f"{name}-{at}", "n0", namespace=name) for name, size in sizes.items() for at in range(size))
    )
    found = count_crossing(index)
    assert (len(found.pods), found.pods["(others)"], sum(found.pods.values())) == (11, 2, 18)
    assert len(found.closed_nodes) == 10


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
    found = finished(steps)
    assert sum(found.pods.values()) <= 20, "those of the first namespace, which was counted before"
