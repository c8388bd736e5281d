"""Placed pods with affinity across namespaces, and the nodes that they close to others, by namespace: for metrics.

The pods are those that a quota of the scope CrossNamespacePodAffinity would count (KEP-2249), whether there is one or not. Read
from what the index keeps anyway, so nothing is counted between two scrapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import nlargest

from extender.index.cluster import ClusterIndex
from extender.index.counts.namespace_budgets import MOST_SHOWN, OTHERS
from extender.index.view import NodeNumber
from extender.model.cross_namespace import may_reach_out
from extender.model.objects import PodSignature


def crossing_pods(index: ClusterIndex) -> dict[str, float]:
    """Placed and assumed pods of the namespaces with most, and of all others together. O(their signatures × nodes)."""
    found = {
        namespace: float(sum(sum(nodes.values()) for _, nodes in _placed(index, namespace)))
        for namespace in _namespaces(index)
    }
    shown = _most({name: pods for name, pods in found.items() if pods})
    return {OTHERS: sum(found.values()) - sum(shown.values())} | shown


def closed_nodes(index: ClusterIndex) -> dict[str, float]:
    """The nodes that required anti-affinity of a namespace closes to pods of others, for the namespaces with most.

    A term counts if it can reach another namespace, whether it selects any pod there now or not. O(signatures × nodes).
    """
    return _most({name: nodes for name in _namespaces(index) if (nodes := float(_closed(index, name)))})


def _namespaces(index: ClusterIndex) -> list[str]:
    return [name for name, use in index.namespace_budgets.by_namespace.items() if use.crossing]


def _most(found: Mapping[str, float]) -> dict[str, float]:
    return {name: found[name] for name in nlargest(MOST_SHOWN, found, key=found.__getitem__)}


def _placed(index: ClusterIndex, namespace: str) -> Iterator[tuple[PodSignature, Mapping[NodeNumber, int]]]:
    """The signatures with placed pods, with these by node number; terminating pods keep others away too."""
    for signature in index.namespace_budgets.by_namespace[namespace].crossing:
        for terminating in (False, True):
            found = index.counts.signatures.find(signature, terminating=terminating)
            if found is not None and found.nodes:
                yield signature, found.nodes


def _closed(index: ClusterIndex, namespace: str) -> int:
    domains: dict[str, set[int]] = {}
    for signature, nodes in _placed(index, namespace):
        for term in signature.affinity.required_anti:
            if may_reach_out(term, namespace) and index.topology.is_carried(term.topology_key):
                of_node = index.view.key(term.topology_key).of_node
                domains.setdefault(term.topology_key, set()).update(of_node[node] for node in nodes)
    keys = {name: index.view.key(name).nodes_in for name in domains}
    if len(keys) == 1:  # domains of one key have no node in common
        ((name, nodes_in),) = keys.items()
        return sum(len(nodes_in.get(domain, ())) for domain in domains[name])
    return len(
        {node for name, nodes_in in keys.items() for domain in domains[name] for node in nodes_in.get(domain, ())}
    )
