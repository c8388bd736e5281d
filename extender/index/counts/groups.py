"""Groups: the running counts that a term or constraint needs, pods per domain of one topology key.

Pods are counted by signature: the replicas of a workload on a thousand nodes are one `SignatureCounts`. It knows every
group that counts it. So a pod that comes or goes costs one addition per group, and no selector is evaluated
(`SignatureTable.put`).

A group never reads a pod. ``add`` takes a node number and a signed number of pods; the opposite sign undoes it.
Invariants:

1. ``counts`` contains no zero: a domain without pods has no entry, so an empty mapping means no pods.
2. In a `SpreadGroup` the counted domains are a subset of the scope's, because only eligible nodes have a domain there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, NamedTuple

from extender.index.nodes.columns import Column, ColumnView, NodeColumn
from extender.index.nodes.domains import DomainScope, Inclusion, KeyDomains, KeyView, ScopeView
from extender.model.bounded import Few, shrink, with_item, without_item
from extender.model.constraints.labels import contains
from extender.model.constraints.selectors import Requirement
from extender.model.objects import Node, Pod, PodSignature

if TYPE_CHECKING:
    from extender.index.counts.selections import Selection


class IndexDriftError(RuntimeError):
    """Raised when a count would become negative: a change was applied twice or not at all."""


class Expected(NamedTuple):
    """Undetermined pods by domain of a group: the pods that are sure to land there, and the possible ones.

    A pod is sure to land in a domain if all nodes that it may be on are in it.
    """

    sure: Mapping[int, int]
    possible: Mapping[int, int]


class GroupView:
    """What readers see of a group: pods per domain. A domain without pods has no entry."""

    __slots__ = ("_levels", "column", "counts", "key", "undetermined", "users", "version")
    key: KeyView
    column: ColumnView
    counts: Mapping[int, int]

    def __init__(self, key: KeyView) -> None:
        self.key = key
        self.column = key
        self.counts = {}
        # Grows with every change of the counts.
        self.version = 0
        # How many compiled constraints read the group (owner group: how many signatures have its term).
        self.users = 0
        # How many undetermined pods the group would count (`index/claims/assumed.py`).
        self.undetermined = 0
        self._levels: dict[int, set[int]] | None = None

    @property
    def levels(self) -> Mapping[int, AbstractSet[int]]:
        """The domains by their count, so that the least and the greatest cost O(distinct counts).

        Made when first read, O(domains with pods): groups of most existing pods' terms are never read this way, and it
        takes twice the memory of the counts.
        """
        levels = self._levels
        if levels is None:
            levels = self._levels = {}
            for domain, count in self.counts.items():
                levels.setdefault(count, set()).add(domain)
        return levels

    @property
    def domain_of(self) -> Column:
        """The column in which a node's pods count; 0 if they do not. Do not keep it while nodes change."""
        return self.column.of_node

    def greatest(self) -> int:
        """The largest count of a domain; 0 if no pod is counted. O(distinct counts)."""
        return max(self.levels, default=0)

    def smallest(self) -> int:
        """The smallest count over all domains of the key, domains without a pod included. O(distinct counts)."""
        # Fewer counted domains than domains: one has no pod, so the minimum is 0 without a look at the levels.
        return 0 if len(self.counts) < len(self.key.nodes_in) else min(self.levels, default=0)


class CountGroup(GroupView):
    """A group with its writing side."""

    __slots__ = ()
    key: KeyDomains
    column: NodeColumn
    counts: dict[int, int]

    def add(self, node: int, pods: int) -> None:
        """Counts so many more (or fewer) pods on a node. O(1). Raises ``IndexDriftError`` below zero."""
        domain = self.column.of_node[node]
        # Domain 0: the node lacks the topology key, or the scope leaves it out.
        if not domain:
            return
        old = self.counts.get(domain, 0)
        new = old + pods
        if new < 0:
            raise IndexDriftError(f"{pods} pods in {self.key.key}={self.key.value(domain)} make {new}")
        if new:
            self.counts[domain] = new
        else:
            self.counts.pop(domain, None)
        self.version += 1
        # Levels exist only if a reader has asked for the least or greatest count.
        levels = self._levels
        if levels is None:
            return
        if old:
            level = levels[old]
            level.discard(domain)
            if not level:
                del levels[old]
        if new:
            levels.setdefault(new, set()).add(domain)


Where = str | tuple[str, Inclusion]
"""A topology key, with the inclusion rule if not all nodes with the key count."""


class SelectedGroup(CountGroup):
    """A group of a selection's pods over the nodes with a topology key. Compiled constraints acquire it."""

    __slots__ = ("selection",)

    def __init__(self, selection: Selection, column: KeyDomains | DomainScope) -> None:
        super().__init__(column if isinstance(column, KeyDomains) else column.key)
        self.selection = selection
        self.column = column

    @property
    def where(self) -> Where:
        """What identifies it among the groups of its selection."""
        return (self.key.key, self.column.inclusion) if isinstance(self.column, DomainScope) else self.key.key


class SpreadGroupView(GroupView):
    """What readers see of a `SpreadGroup`, including the minimum that skew is measured against."""

    __slots__ = ()
    column: ScopeView

    @property
    def domains(self) -> int:
        """How many eligible domains there are, including domains without a pod."""
        return len(self.column.domains)

    def least(self) -> int:
        """The smallest count over the eligible domains; 0 without any. O(distinct counts)."""
        # As the global minimum of podtopologyspread: an eligible domain without matching pods counts as 0.
        return 0 if len(self.counts) < len(self.column.domains) else min(self.levels, default=0)

    def is_eligible_domain(self, domain: int) -> bool:
        """Whether an eligible node is in the domain."""
        return domain in self.column.domains

    def admits(self, node: Node) -> bool:
        """Whether a node would count, even one that the index does not know."""
        return self.column.inclusion.admits(node)


class SpreadGroup(SpreadGroupView, SelectedGroup):
    """Pods per *eligible* domain of a scope."""

    __slots__ = ()
    column: DomainScope


class PlacedPods(NamedTuple):
    """Pods of one signature that are on nodes: whether they are terminating, and how many are on each node."""

    signature: PodSignature
    terminating: bool
    nodes: Mapping[int, int]

    def are(self, pod: Pod) -> bool:
        """Whether a pod on one of these nodes is one of these pods. O(1)."""
        return pod.signature is self.signature and pod.terminating == self.terminating


class SignatureCounts:
    """Pods of one signature, terminating or not: how many on each node, and the groups that count them."""

    __slots__ = ("groups", "nodes", "pins", "signature", "terminating", "undetermined")

    def __init__(self, signature: PodSignature, *, terminating: bool) -> None:
        self.signature = signature
        self.terminating = terminating
        self.nodes: dict[int, int] = {}
        # Each with how often it counts a pod, because a pod may have the same term twice.
        self.groups: dict[CountGroup, int] = {}
        # How many more pods have an undetermined node.
        self.undetermined = 0
        # How many compiled constraints keep it although it is empty.
        self.pins = 0

    def count_in(self, group: CountGroup, sign: int = 1) -> None:
        """From now on the group counts each of these pods once more, or with ``sign`` -1 once less. O(their nodes)."""
        times = self.groups.get(group, 0) + sign
        if times:
            self.groups[group] = times
        else:
            del self.groups[group]
        group.undetermined += sign * self.undetermined
        for node, pods in self.nodes.items():
            group.add(node, sign * pods)


_Postings = dict[str, dict[str, Few[SignatureCounts]]]
"""Counts of signatures by the value of one label key, then by namespace. Nothing in it is empty."""


class SignatureTable:
    """Counts of all signatures: by signature, by namespace, and by the label keys that selectors anchor on.

    Each selection acquires the label key of its anchor. The last release drops the key's postings, because each
    acquired key costs memory, and time for every new signature with the label.
    """

    def __init__(
        self, on_new: Callable[[SignatureCounts], None], on_removed: Callable[[SignatureCounts], None]
    ) -> None:
        self._on_new = on_new
        self._on_removed = on_removed
        self._all: dict[tuple[PodSignature, bool], SignatureCounts] = {}
        self._by_namespace: dict[str, Few[SignatureCounts]] = {}
        self._by_label: dict[str, _Postings] = {}
        self._label_users: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._all)

    def with_pods(self) -> int:
        """How many signatures have pods, placed or assumed. O(signatures): for metrics."""
        return sum(
            1
            for counts_of_signature in self._all.values()
            if counts_of_signature.nodes or counts_of_signature.undetermined
        )

    def __iter__(self) -> Iterator[SignatureCounts]:
        return iter(self._all.values())

    def find(self, signature: PodSignature, *, terminating: bool) -> SignatureCounts | None:
        """The counts of a signature; None if no such pod is placed."""
        return self._all.get((signature, terminating))

    def find_or_add(self, signature: PodSignature, *, terminating: bool) -> SignatureCounts:
        """The counts of a signature. New ones stay only if a pod is counted or they are pinned, which is up to the caller."""
        return self._all.get((signature, terminating)) or self._add(signature, terminating=terminating)

    def put(self, signature: PodSignature, terminating: bool, node: int, pods: int) -> None:  # noqa: FBT001 (hot path)
        """Counts so many more (or fewer) pods of a signature on a node, in every group that counts them. O(groups)."""
        counts_of_signature = self._all.get((signature, terminating))
        if counts_of_signature is None:
            counts_of_signature = self._add(signature, terminating=terminating)
        nodes = counts_of_signature.nodes
        remaining = nodes.get(node, 0) + pods
        if remaining:
            nodes[node] = remaining
        else:
            del nodes[node]
        # The hot path of every pod event: a dictionary look-up and an addition for each group.
        for group, times in counts_of_signature.groups.items():
            group.add(node, pods * times)
        if not nodes:
            self._remove_unused(counts_of_signature)

    def replace(self, old: PodSignature, new: PodSignature, terminating: bool, node: int) -> None:  # noqa: FBT001 (hot path)
        """Counts a pod of signature ``new`` on a node in place of one of ``old``.

        O(1) if the same groups count both.
        """
        if old is new:
            return
        removed, added = self._all.get((old, terminating)), self._all.get((new, terminating))
        if removed is None or node not in removed.nodes:
            raise IndexDriftError(f"no pod of the signature is on node {node}")
        if added is None:
            added = self._add(new, terminating=terminating)
        # A binding adds labels of the node's topology to a pod. Mostly the same groups count both signatures.
        if removed.groups != added.groups:
            for group in removed.groups | added.groups:
                # Both may count in a group, one of them twice: the difference is what the group sees.
                change = added.groups.get(group, 0) - removed.groups.get(group, 0)
                if change:
                    group.add(node, change)
        added.nodes[node] = added.nodes.get(node, 0) + 1
        removed.nodes[node] -= 1
        if not removed.nodes[node]:
            del removed.nodes[node]
            self._remove_unused(removed)

    def pin(self, signature: PodSignature, pins: int) -> None:
        """Keeps (or with -1 no longer keeps) the counts of a signature whose constraints are compiled.

        Its pods come and go one at a time: assumed, then bound with one more label. Without the pin its groups would be
        looked up each time.
        """
        counts_of_signature = self.find_or_add(signature, terminating=False)
        counts_of_signature.pins += pins
        self._remove_unused(counts_of_signature)

    def expect(self, signature: PodSignature, pods: int) -> None:
        """Counts so many more (or fewer) undetermined pods of a signature. O(groups)."""
        counts_of_signature = self.find_or_add(signature, terminating=False)
        counts_of_signature.undetermined += pods
        for group, times in counts_of_signature.groups.items():
            group.undetermined += pods * times
        self._remove_unused(counts_of_signature)

    def _add(self, signature: PodSignature, *, terminating: bool) -> SignatureCounts:
        counts_of_signature = self._all[signature, terminating] = SignatureCounts(signature, terminating=terminating)
        _add(self._by_namespace, signature.namespace, counts_of_signature)
        for key, value in signature.labels.items():
            postings = self._by_label.get(key)
            if postings is not None:
                _post(postings, value, counts_of_signature)
        self._on_new(counts_of_signature)
        return counts_of_signature

    def _remove_unused(self, counts_of_signature: SignatureCounts) -> None:
        if counts_of_signature.nodes or counts_of_signature.undetermined or counts_of_signature.pins:
            return
        signature = counts_of_signature.signature
        del self._all[signature, counts_of_signature.terminating]
        shrink(self._all)
        _discard(self._by_namespace, signature.namespace, counts_of_signature)
        for key, value in signature.labels.items():
            postings = self._by_label.get(key)
            if postings is not None:
                _discard(postings[value], signature.namespace, counts_of_signature)
                if not postings[value]:
                    del postings[value]
                    shrink(postings)
        self._on_removed(counts_of_signature)

    def acquire_label(self, key: str) -> None:
        """One more selection anchors on the label key. O(1); O(signatures) for the second selection.

        The postings of a key are made for its second user, because many keys have only one, which reads all signatures
        of its namespaces once.
        """
        users = self._label_users[key] = self._label_users.get(key, 0) + 1
        if users == 1 or key in self._by_label:
            return
        postings: _Postings = {}
        for counts_of_signature in self._all.values():
            value = counts_of_signature.signature.labels.get(key)
            if value is not None:
                _post(postings, value, counts_of_signature)
        self._by_label[key] = postings

    def release_label(self, key: str) -> None:
        """Ends an `acquire_label`. The postings are dropped with the last user."""
        self._label_users[key] -= 1
        if not self._label_users[key]:
            del self._label_users[key]
            shrink(self._label_users)
            if self._by_label.pop(key, None) is not None:
                shrink(self._by_label)

    def reachable(self, anchor: Requirement | None, namespaces: Iterable[str] | None) -> Iterator[SignatureCounts]:
        """A superset of the signatures that a selector with this anchor can match in these namespaces (None: all).

        Without an anchor these are all signatures there. Signatures may come and go between two results. With postings
        O(namespaces + values + signatures with the label key), usually much less, because the shorter of two lists is
        iterated. Without postings O(signatures there).
        """
        if anchor is None:
            yield from _in_namespaces(self._by_namespace, namespaces)
            return
        postings = self._by_label.get(anchor.key)
        if postings is None:
            key, wanted = anchor.key, frozenset(anchor.values)
            there = _in_namespaces(self._by_namespace, namespaces)
            yield from (
                signature_counts for signature_counts in there if signature_counts.signature.labels.get(key) in wanted
            )
            return
        names = namespaces if namespaces is None else frozenset(namespaces)
        values = anchor.values
        # A term may list thousands of values. With fewer values in the postings, those are tried against the term.
        if len(postings) < len(values):
            values = tuple(value for value in postings if contains(anchor.values, value))
        for value in values:
            yield from _in_namespaces(postings.get(value, {}), names)

    def is_filed(self, counts_of_signature: SignatureCounts) -> bool:
        """Whether `reachable` finds the signature by its namespace, and by each of its labels that has postings."""
        signature = counts_of_signature.signature
        return counts_of_signature in self._by_namespace.get(signature.namespace, ()) and all(
            counts_of_signature in self._by_label[key].get(value, {}).get(signature.namespace, ())
            for key, value in signature.labels.items()
            if key in self._by_label
        )

    def label_users(self) -> Mapping[str, int]:
        """How many selections anchor on each label key; for the audit."""
        return self._label_users

    def statistics(self) -> dict[str, int]:
        """How many signatures have pods, and on how many label keys selections anchor. O(signatures); for metrics."""
        return {"pod_signatures": self.with_pods(), "indexed_labels": len(self._label_users)}


def _in_namespaces(
    by_namespace: Mapping[str, Few[SignatureCounts]], namespaces: Iterable[str] | None
) -> Iterator[SignatureCounts]:
    """The signatures of some namespaces (None: all). O(the shorter of both lists + results)."""
    if namespaces is None:
        names: Iterable[str] = tuple(by_namespace)
    elif isinstance(namespaces, frozenset) and len(by_namespace) < len(namespaces):
        names = [name for name in by_namespace if name in namespaces]
    else:
        names = namespaces
    for name in names:
        # A copy, because the caller may add or remove signatures between two results.
        yield from tuple(by_namespace.get(name, ()))


def _post(postings: _Postings, value: str, counts_of_signature: SignatureCounts) -> None:
    _add(postings.setdefault(value, {}), counts_of_signature.signature.namespace, counts_of_signature)


def _add(buckets: dict[str, Few[SignatureCounts]], key: str, item: SignatureCounts) -> None:
    buckets[key] = with_item(buckets.get(key, ()), item)


def _discard(buckets: dict[str, Few[SignatureCounts]], key: str, item: SignatureCounts) -> None:
    buckets[key] = remaining = without_item(buckets[key], item)
    if not remaining:
        del buckets[key]
        shrink(buckets)
