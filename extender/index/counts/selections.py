"""The pod signatures that a set of terms, or a spread selector, selects now.

One selection serves every group that counts the same pods over different topology keys or scopes. Membership follows
the signatures that come and go and the namespaces that are relabelled; groups only receive signed counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from collections.abc import Set as AbstractSet

import msgspec

from extender.index.counts.groups import Group
from extender.index.counts.selector_index import SelectorIndex
from extender.index.counts.signature_counts import SignatureCounts, SignatureTable
from extender.index.nodes.columns import NodeColumn
from extender.index.objects.namespaces import Namespaces
from extender.model.bounded import Few, shrink, with_item, without_item
from extender.model.constraints.labels import contains
from extender.model.constraints.selectors import LabelSelector, Requirement
from extender.model.constraints.terms import AffinityTerm

# A selection that was not read while so many namespaces changed is corrected at once, which bounds `stale`.
MOST_STALE = 64
_NONE_STALE: AbstractSet[str] = frozenset()


class PodSelector(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """A term without its topology key: the pods it is about. ``namespaces`` are sorted; the hash is computed once."""

    selector: LabelSelector
    namespaces: tuple[str, ...]
    namespace_selector: LabelSelector | None

    @property
    def covers_all(self) -> bool:
        """Whether every namespace is covered, with or without an object."""
        return self.namespace_selector is not None and self.namespace_selector.is_empty


def pod_selector(term: AffinityTerm) -> PodSelector:
    """The pods that a term selects."""
    return PodSelector(term.selector, term.namespaces, term.namespace_selector)


def shared_anchor(pod_selectors: Iterable[PodSelector]) -> Requirement | None:
    """The anchor with the fewest values: a pod that matches all selectors carries a label of each of their anchors."""
    anchors = [found for each in pod_selectors if (found := each.selector.anchor()) is not None]
    return min(anchors, key=lambda clause: (len(clause.values), clause), default=None)


class Selection(ABC):
    """The signatures that are selected, and the groups that count them. Subclasses define which are selected.

    ``live`` are the groups over a column that any node is in. The others count nothing, and members cost nothing for
    them. ``stale`` are namespaces whose labels changed since membership was corrected; see `Selections.refresh`.
    """

    __slots__ = ("anchor", "groups", "live", "members", "stale")

    def __init__(self, anchor: Requirement | None) -> None:
        self.anchor = anchor
        self.groups: dict[Hashable, Group] = {}
        self.live: Few[Group] = ()
        self.members: Few[SignatureCounts] = ()
        self.stale: AbstractSet[str] = _NONE_STALE

    @abstractmethod
    def selects(self, counts_of_signature: SignatureCounts) -> bool:
        """Whether the pods of the signature are counted now."""

    @abstractmethod
    def namespaces(self) -> Iterable[str] | None:
        """The namespaces that can hold members now; None for all."""

    @abstractmethod
    def fixed_namespaces(self) -> Iterable[str] | None:
        """The namespaces that can ever hold members; None where that may change."""

    def namespace_selectors(self) -> Iterable[LabelSelector]:
        """The namespaceSelectors that membership depends on."""
        return ()

    def enter(self, counts_of_signature: SignatureCounts) -> None:
        """Makes a signature a member: every live group counts it from now on."""
        self.members = with_item(self.members, counts_of_signature)
        for group in self.live:
            counts_of_signature.join(group)

    def drop(self, counts_of_signature: SignatureCounts) -> None:
        """Ends a membership."""
        self.members = without_item(self.members, counts_of_signature)
        for group in self.live:
            counts_of_signature.leave(group)

    def start(self, group: Group) -> None:
        """Counts the members in a group. O(nodes of the members)."""
        self.live = with_item(self.live, group)
        for counts_of_signature in self.members:
            counts_of_signature.join(group)

    def stop(self, group: Group) -> None:
        """The group counts no member any more. O(nodes of the members)."""
        self.live = without_item(self.live, group)
        for counts_of_signature in self.members:
            counts_of_signature.leave(group)


class TermSelection(Selection):
    """The pods that match *all* of the terms at once (kube-scheduler does not count required affinity term by term)."""

    __slots__ = ("_namespaces", "pod_selectors")

    def __init__(self, pod_selectors: frozenset[PodSelector], namespaces: Namespaces) -> None:
        super().__init__(shared_anchor(pod_selectors))
        self.pod_selectors = pod_selectors
        self._namespaces = namespaces

    def selects(self, counts_of_signature: SignatureCounts) -> bool:
        """Whether every term covers the namespace and matches the labels; terminating pods count as any other."""
        signature = counts_of_signature.signature
        return all(
            self._covers(wanted, signature.namespace) and wanted.selector.matches(signature.labels)
            for wanted in self.pod_selectors
        )

    def selects_labels(self, namespace: str, labels: dict[str, str]) -> bool:
        """The same for a pod that is not placed: for the first-pod rule, about the incoming pod."""
        return all(self._covers(wanted, namespace) and wanted.selector.matches(labels) for wanted in self.pod_selectors)

    def _covers(self, wanted: PodSelector, namespace: str) -> bool:
        if contains(wanted.namespaces, namespace) or wanted.covers_all:
            return True
        return wanted.namespace_selector is not None and namespace in self._namespaces.selected(
            wanted.namespace_selector
        )

    def namespaces(self) -> Iterable[str] | None:
        """The least of what the terms cover, taking the first that does not cover everything."""
        for wanted in self.pod_selectors:
            if wanted.namespace_selector is None:
                return wanted.namespaces
            if not wanted.covers_all:
                return {*wanted.namespaces, *self._namespaces.selected(wanted.namespace_selector)}
        return None

    def fixed_namespaces(self) -> Iterable[str] | None:
        """The listed names of a term without a selector, where there is one."""
        return next((wanted.namespaces for wanted in self.pod_selectors if wanted.namespace_selector is None), None)

    def namespace_selectors(self) -> Iterable[LabelSelector]:
        """The namespaceSelectors of the terms, except those that cover every namespace."""
        return {
            wanted.namespace_selector
            for wanted in self.pod_selectors
            if wanted.namespace_selector and not wanted.covers_all
        }


class SpreadSelection(Selection):
    """The pods of one namespace that a spread selector matches; terminating ones and those of ``{}`` do not count."""

    __slots__ = ("namespace", "selector")

    def __init__(self, namespace: str, selector: LabelSelector) -> None:
        super().__init__(selector.anchor())
        self.namespace = namespace
        self.selector = selector

    def selects(self, counts_of_signature: SignatureCounts) -> bool:
        """Whether the pods of the signature count for the constraint."""
        signature = counts_of_signature.signature
        if counts_of_signature.terminating or signature.namespace != self.namespace or self.selector.is_empty:
            return False
        return self.selector.matches(signature.labels)

    def namespaces(self) -> Iterable[str] | None:
        """The one namespace."""
        return (self.namespace,)

    def fixed_namespaces(self) -> Iterable[str] | None:
        """The one namespace, which never changes."""
        return (self.namespace,)


class Selections:
    """All selections in use, findable from the labels of a signature and from a namespaceSelector."""

    def __init__(self, signatures: SignatureTable, namespaces: Namespaces) -> None:
        self._signatures = signatures
        self._namespaces = namespaces
        self._anchors: SelectorIndex[Selection] = SelectorIndex()
        self._by_selector: dict[LabelSelector, set[Selection]] = {}
        # Most columns have one group. It is held without a dictionary, which would take more memory than the group.
        self._over: dict[NodeColumn, tuple[Group, Selection] | dict[Group, Selection]] = {}

    def add(self, selection: Selection) -> None:
        """Starts keeping a selection and finds its members. O(signatures its anchor reaches)."""
        for selector in selection.namespace_selectors():
            self._namespaces.acquire(selector)
            self._by_selector.setdefault(selector, set()).add(selection)
        self._anchors.file(selection, selection.anchor, selection.fixed_namespaces())
        if selection.anchor is not None:
            self._signatures.acquire_label(selection.anchor.key)
        for counts_of_signature in self._signatures.reachable(selection.anchor, selection.namespaces()):
            if counts_of_signature not in selection.members and selection.selects(counts_of_signature):
                selection.enter(counts_of_signature)

    def remove(self, selection: Selection) -> None:
        """Stops keeping a selection that has no group left."""
        self._anchors.discard(selection, selection.anchor, selection.fixed_namespaces())
        if selection.anchor is not None:
            self._signatures.release_label(selection.anchor.key)
        for selector in selection.namespace_selectors():
            users = self._by_selector[selector]
            users.discard(selection)
            if not users:
                del self._by_selector[selector]
            self._namespaces.release(selector)

    def add_group(self, selection: Selection, key: Hashable, group: Group) -> None:
        """A further group over the members of a selection. O(nodes of the members), O(1) over an empty column."""
        selection.groups[key] = group
        over = self._over.get(group.column)
        if over is None:
            self._over[group.column] = (group, selection)
        elif isinstance(over, tuple):
            self._over[group.column] = dict((over, (group, selection)))
        else:
            over[group] = selection
        if group.column.filled:
            selection.start(group)

    def remove_group(self, selection: Selection, key: Hashable) -> None:
        """Removes a group of a selection. Costs what `add_group` does."""
        group = selection.groups.pop(key)
        shrink(selection.groups)
        if group in selection.live:
            selection.stop(group)
        over = self._over[group.column]
        if isinstance(over, dict):
            del over[group]
        if isinstance(over, tuple) or not over:
            del self._over[group.column]
            shrink(self._over)

    def occupancy_changed(self, column: NodeColumn) -> None:
        """Called when a column has got its first node or lost its last one, and that node's pods are counted again."""
        over = self._over.get(column, ())
        for group, selection in over.items() if isinstance(over, dict) else [over] if over else ():
            (selection.start if column.filled else selection.stop)(group)

    def signature_added(self, counts_of_signature: SignatureCounts) -> None:
        """Makes a new signature a member of the selections that select it. O(labels + candidates)."""
        signature = counts_of_signature.signature
        for selection in self._anchors.candidates(signature.namespace, signature.labels):
            if counts_of_signature not in selection.members and selection.selects(counts_of_signature):
                selection.enter(counts_of_signature)

    def would_count(self, counts_of_signature: SignatureCounts) -> bool:
        """Whether any selection selects the signature. O(labels + candidates)."""
        signature = counts_of_signature.signature
        return any(
            each.selects(counts_of_signature)
            for each in self._anchors.candidates(signature.namespace, signature.labels)
        )

    def signature_removed(self, counts_of_signature: SignatureCounts) -> None:
        """Drops a signature without pods."""
        signature = counts_of_signature.signature
        for selection in self._anchors.candidates(signature.namespace, signature.labels):
            selection.members = without_item(selection.members, counts_of_signature)

    def namespace_changed(self, namespace: str, changed: Iterable[LabelSelector]) -> None:
        """Marks the selections for which a namespace begins or ends to match. O(such selections).

        Their membership is corrected when it is next read: at once, a relabel that moves 10,000 pods among 2,000
        compiled constraints would delay every response by 35 ms, and few of these are read soon.
        """
        for selector in changed:
            for selection in self._by_selector.get(selector, ()):
                selection.stale |= {namespace}
                if len(selection.stale) > MOST_STALE:
                    self.refresh(selection)

    def refresh(self, selection: Selection) -> None:
        """Corrects membership of the pods of stale namespaces. Must be called before the groups of a stale selection are read."""
        for namespace in selection.stale:
            for counts_of_signature in self._signatures.reachable(selection.anchor, (namespace,)):
                is_now = selection.selects(counts_of_signature)
                if is_now != (counts_of_signature in selection.members):
                    (selection.enter if is_now else selection.drop)(counts_of_signature)
        selection.stale = _NONE_STALE
