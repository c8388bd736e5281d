"""Recounts everything from the objects alone and names every difference from the running counts.

Slow on purpose: it trusts no anchor and no membership, only the objects and the definitions of the terms.
Used after every step of the property tests, and on the running index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from extender.index.cluster import ClusterIndex
from extender.index.groups import Group
from extender.index.placements import Placement
from extender.index.selections import Audience, TermSelection
from extender.index.spread_counts import SpreadKey
from extender.index.term_counts import OwnerGroup, terms_of
from extender.model.objects import Node, Pod, PodShape

_NODES_A_STEP = 200


def audit(index: ClusterIndex) -> list[str]:
    """One line per difference; empty when every count is true and none ever was not. O(groups × shapes + pods)."""
    repaired = [f"the index had to be counted anew {index.drifts} times"] if index.drifts else []
    return [*repaired, *(line for check in audit_steps(index) for line in check())]


def audit_steps(index: ClusterIndex) -> Iterator[Callable[[], list[str]]]:
    """The audit cut into steps that may be run one at a time, with changes in between: some nodes, or one group, each.

    A group that was given back in between is counted no longer, and finds nothing wrong.
    """
    yield partial(_check_totals, index)
    numbers = range(len(index.topology.nodes))
    for start in range(0, len(numbers), _NODES_A_STEP):
        yield partial(_check_nodes, index, numbers[start : start + _NODES_A_STEP])
    for selection, key, group in list(index.terms.asked()):
        yield partial(_check_asked, index, selection, key, group)
    for owner in list(index.terms.owned()):
        yield partial(_check_owned, index, owner)
    for _, spread_key, spread in list(index.spreads.asked()):
        yield partial(_check_spread, index, spread_key, spread)


def _standing(index: ClusterIndex) -> Iterator[Pod]:
    """Every pod with a node: shown by the watch, or assumed on one."""
    yield from (pod for pod in index.pods.values() if pod.node)
    yield from (assumed.pod for assumed in index.assumed.held.values() if assumed.pod.node)


def _check_totals(index: ClusterIndex) -> list[str]:
    table = sum(1 for _ in _standing(index))
    placed = sum(sum(placement.nodes.values()) for placement in index.placements)
    here = sum(len(index.pods_on(number)) for number in range(len(index.topology.nodes)))
    if table == placed == here:
        return []
    return [f"{table} pods have a node, {placed} are counted by shape, {here} by node"]


def _check_nodes(index: ClusterIndex, numbers: Sequence[int]) -> list[str]:
    """The pods on some nodes: with the totals, that placements and nodes hold exactly the pods of the table."""
    problems = []
    for number in numbers:
        pods = index.pods_on(number).values()
        true = Counter((pod.shape, pod.terminating) for pod in pods)
        counted = {key: _placed(index, key, number) for key in true}
        if true != counted or any(pod.node != index.node_names[number] for pod in pods):
            problems.append(
                f"pods on {index.node_names[number]}: {sum(counted.values())} counted, {true.total()} there"
            )
    return problems


def _placed(index: ClusterIndex, key: tuple[PodShape, bool], number: int) -> int:
    placement = index.placements.find(key[0], terminating=key[1])
    return placement.nodes.get(number, 0) if placement else 0


def _count(index: ClusterIndex, topology_key: str, per_pod: Callable[[Placement], int]) -> Counter[str]:
    """Pods by the label's value of their node, each as often as ``per_pod`` says of its shape."""
    true: Counter[str] = Counter()
    for placement in index.placements:
        times = per_pod(placement)
        for number, pods in placement.nodes.items() if times else ():
            node = index.topology.nodes[number]
            if node is not None and topology_key in node.labels:
                true[node.labels[topology_key]] += times * pods
    return true


def _check_asked(index: ClusterIndex, selection: TermSelection, topology_key: str, group: Group) -> list[str]:
    if not index.terms.is_asked(selection, group):
        return []

    def counts(placement: Placement) -> int:
        shape = placement.shape
        return int(
            all(_covers(index, who, shape) and who.selector.matches(shape.labels) for who in selection.audiences)
        )

    return _compare(f"term group over {topology_key}", _count(index, topology_key, counts), group)


def _covers(index: ClusterIndex, who: Audience, shape: PodShape) -> bool:
    if who.covers_all or shape.namespace in who.namespaces:
        return True
    labels = index.namespaces.labels(shape.namespace)
    return who.namespace_selector is not None and labels is not None and who.namespace_selector.matches(labels)


def _check_owned(index: ClusterIndex, group: OwnerGroup) -> list[str]:
    if not index.terms.is_owned(group):
        return []
    wanted = (group.role, group.term, group.weight)
    true = _count(index, group.key.key, lambda placement: list(terms_of(placement.shape)).count(wanted))
    return _compare(f"inverse group ({group.role.value}) over {group.key.key}", true, group)


def _check_spread(index: ClusterIndex, key: SpreadKey, group: Group) -> list[str]:
    if not index.spreads.is_asked(key, group):
        return []
    true: Counter[str] = Counter()
    for placement in index.placements:
        shape = placement.shape
        counts = not placement.terminating and not key.selector.is_empty and shape.namespace == key.namespace
        if counts and key.selector.matches(shape.labels):
            for number, pods in placement.nodes.items():
                value = _spread_value(index.topology.nodes[number], key)
                if value is not None:
                    true[value] += pods
    return _compare(f"spread group over {key.topology_key or 'each node'} in {key.namespace}", true, group)


def _spread_value(node: Node | None, key: SpreadKey) -> str | None:
    """The domain in which a node's pods count for the group, None where they do not."""
    if node is None or not key.inclusion.admits(node):
        return None
    if not key.topology_key:
        return node.name
    return node.labels.get(key.topology_key, "" if key.inclusion.missing_as_empty else None)


def _compare(name: str, true: Counter[str], group: Group) -> list[str]:
    running = {group.key.value(domain): count for domain, count in group.counts.items()}
    return [
        f"{name}: {value!r} is counted {running.get(value, 0)} times, should be {true.get(value, 0)}"
        for value in sorted(true.keys() | running.keys())
        if true.get(value, 0) != running.get(value, 0)
    ]
