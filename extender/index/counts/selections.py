"""The groups that compiled constraints read, and the signatures that the selectors of these groups select now.

One selection serves all groups that count the same pods over different topology keys or scopes. Its members follow
changes of signatures and labels of namespaces. Groups only receive signed counts. Required affinity has one selection
for all its terms, because kube-scheduler counts pods that match every term.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from extender.index.counts.groups import (
    CountGroup,
    GroupView,
    SelectedGroup,
    SignatureCounts,
    SignatureTable,
    SpreadGroup,
    Where,
)
from extender.index.nodes.columns import NodeColumn
from extender.index.nodes.domains import Inclusion
from extender.index.nodes.topology import Topology
from extender.index.objects.namespaces import Namespaces
from extender.index.objects.selector_index import SelectorIndex
from extender.model.bounded import Few, shrink, with_item, without_item
from extender.model.constraints.labels import Labels, contains
from extender.model.constraints.selectors import LabelSelector, Requirement
from extender.model.constraints.terms import AffinityTerm

# A selection that is not read while so many namespaces change is corrected at once; that bounds `stale`.
MOST_STALE = 64
_NONE_STALE: AbstractSet[str] = frozenset()


class PodSelector(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """The pods of a term: a term without its topology key. ``namespaces`` are sorted. The hash is computed once."""

    selector: LabelSelector
    namespaces: tuple[str, ...]
    namespace_selector: LabelSelector | None = None

    @property
    def covers_all(self) -> bool:
        """Whether every namespace is covered, with or without a Namespace object."""
        return self.namespace_selector is not None and self.namespace_selector.is_empty

    def selects(self, namespace: str, labels: Labels, namespace_labels: Labels | None) -> bool:
        """Whether a pod is selected. ``namespace_labels``: None without a Namespace object. O(requirements)."""
        # The list and the selector of namespaces are joined by OR, as in Kubernetes.
        if not (contains(self.namespaces, namespace) or self.covers_all):
            selector = self.namespace_selector
            if selector is None or namespace_labels is None or not selector.matches(namespace_labels):
                return False
        return self.selector.matches(labels)


def pod_selector(term: AffinityTerm) -> PodSelector:
    """The pods that a term selects."""
    return PodSelector(term.selector, term.namespaces, term.namespace_selector)


Identity = tuple[frozenset[PodSelector], bool]


class Selection:
    """The signatures whose pods match *all* of some selectors at once, and the groups that count them."""

    __slots__ = ("_namespaces", "anchor", "counts_terminating", "groups", "live", "members", "pod_selectors", "stale")

    def __init__(self, identity: Identity, namespaces: Namespaces) -> None:
        # Terminating pods are selected too.
        self.pod_selectors, self.counts_terminating = identity
        self.anchor: Requirement | None = None
        # By topology key and inclusion rule.
        self.groups: dict[Where, SelectedGroup] = {}
        # Groups over a column that some node is in; other groups count nothing, and members cost nothing for them.
        self.live: Few[CountGroup] = ()
        self.members: Few[SignatureCounts] = ()
        # Namespaces whose labels have changed since the members were corrected; see `Selections.refresh`.
        self.stale: AbstractSet[str] = _NONE_STALE
        self._namespaces = namespaces

    @property
    def identity(self) -> Identity:
        """Unique among all selections."""
        return self.pod_selectors, self.counts_terminating

    def selects(self, counts_of_signature: SignatureCounts) -> bool:
        """Whether the signature's pods are selected now: every selector covers the namespace and matches the labels."""
        if counts_of_signature.terminating and not self.counts_terminating:
            return False
        namespace, labels = counts_of_signature.signature.namespace, counts_of_signature.signature.labels
        return all(self._covers(wanted, namespace) and wanted.selector.matches(labels) for wanted in self.pod_selectors)

    def _covers(self, wanted: PodSelector, namespace: str) -> bool:
        if contains(wanted.namespaces, namespace) or wanted.covers_all:
            return True
        return wanted.namespace_selector is not None and namespace in self._namespaces.selected(
            wanted.namespace_selector
        )

    def namespaces(self) -> Iterable[str] | None:
        """The namespaces that can have members now, by the first selector that does not cover all; None for all."""
        for wanted in self.pod_selectors:
            if wanted.namespace_selector is None:
                return wanted.namespaces
            if not wanted.covers_all:
                return {*wanted.namespaces, *self._namespaces.selected(wanted.namespace_selector)}
        return None

    def fixed_namespaces(self) -> Iterable[str] | None:
        """The namespaces that can ever have members, because a selector lists them; None if that may change."""
        # All selectors must select a pod, so one list of namespaces bounds the whole selection.
        return next((wanted.namespaces for wanted in self.pod_selectors if wanted.namespace_selector is None), None)

    def namespace_selectors(self) -> Iterable[LabelSelector]:
        """The namespaceSelectors that the members depend on."""
        return {
            wanted.namespace_selector
            for wanted in self.pod_selectors
            if wanted.namespace_selector and not wanted.covers_all
        }

    def put(self, counts_of_signature: SignatureCounts, sign: int) -> None:
        """Makes a signature a member, so that every live group counts its pods; ``sign`` -1 removes it."""
        change = with_item if sign > 0 else without_item
        self.members = change(self.members, counts_of_signature)
        for group in self.live:
            counts_of_signature.count_in(group, sign)

    def wake(self, group: CountGroup, sign: int) -> None:
        """From now on a group counts the members; with ``sign`` -1 it no longer does. O(nodes of the members)."""
        self.live = with_item(self.live, group) if sign > 0 else without_item(self.live, group)
        for counts_of_signature in self.members:
            counts_of_signature.count_in(group, sign)


class Selections:
    """All selections in use, indexed by the labels of a signature and by namespaceSelector."""

    def __init__(self, topology: Topology, signatures: SignatureTable, namespaces: Namespaces) -> None:
        self._topology = topology
        self._signatures = signatures
        self._namespaces = namespaces
        self._acquired: dict[Identity, Selection] = {}
        self._anchors: SelectorIndex[Selection] = SelectorIndex()
        self._by_selector: dict[LabelSelector, set[Selection]] = {}
        # Most columns have one group. It is stored without a dictionary, which would take more memory than the group.
        self._over: dict[NodeColumn, SelectedGroup | dict[SelectedGroup, None]] = {}

    # -- groups --------------------------------------------------------------------------------------------------------

    def acquire(
        self,
        pod_selectors: Iterable[PodSelector],
        topology_keys: Iterable[str],
        inclusion: Inclusion | None = None,
        *,
        counts_terminating: bool = True,
    ) -> Sequence[SelectedGroup]:
        """A group for each key, of the pods that match all selectors; made on first use. O(selectors + keys).

        ``inclusion``: which nodes count; None counts all nodes with the key. With the empty key each node is a domain.
        `release` ends it. The members are up to date; see `refresh`.
        """
        identity = frozenset(pod_selectors), counts_terminating
        selection = self._acquired.get(identity)
        if selection is None:
            selection = self._acquired[identity] = Selection(identity, self._namespaces)
            self._add(selection)
        self.refresh(selection)
        groups = []
        for key in topology_keys:
            group = selection.groups.get(key if inclusion is None else (key, inclusion))
            if group is None:
                group = self._make(selection, key, inclusion)
                self.add_group(group)
            group.users += 1
            groups.append(group)
        return groups

    def _make(self, selection: Selection, key: str, inclusion: Inclusion | None) -> SelectedGroup:
        if inclusion is None:
            return SelectedGroup(selection, self._topology.acquire_key(key))
        domains = self._topology.key(key) if key else self._topology.itself
        return SpreadGroup(selection, self._topology.acquire_scope(domains, inclusion))

    def release(self, groups: Iterable[SelectedGroup]) -> None:
        """Ends an `acquire`. A group is dropped with its last user, the selection with its last group."""
        for group in groups:
            group.users -= 1
            if group.users:
                continue
            self.remove_group(group)
            if isinstance(group, SpreadGroup):
                self._topology.release_scope(group.column)
            else:
                self._topology.release_key(group.key)
            if not group.selection.groups:
                del self._acquired[group.selection.identity]
                shrink(self._acquired)
                self._remove(group.selection)

    def acquired(self) -> Iterator[tuple[Selection, Sequence[SelectedGroup]]]:
        """Every selection with its groups; for the audit."""
        for selection in self._acquired.values():
            yield selection, list(selection.groups.values())

    def is_acquired(self, group: SelectedGroup) -> bool:
        """Whether a group of `acquired` is still kept. Its members are then up to date."""
        selection = group.selection
        if self._acquired.get(selection.identity) is not selection or selection.groups.get(group.where) is not group:
            return False
        self.refresh(selection)
        return True

    def _add(self, selection: Selection) -> None:
        """Adds a selection and looks up its members. O(signatures that its anchor reaches)."""
        for selector in selection.namespace_selectors():
            self._namespaces.acquire(selector)
            self._by_selector.setdefault(selector, set()).add(selection)
        fixed = selection.fixed_namespaces()
        selection.anchor = self._anchors.anchor((wanted.selector for wanted in selection.pod_selectors), fixed)
        self._anchors.file(selection, selection.anchor, fixed)
        if selection.anchor is not None:
            self._signatures.acquire_label(selection.anchor.key)
        for counts_of_signature in self._signatures.reachable(selection.anchor, selection.namespaces()):
            if counts_of_signature not in selection.members and selection.selects(counts_of_signature):
                selection.put(counts_of_signature, 1)

    def _remove(self, selection: Selection) -> None:
        self._anchors.discard(selection, selection.anchor, selection.fixed_namespaces())
        if selection.anchor is not None:
            self._signatures.release_label(selection.anchor.key)
        for selector in selection.namespace_selectors():
            users = self._by_selector[selector]
            users.discard(selection)
            if not users:
                del self._by_selector[selector]
            self._namespaces.release(selector)

    def add_group(self, group: SelectedGroup) -> None:
        """Adds a group over the members of its selection. O(nodes of the members); O(1) over an empty column."""
        group.selection.groups[group.where] = group
        over = self._over.get(group.column)
        if over is None:
            self._over[group.column] = group
        elif isinstance(over, GroupView):
            # The second group over the column: from now on a dictionary holds them.
            self._over[group.column] = {over: None, group: None}
        else:
            over[group] = None
        if group.column.filled:
            group.selection.wake(group, 1)

    def remove_group(self, group: SelectedGroup) -> None:
        """Removes a group of a selection. Costs as much as `add_group`."""
        del group.selection.groups[group.where]
        shrink(group.selection.groups)
        if group in group.selection.live:
            group.selection.wake(group, -1)
        over = self._over[group.column]
        if isinstance(over, dict):
            del over[group]
        if isinstance(over, GroupView) or not over:
            del self._over[group.column]
            shrink(self._over)

    def occupancy_changed(self, column: NodeColumn) -> None:
        """A column has got its first node or lost its last. The pods of that node are counted again afterwards."""
        over = self._over.get(column, ())
        for group in (over,) if isinstance(over, GroupView) else over:
            group.selection.wake(group, 1 if column.filled else -1)

    # -- changes of signatures and namespaces --------------------------------------------------------------------------

    def signature_added(self, counts_of_signature: SignatureCounts) -> None:
        """Makes a new signature a member of the selections that select it. O(labels + candidates)."""
        signature = counts_of_signature.signature
        for selection in self._anchors.candidates(signature.namespace, signature.labels):
            if counts_of_signature not in selection.members and selection.selects(counts_of_signature):
                selection.put(counts_of_signature, 1)

    def would_count(self, counts_of_signature: SignatureCounts) -> bool:
        """Whether any selection selects the signature. O(labels + candidates)."""
        signature = counts_of_signature.signature
        return any(
            selection.selects(counts_of_signature)
            for selection in self._anchors.candidates(signature.namespace, signature.labels)
        )

    def signature_removed(self, counts_of_signature: SignatureCounts) -> None:
        """Removes a signature without pods."""
        signature = counts_of_signature.signature
        for selection in self._anchors.candidates(signature.namespace, signature.labels):
            selection.members = without_item(selection.members, counts_of_signature)

    def namespace_changed(self, namespace: str, changed: Iterable[LabelSelector]) -> None:
        """Marks the selections for which a namespace starts or stops to match. O(such selections).

        Their members are corrected when they are next read. At once, a relabelled namespace with 10,000 pods and 2,000
        compiled constraints would delay every response by 35 ms, and few of these constraints are read soon.
        """
        for selector in changed:
            for selection in self._by_selector.get(selector, ()):
                selection.stale |= {namespace}
                if len(selection.stale) > MOST_STALE:
                    self.refresh(selection)

    def refresh(self, selection: Selection) -> None:
        """Corrects the members in stale namespaces; otherwise O(1). Must be called before a group of it is read."""
        if not selection.stale:
            return
        # Only signatures of stale namespaces that the anchor reaches can have changed.
        for namespace in selection.stale:
            for counts_of_signature in self._signatures.reachable(selection.anchor, (namespace,)):
                is_now = selection.selects(counts_of_signature)
                if is_now != (counts_of_signature in selection.members):
                    selection.put(counts_of_signature, 1 if is_now else -1)
        selection.stale = _NONE_STALE

    def statistics(self) -> dict[str, int]:
        """How many groups are kept, of terms and of spread constraints."""
        groups = [group for selection in self._acquired.values() for group in selection.groups.values()]
        spread = sum(isinstance(group, SpreadGroup) for group in groups)
        return {"term_groups": len(groups) - spread, "spread_groups": spread}
