"""Placed pods with affinity across namespaces, and the nodes that they close to others, by namespace; for metrics.

These are the pods that a quota of the scope CrossNamespacePodAffinity would count (KEP-2249), even if there is none.
Read from existing tables, so no event of a pod costs more. For a million such pods it takes seconds, so it is done in
steps.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Final

from extender.index.cluster import ClusterIndex
from extender.index.counts.namespace_budgets import MOST_SHOWN, OTHERS
from extender.index.nodes.columns import NodeNumber
from extender.model.bounded import at_once
from extender.model.constraints.terms import by_names, may_reach_out
from extender.model.objects import PodSignature

_NODES_A_STEP: Final = 2000  # of signatures, at 0.3 µs


@dataclass(frozen=True, slots=True)
class Crossing:
    """``pods``: placed and assumed pods of the namespaces with most, and the sum for all others.

    ``closed_nodes``: how many nodes a namespace's required anti-affinity closes to pods of other namespaces, for the
    namespaces with most. A term counts if it can reach another namespace, even if it selects no pod there now.
    """

    pods: Mapping[str, float] = field(default_factory=lambda: {OTHERS: 0.0})
    closed_nodes: Mapping[str, float] = field(default_factory=dict)


def measure_crossing(index: ClusterIndex) -> Generator[None, None, Crossing]:
    """Returns it after steps of a millisecond. O(signatures × nodes). Changes in between may or may not be included."""
    pods, closed = dict[str, float](), dict[str, float]()
    for name in _namespaces(index):
        domains: dict[str, set[int]] = {}
        pods[name] = yield from _measure_namespace(index, name, domains)
        closed[name] = float(_closed(index, domains))
        yield
    shown = _most({name: count for name, count in pods.items() if count})
    others = {OTHERS: sum(pods.values()) - sum(shown.values())}
    return Crossing(others | shown, _most({name: nodes for name, nodes in closed.items() if nodes}))


def count_crossing(index: ClusterIndex) -> Crossing:
    """`measure_crossing` in one step."""
    return at_once(measure_crossing(index))


def _measure_namespace(
    index: ClusterIndex, namespace: str, domains: dict[str, set[int]]
) -> Generator[None, None, float]:
    """Returns how many pods a namespace has. Adds the domains that they close to ``domains``, by topology key."""
    pods = looked = 0
    for signature, nodes in _placed(index, namespace):
        pods += sum(nodes.values())
        affinity = signature.affinity if index.counts.reads_selectors else by_names(signature.affinity)
        keys = [term.topology_key for term in affinity.required_anti if may_reach_out(term, namespace)]
        for key in keys:
            # Asking for a key that no node has would make a column for it, and tenants may invent keys.
            if index.topology.is_carried(key):
                of_node = index.view.key(key).of_node
                domains.setdefault(key, set()).update([of_node[node] for node in nodes])
        looked += len(nodes) * (1 + len(keys)) + 1
        if looked >= _NODES_A_STEP:
            looked = 0
            yield
    return float(pods)


def _namespaces(index: ClusterIndex) -> list[str]:
    return [name for name, use in index.namespace_budgets.by_namespace.items() if use.crossing]


def _most(numbers: Mapping[str, float]) -> dict[str, float]:
    return {name: numbers[name] for name in nlargest(MOST_SHOWN, numbers, key=numbers.__getitem__)}


def _placed(index: ClusterIndex, namespace: str) -> Iterator[tuple[PodSignature, Mapping[NodeNumber, int]]]:
    """The signatures with placed pods, and the pods by node number.

    Terminating pods included: they keep others away too.
    """
    use = index.namespace_budgets.by_namespace.get(namespace)
    for signature in () if use is None else tuple(use.crossing):
        for terminating in (False, True):
            counts = index.counts.signatures.find(signature, terminating=terminating)
            if counts is not None and counts.nodes:
                yield signature, counts.nodes


def _closed(index: ClusterIndex, domains: Mapping[str, set[int]]) -> int:
    """How many nodes are in these domains."""
    keys = {name: index.view.key(name).nodes_in for name in domains}
    if len(keys) == 1:  # no node is in two domains of a key
        ((name, nodes_in),) = keys.items()
        return sum(len(nodes_in.get(domain, ())) for domain in domains[name])
    return len(
        {node for name, nodes_in in keys.items() for domain in domains[name] for node in nodes_in.get(domain, ())}
    )
