"""The part of the audit that recounts groups, each from the signatures that the tables name for it. Called by `audit`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from extender.index.cluster import ClusterIndex
from extender.index.counts.groups import Group
from extender.index.counts.selections import PodSelector, TermSelection, shared_anchor
from extender.index.counts.signature_counts import SignatureCounts
from extender.index.counts.spread_counts import SpreadKey
from extender.index.counts.term_counts import OwnerGroup
from extender.model.objects import Node, PodSignature

T = TypeVar("T")

Check = Callable[[], list[str]]
Carriers = dict[OwnerGroup, list[SignatureCounts]]

_GROUPS_A_STEP = 50  # a few milliseconds


def group_steps(index: ClusterIndex, carriers: Carriers) -> Iterator[Check]:
    """One step for some groups. ``carriers``: the signatures that carry each term, once for each time."""
    for selection, groups in list(index.counts.terms.acquired()):
        for some in slices(groups, _GROUPS_A_STEP):
            yield partial(_check_acquired, index, selection, some)
    for owner in list(index.counts.terms.owned()):
        yield partial(_check_owned, index, owner, carriers)
    for _, spread_key, spread in list(index.counts.spreads.acquired()):
        yield partial(_check_spread, index, spread_key, spread)


def slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items, so many at a time."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def is_kept(index: ClusterIndex, counts_of_signature: SignatureCounts) -> bool:
    """Whether the counts are those of their signature."""
    return (
        index.counts.signatures.find(counts_of_signature.signature, terminating=counts_of_signature.terminating)
        is counts_of_signature
    )


def _pods_by_value(index: ClusterIndex, topology_key: str, signatures: Iterable[SignatureCounts]) -> Counter[str]:
    """Pods by the label's value of their node, those of a signature as often as it is given."""
    true: Counter[str] = Counter()
    for counts_of_signature in signatures:
        for number, pods in counts_of_signature.nodes.items():
            node = index.topology.nodes[number]
            if node is not None and topology_key in node.labels:
                true[node.labels[topology_key]] += pods
    return true


def _check_acquired(index: ClusterIndex, selection: TermSelection, groups: Sequence[Group]) -> list[str]:
    """Some groups of one selection, whose members are found once for all of them."""
    kept = [group for group in groups if index.counts.terms.is_acquired(selection, group)]
    if not kept:
        return []
    asleep = [group for group in kept if (group in selection.live) is not bool(group.column.filled)]
    if asleep:
        return [f"term group over {group.key.key}: is live, or is not, against what nodes carry" for group in asleep]
    reachable = index.counts.signatures.reachable(shared_anchor(selection.pod_selectors), None)
    selected = [each for each in reachable if _selects(index, selection, each.signature)]
    return [
        line
        for group in kept
        for line in _compare(f"term group over {group.key.key}", _pods_by_value(index, group.key.key, selected), group)
    ]


def _selects(index: ClusterIndex, selection: TermSelection, signature: PodSignature) -> bool:
    return all(
        _covers(index, wanted, signature) and wanted.selector.matches(signature.labels)
        for wanted in selection.pod_selectors
    )


def _covers(index: ClusterIndex, wanted: PodSelector, signature: PodSignature) -> bool:
    if wanted.covers_all or signature.namespace in wanted.namespaces:
        return True
    labels = index.namespaces.labels(signature.namespace)
    return wanted.namespace_selector is not None and labels is not None and wanted.namespace_selector.matches(labels)


def _check_owned(index: ClusterIndex, group: OwnerGroup, carriers: Carriers) -> list[str]:
    if not index.counts.terms.is_owned(group):
        return []
    name = f"inverse group ({group.role.value}) over {group.key.key}"
    if index.counts.terms.is_offered(group) is not bool(group.key.filled):
        return [f"{name}: is part of compiled constraints, or is not, against what nodes carry"]
    noted = [each for each in carriers.get(group, ()) if is_kept(index, each)]
    if len(noted) != group.users:  # others have come since
        noted = [
            each
            for counts_of_signature in index.counts.signatures
            for each in [counts_of_signature] * counts_of_signature.groups.get(group, 0)
        ]
    true = _pods_by_value(index, group.key.key, noted)
    return _compare(name, true, group)


def _check_spread(index: ClusterIndex, key: SpreadKey, group: Group) -> list[str]:
    if not index.counts.spreads.is_acquired(key, group):
        return []
    true: Counter[str] = Counter()
    for counts_of_signature in index.counts.signatures.reachable(key.selector.anchor(), (key.namespace,)):
        signature = counts_of_signature.signature
        counts = (
            not counts_of_signature.terminating and not key.selector.is_empty and signature.namespace == key.namespace
        )
        if counts and key.selector.matches(signature.labels):
            for number, pods in counts_of_signature.nodes.items():
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
