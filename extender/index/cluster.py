"""The index: owns the parts, applies a change to each in a fixed order, and is the view that decisions are given.

Only tasks (and the simulation) write, through ``upsert`` and ``delete``; everybody else is handed the `ClusterView`
that this class satisfies. The order in which a change of a node is applied is what keeps counts true:
take the node's pods out of their groups, move the node, put them back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import partial

from extender.index.claims.assumed import AssumedPods
from extender.index.claims.nominations import Nominations
from extender.index.claims.rejected_pods import RejectedPods
from extender.index.counts.compiled_constraints import ConstraintCompiler
from extender.index.counts.domains import KeyDomains, Topology, same_place
from extender.index.counts.groups import Group, IndexDriftError
from extender.index.counts.selections import Selections
from extender.index.counts.signature_counts import SignatureCounts, SignatureTable
from extender.index.counts.spread_counts import SpreadCounts
from extender.index.counts.term_counts import TermCounts
from extender.index.counts.what_if import WhatIf
from extender.index.objects.budgets import Budgets
from extender.index.objects.deleted_pods import DeletedPods
from extender.index.objects.namespaces import Namespaces
from extender.index.objects.pod_listeners import PodListeners
from extender.index.objects.workloads import Workloads
from extender.index.view import ClusterView, CompiledConstraints, Expected, GroupView
from extender.model.labels import Labels
from extender.model.objects import DisruptionBudget, Namespace, Node, Object, Pod, PodSignature, Workload
from extender.model.resources import Resources, add
from extender.settings import Rules

_NO_PODS: Mapping[str, Pod] = {}


class ClusterIndex:
    """Pods, nodes, namespaces and workloads with every count that decisions read."""

    def __init__(self, rules: Rules, *, rejects_excess: bool = True) -> None:
        self.drifts = 0
        self._questions = partial(ConstraintCompiler, rules, rejects_excess=rejects_excess)
        self.pods: dict[str, Pod] = {}
        self.topology = Topology()
        self.namespaces = Namespaces()
        self.workloads = Workloads()
        self.budgets = Budgets()
        self.nominations = Nominations()
        self.gone = DeletedPods()
        self.pod_listeners = PodListeners()
        self.rejected = RejectedPods(self.gone)
        self._derive()
        self.assumed = AssumedPods(self.signatures, self._count, self.gone)

    def _derive(self) -> None:
        """Makes everything that is counted from the objects, empty."""
        self.signatures = SignatureTable(self._signature_added, self._signature_gone)
        self.selections = Selections(self.signatures, self.namespaces)
        self.terms = TermCounts(self.topology, self.namespaces, self.selections)
        self.spreads = SpreadCounts(self.topology, self.selections)
        self.questions = self._questions(self.signatures, self.terms, self.spreads, self.namespaces, self.workloads)
        self._on_node: dict[int, dict[str, Pod]] = {}
        self._requested: dict[int, dict[str, int]] = {}
        self._priorities: dict[int, int] = {}

    def rebuild(self) -> None:
        """Counts everything anew from the objects, in one step: the cure for a drift, which only a fault of ours makes.

        O(pods): about a second for 100,000. Questions are compiled again when they are next asked.
        """
        self.drifts += 1
        self.namespaces.release_all()
        self.topology.release_all()
        self._derive()
        for pod in self.pods.values():
            self.questions.count_pod(pod.signature, 1)
            if pod.node:
                self._count(pod, 1)
        self.assumed.recount(self.signatures)

    @property
    def view(self) -> ClusterView:
        """The read-only face of this index."""
        return self

    def upsert(self, obj: Object) -> bool:
        """Applies an object as it is now; False where nothing that we read has changed."""
        try:
            return self._upsert(obj)
        except IndexDriftError:
            self.rebuild()
            return True

    def _upsert(self, obj: Object) -> bool:
        match obj:
            case Pod():
                return self._change_pod(obj.uid, None if obj.finished else obj)
            case Node():
                return self._change_node(obj.name, obj)
            case Namespace():
                return self._change_namespace(obj.name, obj)
            case Workload():
                return self.workloads.change(obj.key, obj)
            case DisruptionBudget():
                return self.budgets.change(obj.key, obj)

    def delete(self, obj: Object) -> bool:
        """Applies the disappearance of an object; False where it was not there."""
        try:
            return self._delete(obj)
        except IndexDriftError:
            self.rebuild()
            return True

    def _delete(self, obj: Object) -> bool:
        match obj:
            case Pod():
                return self._change_pod(obj.uid, None)
            case Node():
                return self._change_node(obj.name, None)
            case Namespace():
                return self._change_namespace(obj.name, None)
            case Workload():
                return self.workloads.change(obj.key, None)
            case DisruptionBudget():
                return self.budgets.change(obj.key, None)

    def _change_pod(self, uid: str, new: Pod | None) -> bool:
        old = self.pods.get(uid)
        if old == new:
            return False
        if new is None:
            del self.pods[uid]
        else:
            self.pods[uid] = new
        if new is None or new.node:
            self.rejected.discard(uid)
        self.assumed.observe(uid, old, new)
        if old is not None and old.node:
            self._count(old, -1)
        if new is not None and new.node:
            self._count(new, 1)
        if old is None or new is None or old.signature is not new.signature:
            for pod, sign in ((new, 1), (old, -1)):
                if pod is not None:
                    self.questions.count_pod(pod.signature, sign)
        self.nominations.change(uid, new)
        self.pod_listeners.notify(uid)
        return True

    def _count(self, pod: Pod, sign: int) -> None:
        """Places a pod on its node, or takes it away: one path with a sign."""
        number = self.topology.number(pod.node)
        self.signatures.put(pod.signature, pod.terminating, number, sign)
        add(self._requested.setdefault(number, {}), pod.requests, sign)
        left = self._priorities.get(pod.priority, 0) + sign
        if left:
            self._priorities[pod.priority] = left
        else:
            del self._priorities[pod.priority]
        here = self._on_node.setdefault(number, {})
        if sign > 0:
            here[pod.uid] = pod
            return
        del here[pod.uid]
        if not here:
            del self._on_node[number], self._requested[number]
            if self.topology.nodes[number] is None:
                self.topology.release(number)

    def _change_node(self, name: str, new: Node | None) -> bool:
        if new is None and name not in self.topology.known:
            return False
        number = self.topology.number(name)
        old = self.topology.nodes[number]
        if old == new:
            return False
        moves = not same_place(old, new)
        here = self._counted_on(number) if moves else {}
        for counts_of_signature, pods in here.items():
            _add(counts_of_signature.groups, number, -pods)
        turned = self.topology.put(number, new)
        for counts_of_signature, pods in here.items():
            _add(counts_of_signature.groups, number, pods)
        for column in turned:  # after that: a group that starts to count now counts this node's pods with all others
            self.terms.column_turned(column)
            self.selections.column_turned(column)
        if new is None and number not in self._on_node:
            self.topology.release(number)
        return True

    def _counted_on(self, number: int) -> dict[SignatureCounts, int]:
        found: dict[SignatureCounts, int] = {}
        for pod in self._on_node.get(number, _NO_PODS).values():
            counts_of_signature = self.signatures.find(pod.signature, terminating=pod.terminating)
            if counts_of_signature is not None:
                found[counts_of_signature] = found.get(counts_of_signature, 0) + 1
        return found

    def _change_namespace(self, name: str, new: Namespace | None) -> bool:
        if self.namespaces.objects.get(name) == new:
            return False
        self.selections.namespace_changed(name, self.namespaces.change(name, new))
        return True

    def unwatched_version(self) -> int:
        """Grows with every change that may help a refused pod and that the scheduler does not watch."""
        return self.namespaces.version + self.workloads.version + self.assumed.ended

    def assume(self, pod: Pod, nodes: Sequence[str], now: float, *, doubted: bool = False) -> None:
        """From now on the pod counts as standing on the node, or with several nodes as standing on one of them.

        A pod that the watch has already shown on a node is left alone. No nodes: nothing is assumed. ``doubted``: it may
        stand nowhere as well; the place is held for it, and nothing rests on it.
        """
        known = self.pods.get(pod.uid)
        self.assumed.settle(pod.uid)
        if nodes and not (known is not None and known.node):
            self.assumed.assume(pod, tuple(nodes), now, doubted=doubted)

    def _signature_added(self, counts_of_signature: SignatureCounts) -> None:
        self.terms.signature_added(counts_of_signature)
        self.selections.signature_added(counts_of_signature)

    def _signature_gone(self, counts_of_signature: SignatureCounts) -> None:
        self.terms.signature_gone(counts_of_signature)
        self.selections.signature_gone(counts_of_signature)

    @property
    def known(self) -> Mapping[str, int]:
        """Numbers of the nodes that exist, by name."""
        return self.topology.known

    @property
    def topology_version(self) -> int:
        """Grows with every change of nodes."""
        return self.topology.version

    def compiled(self, signature: PodSignature) -> CompiledConstraints:
        """The compiled question of a shape."""
        return self.questions.find(signature)

    def grounds(self, compiled: CompiledConstraints) -> int:
        """Changes whenever the filter's answer may have changed: versions only grow, so their sum never repeats."""
        return self.topology.version + sum(group.version for group in compiled.filter_groups())

    def is_pending(self, compiled: CompiledConstraints) -> bool:
        """Whether the filter's answer may hang on a pod whose node is not known yet."""
        assumed = self.assumed
        return (assumed.several or assumed.doubted) > 0 and any(group.pending for group in compiled.filter_groups())

    def expected(self, group: GroupView) -> Expected:
        """Where the pods that are counted by the group and whose node is not known yet may stand."""
        return self.assumed.expected(group, self.topology.known)

    def is_touched(self, signature: PodSignature) -> bool:
        """Whether placing a pod of this shape can change another pod's answer, as far as anybody has asked."""
        counts_of_signature = self.signatures.find(signature, terminating=False)
        if counts_of_signature is not None:
            return bool(counts_of_signature.groups)
        return not signature.affinity.is_empty or self.selections.would_count(
            SignatureCounts(signature, terminating=False)
        )

    def key(self, topology_key: str) -> KeyDomains:
        """The domains of a topology key."""
        return self.topology.key(topology_key)

    def node(self, number: int) -> Node | None:
        """The node of a number."""
        return self.topology.nodes[number]

    @property
    def node_names(self) -> Sequence[str]:
        """Names by node number."""
        return self.topology.names

    def requested(self, number: int) -> Resources:
        """What the pods on the node ask for together."""
        return self._requested.get(number, {})

    def pods_on(self, number: int) -> Mapping[str, Pod]:
        """The pods that stand on the node, by UID."""
        return self._on_node.get(number, _NO_PODS)

    def pod(self, uid: str) -> Pod | None:
        """A pod by UID."""
        return self.pods.get(uid)

    def namespace_labels(self, name: str) -> Labels | None:
        """The labels of a Namespace object."""
        return self.namespaces.labels(name)

    @contextmanager
    def without(self, pods: Sequence[Pod]) -> Iterator[None]:
        """Inside the block the pods do not count. Ask for the question before: a group made inside would count them."""
        with self.what_if() as tried:
            for pod in pods:
                held = self.pods.get(pod.uid)
                if held is not None and held.node:
                    tried.take(held)
            yield

    @contextmanager
    def what_if(self) -> Iterator[WhatIf]:
        """Inside the block pods may be taken away, put back, or made to stand somewhere; on leaving all is undone."""
        tried = WhatIf(self.topology, self.signatures)
        try:
            yield tried
        finally:
            tried.undo()

    def is_counted(self, pod: Pod, groups: AbstractSet[GroupView]) -> bool:
        """Whether any of the groups counts this placed pod. O(groups that count it)."""
        counts_of_signature = self.signatures.find(pod.signature, terminating=pod.terminating)
        return counts_of_signature is not None and any(group in groups for group in counts_of_signature.groups)

    def has_below(self, priority: int) -> bool:
        """Whether any pod that stands somewhere has a lower priority. O(distinct priorities)."""
        return any(held < priority for held in self._priorities)

    @property
    def nominated(self) -> Mapping[str, Mapping[str, Pod]]:
        """The pods that are to come to a node, by node name and UID."""
        return self.nominations.by_node

    def awaited(self, uid: str) -> str:
        """The node that a plan promises to a pod, while any of its victims is still there; else empty."""
        return self.nominations.awaited(uid, self.pods)

    def planned(self, uid: str) -> str:
        """The node of the plan for a pod, as long as it is looked after; else empty."""
        promise = self.nominations.promises.get(uid)
        return "" if promise is None else promise.node

    def leaving(self, node: str) -> list[Pod]:
        """The pods that plans for the node are removing, and that are still there."""
        return [pod for uid in self.nominations.leaving(node) if (pod := self.pods.get(uid)) is not None]

    @property
    def claims_version(self) -> int:
        """Grows with every change of nominations, promises and disruption budgets."""
        return self.nominations.version + self.budgets.version

    def promise(self, pod: Pod, node: str, victims: Collection[str]) -> None:
        """A plan for the pod is being carried out: the node counts as its own until `withdraw`. ``victims`` are UIDs."""
        self.nominations.promise(self.pods.get(pod.uid, pod), node, victims)

    def withdraw(self, uid: str) -> None:
        """The pod's nomination counts as its status has it; the plan is still looked after."""
        self.nominations.withdraw(uid, self.pods.get(uid))

    def forget(self, uid: str) -> None:
        """The plan for the pod is over."""
        self.nominations.forget(uid, self.pods.get(uid))

    def budgets_in(self, namespace: str) -> Collection[DisruptionBudget]:
        """The disruption budgets of a namespace."""
        return self.budgets.of(namespace)

    def statistics(self) -> dict[str, int]:
        """Sizes of everything that is kept, for metrics."""
        counts = (self.terms, self.spreads, self.questions, self.nominations)
        parts = (self.topology, self.signatures, self.namespaces, self.budgets, *counts)
        result = {"pods": len(self.pods), "workloads": len(self.workloads.objects), "drifts": self.drifts}
        result |= {"assumed_pods": len(self.assumed.held), "refused_pods": len(self.rejected)}
        for part in parts:
            result |= part.statistics()
        return result


def _add(groups: Mapping[Group, int], number: int, pods: int) -> None:
    for group, times in groups.items():
        group.add(number, pods * times)
