"""All running counts, joined: which tables a change of a node or namespace must reach, and in which order.

`ClusterIndex` counts pods directly in `signatures` (`index/counts/groups.py`). Everything here is derived from objects,
so `clear` and a recount repair the counts after a bug.

A change of a node keeps counts true in this order: remove the node's pods from their groups, move the node, add them
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial

from extender.index.counts.compiled_constraints import CompiledConstraints, ConstraintCompiler, Counted
from extender.index.counts.groups import (
    CountGroup,
    GroupView,
    PlacedPods,
    SelectedGroup,
    SignatureCounts,
    SignatureTable,
)
from extender.index.counts.namespace_budgets import NamespaceBudgets
from extender.index.counts.selections import Selections
from extender.index.counts.term_counts import PolicyTerms, TermCounts, TermGroupView
from extender.index.nodes.topology import Topology
from extender.index.objects.changes import ChangeJournal
from extender.index.objects.namespaces import Namespaces
from extender.index.objects.workloads import Workloads
from extender.model.changes import PolicyRecheck
from extender.model.constraints.labels import Labels
from extender.model.constraints.terms import NO_AFFINITY, PodAffinity
from extender.model.objects import Namespace, Node, Pod, PodSignature
from extender.settings.rules import Rules

_SIGNATURES_A_STEP = 400  # at 0.3 µs
# Copying a wanted signature, and copying 20 of its nodes, each take as long as visiting signatures.
_COPIED, _NODES_COPIED = 4, 20


class Counts:
    """Pods per signature and per group, and the compiled constraints that read the groups."""

    signatures: SignatureTable
    selections: Selections
    terms: TermCounts

    def __init__(
        self,
        settings: Rules,
        kinds: Sequence[type[Counted]],
        topology: Topology,
        namespaces: Namespaces,
        workloads: Workloads,
        budgets: NamespaceBudgets,
        journal: ChangeJournal,
        *,
        shadow: Rules | None = None,
    ) -> None:
        self._journal = journal
        # The affinity terms that policies add to the pods of a signature; set once, before any pod.
        self.policy_terms: PolicyTerms = _no_terms
        self._topology = topology
        self._namespaces = namespaces
        self.budgets = budgets
        self.compiler = ConstraintCompiler(settings, kinds, namespaces, workloads, budgets)
        # Compiles as if both rules were enabled, for decisions that are only compared; None without them.
        self.shadow = None if shadow is None else ConstraintCompiler(shadow, kinds, namespaces, workloads, budgets)
        self.count_pod = (
            self.compiler.count_pod if self.shadow is None else partial(_count_in_both, self.compiler, self.shadow)
        )
        # False if namespaceSelectors of terms are ignored.
        self.reads_selectors = settings.inter_pod_affinity.namespace_selector
        self.clear()

    def clear(self) -> None:
        """Replaces every table by an empty one. The caller must count the pods again."""
        # Before the new tables: topology keys, scopes and selectors are held for groups of the old ones.
        self._namespaces.release_all()
        self._topology.release_all()
        self.signatures = SignatureTable(self._signature_added, self._signature_removed)
        self.selections = Selections(self._topology, self.signatures, self._namespaces)
        self.terms = TermCounts(
            self._topology, self._namespaces, self._terms_of_policies, reads_selectors=self.reads_selectors
        )
        self.compiler.start(self.signatures, self.terms, self.selections, self._topology)
        if self.shadow is not None:
            self.shadow.start(self.signatures, self.terms, self.selections, self._topology)

    def _terms_of_policies(self, signature: PodSignature) -> PodAffinity:
        return self.policy_terms(signature)

    def _signature_added(self, counts_of_signature: SignatureCounts) -> None:
        self.terms.signature_added(counts_of_signature)
        self.selections.signature_added(counts_of_signature)

    def _signature_removed(self, counts_of_signature: SignatureCounts) -> None:
        self.terms.signature_removed(counts_of_signature)
        self.selections.signature_removed(counts_of_signature)

    # -- changes -------------------------------------------------------------------------------------------------------

    def change_node(self, number: int, new: Node | None, pods: Iterable[Pod]) -> None:
        """Sets or removes a node that these pods are on. O(pods + labels); O(labels) if the pods count as before."""
        moves = not self._topology.is_same_place(self._topology.nodes[number], new)
        # Capacity, and mostly taints, change no domain: then the node's pods stay counted.
        here = self._signatures_of(pods) if moves else {}
        for counts_of_signature, times in here.items():
            _add(counts_of_signature.groups, number, -times)
        changed = self._topology.put(number, new)
        for counts_of_signature, times in here.items():
            _add(counts_of_signature.groups, number, times)
        # Afterwards, because a group that starts to count here counts this node's pods with all others.
        for column in changed.columns:
            self.terms.occupancy_changed(column)
            self.selections.occupancy_changed(column)
        if changed.keys:
            self.terms.first_carried(changed.keys)

    def _signatures_of(self, pods: Iterable[Pod]) -> dict[SignatureCounts, int]:
        signatures: dict[SignatureCounts, int] = {}
        for pod in pods:
            counts_of_signature = self.signatures.find(pod.signature, terminating=pod.terminating)
            if counts_of_signature is not None:
                signatures[counts_of_signature] = signatures.get(counts_of_signature, 0) + 1
        return signatures

    def change_namespace(self, name: str, new: Namespace | None) -> bool:
        """Sets or removes a namespace; False if nothing changed. O(pods that selectors now match differently)."""
        old = self._namespaces.objects.get(name)
        if old == new:
            return False
        self.selections.namespace_changed(name, self._namespaces.change(name, new))
        self._namespaces.changes.notify(old, new)
        return True

    @property
    def has_policy_terms(self) -> bool:
        """Whether policies add a term to counted pods."""
        return self.terms.has_policy_terms

    def recheck_policies(self, counts_of_signature: SignatureCounts) -> bool:
        """After a change of policies, corrects what they add to a signature's pods. False if nothing changed.

        O(terms).
        """
        kept = self.signatures.find(counts_of_signature.signature, terminating=counts_of_signature.terminating)
        # The recheck runs in steps: a signature may have lost its pods, or been replaced, since the step was planned.
        if kept is not counts_of_signature or not self.terms.recheck(counts_of_signature):
            return False
        if self._journal.note is not None:
            self._journal.note(PolicyRecheck(kept.signature, kept.terminating))
        return True

    # -- readers -------------------------------------------------------------------------------------------------------

    def dependency_version(self, compiled: CompiledConstraints) -> int:
        """The dependency version of a filter result. Versions only grow, so their sum never repeats. O(groups)."""
        return self._topology.version + sum(group.version for group in compiled.filter_groups())

    def is_touched(self, signature: PodSignature) -> bool:
        """Whether placing such a pod may change the result for another pod with compiled constraints."""
        counts_of_signature = self.signatures.find(signature, terminating=False)
        if counts_of_signature is not None:
            return bool(counts_of_signature.groups)
        return not signature.affinity.is_empty or self.selections.would_count(
            SignatureCounts(signature, terminating=False)
        )

    def placed(
        self, group: GroupView | None = None, wanted: Callable[[PodSignature], bool] | None = None
    ) -> Iterator[PlacedPods | None]:
        """By signature, the pods on nodes that a group counts (None: all). Yields None after every few hundred.

        O(signatures).
        """
        work = 0
        for signature_counts in list(self.signatures):
            work += 1
            is_wanted = (group is None or group in signature_counts.groups) and (
                wanted is None or wanted(signature_counts.signature)
            )
            if signature_counts.nodes and is_wanted:
                work += _COPIED + len(signature_counts.nodes) // _NODES_COPIED
                yield PlacedPods(
                    signature_counts.signature, signature_counts.terminating, signature_counts.nodes.copy()
                )
            if work >= _SIGNATURES_A_STEP:
                work = 0
                yield None

    def groups_that_count(self, signature: PodSignature) -> AbstractSet[tuple[GroupView, int]]:
        """The groups that count pods of a signature, and how often each counts a pod. O(1)."""
        counts = self.signatures.find(signature, terminating=False)
        return counts.groups.items() if counts is not None else frozenset()

    def is_counted(self, pod: Pod, groups: AbstractSet[GroupView]) -> bool:
        """Whether any of the groups counts this placed pod. O(groups that count it)."""
        counts_of_signature = self.signatures.find(pod.signature, terminating=pod.terminating)
        return counts_of_signature is not None and any(group in groups for group in counts_of_signature.groups)

    def times_counted(self, pod: Pod, group: GroupView) -> int:
        """How often a group counts this placed pod, if its node is in a domain of the group. O(1).

        Also for a group that counts nothing because no node is in a domain of it.
        """
        counts = self.signatures.find(pod.signature, terminating=pod.terminating)
        if counts is None:
            return 0
        if isinstance(group, SelectedGroup):
            return int(counts in group.selection.members)
        return counts.groups.get(group, 0) if isinstance(group, CountGroup) else 0

    def terms_selecting(self, signature: PodSignature, namespace_labels: Labels) -> Sequence[TermGroupView]:
        """The terms of existing pods that would select these pods if their namespace had these labels."""
        return self.terms.selecting(signature, namespace_labels=namespace_labels)

    def statistics(self) -> dict[str, int]:
        """How many signatures, groups and compiled constraints are kept, for metrics."""
        parts = (self.signatures, self.selections, self.terms, self.compiler, self.budgets)
        return {name: number for part in parts for name, number in part.statistics().items()}


def _count_in_both(
    compiler: ConstraintCompiler, shadow: ConstraintCompiler, signature: PodSignature, sign: int
) -> None:
    compiler.count_pod(signature, sign)
    shadow.count_pod(signature, sign)


def _no_terms(_signature: PodSignature) -> PodAffinity:
    return NO_AFFINITY


def _add(groups: Mapping[CountGroup, int], number: int, pods: int) -> None:
    for group, times in groups.items():
        group.add(number, pods * times)
