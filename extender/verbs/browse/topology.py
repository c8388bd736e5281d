"""The domains of a label key of nodes, with the pods and the free resources of their nodes; and the nodes of one domain.

Labels are read from the nodes and not from the index of domains. That index keeps every key that it was asked for, and a client may
request any key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Final

from extender.index.nodes.columns import NodeNumber
from extender.index.view import ClusterView
from extender.model.answers.pages import DomainRow, KeySummary, NodeRow, TopologyPage, TopologyQuestion
from extender.model.bounded import Steps
from extender.model.constraints.labels import HOSTNAME, REGION, ZONE
from extender.model.objects import Node, Pod, PodSignature
from extender.model.resources import CPU, MEMORY
from extender.verbs.browse.pods import FirstRows, in_steps

_NODES_A_STEP: Final = 80  # at 2 µs
_DOMAINS_A_STEP: Final = 500  # at 0.3 µs
_ROWS_A_STEP: Final = 150  # at 1 µs
_COUNTS_A_STEP: Final = 2000  # at 0.1 µs
_LABELS_A_STEP: Final = 1000  # at 0.2 µs
_NODES_WITH_NAMES_A_STEP: Final = 4  # with some 30 pods each, at 0.2 µs
_NAMED: Final = 10  # pods of a node
_USUAL_KEYS: Final = (REGION, ZONE, HOSTNAME)
_MOST_KEYS: Final = 50


def _amounts(number: NodeNumber, node: Node, matching: int, view: ClusterView) -> dict[str, int]:
    """The used and the free resources of a node, as the fields that both kinds of rows have. O(1)."""
    offered, requested = node.allocatable, view.requested(number)
    return {
        "pods": len(view.pods_on(number)),
        "matching": matching,
        "allocatable_milli_cpu": offered.get(CPU, 0),
        "free_milli_cpu": offered.get(CPU, 0) - requested.get(CPU, 0),
        "allocatable_memory": offered.get(MEMORY, 0),
        "free_memory": offered.get(MEMORY, 0) - requested.get(MEMORY, 0),
    }


def topology_page(question: TopologyQuestion, view: ClusterView) -> Steps[TopologyPage]:
    """The page. O(nodes + signatures + nodes with a matching pod)."""
    # Sums are made for all domains, rows only for the domains of the page: a label such as the host name has a domain for each node.
    counts = yield from _matching(question, view)
    matching = sum(counts.values())
    if question.domain is not None:
        return (yield from _nodes_of(question, counts, view))
    sums: dict[str, Counter[str]] = {}
    lacking = 0
    for piece in in_steps(list(view.known.values()), _NODES_A_STEP):
        for number in piece:
            node = view.node(number)
            domain = None if node is None else node.labels.get(question.key)
            if node is None or domain is None:
                lacking += node is not None
                continue
            amounts = _amounts(number, node, counts.get(number, 0), view)
            sums.setdefault(domain, Counter()).update(amounts, nodes=1, unschedulable=node.unschedulable)
        yield
    page: FirstRows[str] = FirstRows(question.page.after, question.page.limit)
    for domains in in_steps(list(sums), _DOMAINS_A_STEP):
        for domain in domains:
            page.add(domain, domain)
        yield
    rows: list[DomainRow] = []
    for domains in in_steps(page.rows(), _ROWS_A_STEP):
        rows += [DomainRow(domain=domain, **sums[domain]) for domain in domains]
        yield
    return TopologyPage(
        key=question.key, lacking=lacking, matching=matching, domains=tuple(rows), more=page.more, next=page.next
    )


def _is_matching(question: TopologyQuestion, signature: PodSignature) -> bool:
    if question.page.namespace and signature.namespace != question.page.namespace:
        return False
    return question.selector is None or question.selector.matches(signature.labels)


def _matching(question: TopologyQuestion, view: ClusterView) -> Steps[Mapping[NodeNumber, int]]:
    """The number of matching pods on each node. O(signatures + nodes with such a pod), or O(nodes) if all pods match."""
    if not question.page.namespace and question.selector is None:
        yield
        return {number: len(view.pods_on(number)) for number in view.known.values()}
    counts: dict[NodeNumber, int] = {}
    looked = 0
    for placed in view.placed(wanted=partial(_is_matching, question)):
        if placed is None:
            yield
            continue
        looked += len(placed.nodes)
        for number, pods in placed.nodes.items():
            counts[number] = counts.get(number, 0) + pods
        if looked >= _COUNTS_A_STEP:
            looked = 0
            yield
    return counts


def _nodes_of(question: TopologyQuestion, counts: Mapping[NodeNumber, int], view: ClusterView) -> Steps[TopologyPage]:
    page: FirstRows[NodeNumber] = FirstRows(question.page.after, question.page.limit)
    lacking = 0
    for piece in in_steps(list(view.known.items()), _NODES_A_STEP):
        for name, number in piece:
            node = view.node(number)
            domain = None if node is None else node.labels.get(question.key)
            lacking += node is not None and domain is None
            if domain is not None and domain == question.domain:
                page.add(name, number)
        yield
    rows: list[NodeRow] = []
    for numbers in in_steps(page.rows(), _NODES_WITH_NAMES_A_STEP):
        for number in numbers:
            node = view.node(number)
            if node is not None:  # else deleted since
                amounts = _amounts(number, node, counts.get(number, 0), view)
                names = tuple(_names(view.pods_on(number), question)) if amounts["matching"] else ()
                rows.append(NodeRow(node=node.name, unschedulable=node.unschedulable, pod_names=names, **amounts))
        yield
    return TopologyPage(
        key=question.key,
        lacking=lacking,
        matching=sum(counts.values()),
        domain=question.domain,
        nodes=tuple(rows),
        more=page.more,
        next=page.next,
    )


def _names(pods: Mapping[str, Pod], question: TopologyQuestion) -> list[str]:
    """The first few matching pods in the order of their names. O(pods of the node)."""
    return sorted(pod.full_name for pod in pods.values() if _is_matching(question, pod.signature))[:_NAMED]


def topology_keys(view: ClusterView) -> Steps[tuple[tuple[KeySummary, ...], int]]:
    """The label keys of nodes, and how many more there are. O(labels of all nodes)."""
    nodes: dict[str, int] = {}
    values: dict[str, set[str]] = {}
    looked = 0
    for number in list(view.known.values()):
        node = view.node(number)
        if node is None:
            continue
        for key, value in node.labels.items():
            nodes[key] = nodes.get(key, 0) + 1
            values.setdefault(key, set()).add(value)
        looked += len(node.labels)
        if looked >= _LABELS_A_STEP:
            looked = 0
            yield
    ranked = sorted(nodes, key=lambda key: (_usual(key), -nodes[key], len(values[key]), key))
    summaries = tuple(KeySummary(key=key, domains=len(values[key]), nodes=nodes[key]) for key in ranked[:_MOST_KEYS])
    return summaries, max(len(ranked) - _MOST_KEYS, 0)


def _usual(key: str) -> int:
    return _USUAL_KEYS.index(key) if key in _USUAL_KEYS else len(_USUAL_KEYS)
