"""Recounts everything from the objects alone and names every difference from the running counts.

Slow on purpose: it trusts no anchor, no membership and no number, only the objects and the definitions of the terms.
Used after every step of the property tests, and on the running index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from extender.index.cluster import ClusterIndex
from extender.index.groups import Group
from extender.index.selections import Audience, TermSelection
from extender.index.spread_counts import SpreadKey
from extender.index.term_counts import OwnerGroup, terms_of
from extender.model.objects import Node, Pod


def audit(index: ClusterIndex) -> list[str]:
    """One line per difference; empty when every count is true. O(groups × pods)."""
    return [line for check in audit_steps(index) for line in check()]


def audit_steps(index: ClusterIndex) -> Iterator[Callable[[], list[str]]]:
    """The audit cut into steps (the tables, then one per group) that may be run one at a time."""
    yield lambda: _check_tables(index)
    for selection, key, group in list(index.terms.asked()):
        yield lambda s=selection, k=key, g=group: _check_asked(index, s, k, g)  # type: ignore[misc]
    for owner in list(index.terms.owned()):
        yield lambda o=owner: _check_owned(index, o)  # type: ignore[misc]
    for _, spread_key, spread in list(index.spreads.asked()):
        yield lambda k=spread_key, g=spread: _check_spread(index, k, g)  # type: ignore[misc]


def _placed(index: ClusterIndex) -> Iterator[tuple[Pod, Node]]:
    nodes = {node.name: node for node in index.topology.nodes if node is not None}
    for pod in _standing(index):
        node = nodes.get(pod.node)
        if node is not None:
            yield pod, node


def _standing(index: ClusterIndex) -> Iterator[Pod]:
    """Every pod with a node: shown by the watch, or assumed on one."""
    yield from (pod for pod in index.pods.values() if pod.node)
    yield from (assumed.pod for assumed in index.assumed.held.values() if assumed.pod.node)


def _check_tables(index: ClusterIndex) -> list[str]:
    problems = []
    shapes = Counter((pod.shape, pod.terminating) for pod in _standing(index))
    held = Counter({(p.shape, p.terminating): sum(p.nodes.values()) for p in index.placements})
    if shapes != held:
        problems.append(f"placements hold {sum(held.values())} pods of {len(held)} shapes, the table {len(shapes)}")
    here = sum(len(index.pods_on(number)) for number in range(len(index.topology.nodes)))
    if here != shapes.total():
        problems.append(f"nodes hold {here} pods, the table {shapes.total()}")
    return problems


def _check_asked(index: ClusterIndex, selection: TermSelection, topology_key: str, group: Group) -> list[str]:
    def counts(pod: Pod) -> bool:
        return all(_covers(index, who, pod) and who.selector.matches(pod.shape.labels) for who in selection.audiences)

    true = Counter(n.labels[topology_key] for p, n in _placed(index) if topology_key in n.labels and counts(p))
    return _compare(f"term group over {topology_key}", true, group)


def _covers(index: ClusterIndex, who: Audience, pod: Pod) -> bool:
    if who.covers_all or pod.namespace in who.namespaces:
        return True
    labels = index.namespaces.labels(pod.namespace)
    return who.namespace_selector is not None and labels is not None and who.namespace_selector.matches(labels)


def _check_owned(index: ClusterIndex, group: OwnerGroup) -> list[str]:
    wanted = (group.role, group.term, group.weight)
    true: Counter[str] = Counter()
    for pod, node in _placed(index):
        if group.key.key in node.labels:
            true[node.labels[group.key.key]] += sum(carried == wanted for carried in terms_of(pod.shape))
    return _compare(f"inverse group ({group.role.value}) over {group.key.key}", +true, group)


def _check_spread(index: ClusterIndex, key: SpreadKey, group: Group) -> list[str]:
    true: Counter[str] = Counter()
    for pod, node in _placed(index):
        counts = not pod.terminating and not key.selector.is_empty and pod.namespace == key.namespace
        if not (counts and key.selector.matches(pod.shape.labels) and key.inclusion.admits(node)):
            continue
        value = node.labels.get(key.topology_key) if key.topology_key else node.name
        if value is None and key.inclusion.missing_as_empty:
            value = ""
        if value is not None:
            true[value] += 1
    return _compare(f"spread group over {key.topology_key or 'each node'} in {key.namespace}", true, group)


def _compare(name: str, true: Counter[str], group: Group) -> list[str]:
    running = {group.key.value(domain): count for domain, count in group.counts.items()}
    return [
        f"{name}: {value!r} is counted {running.get(value, 0)} times, should be {true.get(value, 0)}"
        for value in sorted(true.keys() | running.keys())
        if true.get(value, 0) != running.get(value, 0)
    ]
