"""Trials: whether the pod would pass on a node after a change. All that is changed on the counts is undone in the same step.

A change is tried with the rules that filter, never guessed. What a trial cannot express exactly is not offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from msgspec import structs

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.nodes.columns import NodeNumber
from extender.index.view import ClusterView
from extender.model.constraints.labels import Labels
from extender.model.constraints.terms import AffinityTerm
from extender.model.objects import Node, Pod, PodSignature
from extender.model.rejections import Reason, Rejection
from extender.model.resources import PODS
from extender.rules import catalog
from extender.rules.frames import Frame, IndexFrame, RequestFrame, WorstCaseFrame
from extender.rules.free_resources import FreeResources, claims_on, free_resources_on
from extender.rules.node_fit import static_rejection


@dataclass(frozen=True, slots=True)
class Incoming:
    """The effective pod, its constraints, the nodes ``kept`` for nominated pods, what node fit says, and what passes."""

    pod: Pod
    compiled: CompiledConstraints
    view: ClusterView
    kept: AbstractSet[NodeNumber]
    rejections: Mapping[NodeNumber, Rejection | None]
    passing: Sequence[NodeNumber]

    def may_fit(self, number: NodeNumber) -> bool:
        """Whether nothing but room keeps the pod off the node, as far as node fit tells."""
        if number in self.kept or self.view.node(number) is None:
            return False
        found = self.rejections.get(number)
        return found is None or found.reason in (Reason.NO_ROOM, Reason.HOST_PORTS)


def passes(pod: Pod, compiled: CompiledConstraints, number: NodeNumber, view: ClusterView) -> bool:
    """Whether the rules let the pod pass on a node as the counts are now. O(clauses)."""
    return catalog.prepare_beside_fit(pod, compiled, view, _frame(IndexFrame(), compiled, view)).reason(number) is None


def passes_on_new_node(pod: Pod, compiled: CompiledConstraints, node: Node, view: ClusterView) -> bool:
    """Whether the pod passes and fits on a node that does not exist yet. O(clauses)."""
    if static_rejection(pod, node) is not None or empty(node).shortage(pod.requests):
        return False
    frame = _frame(RequestFrame([node]), compiled, view)
    return catalog.prepare_beside_fit(pod, compiled, view, frame).reason(0) is None


def _frame(frame: Frame, compiled: CompiledConstraints, view: ClusterView) -> Frame:
    return WorstCaseFrame(frame, view) if view.is_undetermined(compiled) else frame


def empty(node: Node) -> FreeResources:
    """What a node without pods offers."""
    return FreeResources(dict(node.allocatable), node.allocatable.get(PODS, 0))


def fits_without(pod: Pod, number: NodeNumber, leaving: Iterable[Pod], view: ClusterView) -> bool:
    """Whether the node has room for the pod, and nothing else keeps it off, once these pods have left it. O(resources)."""
    node = view.node(number)
    if node is None or static_rejection(pod, node) is not None:
        return False
    free = free_resources_on(view, number, node, claims_on(node.name, pod, view))
    for each in leaving:
        if each.node == node.name:
            free.count(each, -1)
    return free.takes(pod)


def missing_room(pod: Pod, number: NodeNumber, view: ClusterView) -> dict[str, int]:
    """By resource how much more the node would have to offer for the pod. O(resources)."""
    node = view.node(number)
    if node is None:
        return {}
    free = free_resources_on(view, number, node, claims_on(node.name, pod, view))
    missing = {PODS: 1 - free.slots} if free.slots < 1 else {}
    for name, amount in pod.requests.items():
        if name != PODS and amount > max(free.free.get(name, 0), 0):
            missing[name] = amount - free.free.get(name, 0)
    for name, amount in missing.items():
        free.free[name] = free.free.get(name, 0) + amount
    free.slots += missing.get(PODS, 0)
    return missing if free.takes(pod) else {}


def is_helped_by_moving(incoming: Incoming, moved: Pod, number: NodeNumber, targets: Iterable[NodeNumber]) -> str:
    """The first of the target nodes to which ``moved`` may go so that the incoming pod passes and fits on a node; else "".

    The moved pod passes its own rules and fits there. O(targets × clauses).
    """
    view, pod = incoming.view, incoming.pod
    if not fits_without(pod, number, (moved,), view):
        return ""
    # Compiled before anything is taken: a group that is made in the trial would count the pod that left.
    own, placed = view.compiled(moved.signature), structs.replace(moved, node="")
    if view.is_undetermined(own):
        return ""
    with view.what_if() as tried:
        tried.take(moved)
        if not passes(pod, incoming.compiled, number, view):
            return ""
        filters = catalog.prepare_beside_fit(placed, own, view, IndexFrame())
        for target in targets:
            node = view.node(target)
            if node is None or node.name == moved.node or filters.reason(target) is not None:
                continue
            if not fits_without(placed, target, (), view):
                continue
            tried.place(placed, target)
            helps = passes(pod, incoming.compiled, number, view)
            tried.remove_placed()
            if helps and (target != number or fits_without(pod, number, (moved,), view)):
                return node.name
    return ""


def with_labelled_namespace(signature: PodSignature, namespace: str, old: Labels, new: Labels) -> PodSignature | None:
    """The signature as if the namespace, not its own, had the new labels: its terms name the namespace that they reach then.

    None where a term would no longer reach the namespace, which a name cannot express.
    """
    terms = [*signature.affinity.required, *signature.affinity.required_anti]
    if any(each.covers(namespace, old) and not each.covers(namespace, new) for each in terms):
        return None

    def reaching(term: AffinityTerm) -> AffinityTerm:
        if term.covers(namespace, old) or not term.covers(namespace, new):
            return term
        return structs.replace(term, namespaces=tuple(sorted({*term.namespaces, namespace})))

    affinity = signature.affinity
    return replace(
        signature,
        affinity=replace(
            affinity,
            required=tuple(map(reaching, affinity.required)),
            required_anti=tuple(map(reaching, affinity.required_anti)),
        ),
    )
