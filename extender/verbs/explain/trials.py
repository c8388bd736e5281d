"""Trials: whether a pod would pass on a node after a change. A trial changes the live counts and undoes it in the same step.

The rules of filter decide each trial; nothing is guessed. A change that a trial cannot express exactly is not offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.nodes.columns import NodeNumber
from extender.index.view import ClusterView
from extender.model.objects import Node, Pod
from extender.model.rejections import Reason, Rejection
from extender.model.resources import PODS
from extender.rules import catalog
from extender.rules.frames import ChangedNodeFrame, IndexFrame, RequestFrame
from extender.rules.free_resources import FreeResources, claims_on, free_resources_on, static_rejection
from extender.settings.configuration import Settings
from extender.verbs.effective_pod import effective_pod
from extender.verbs.kept_nodes import KeptNodes
from extender.verbs.request import worst_case


class Incoming:
    """A pod without a node: its effective form, its constraints, and the state of each node for it.

    - ``asked``: the pod without directives of policies, as kube-scheduler checks it.
    - ``kept``: nodes that are kept for nominated pods.
    - ``passing``: nodes that pass filter.
    - ``rejections``: by node the rejection by node fit, None where it fits.
    """

    def __init__(self, asked: Pod, view: ClusterView, settings: Settings) -> None:
        self.asked, self.view, self.settings = asked, view, settings
        self.pod = effective_pod(asked, view, settings)
        self.compiled = view.compiled(self.pod.signature)
        self.frame = worst_case(IndexFrame(), self.compiled, view)
        self.numbers: Sequence[NodeNumber] = list(view.known.values())
        self.kept = {view.known[name] for name in KeptNodes(self.pod, view, settings).among(view.known)}
        self.passing: list[NodeNumber] = []
        self.rejections: dict[NodeNumber, Rejection | None] = {}

    def may_fit(self, number: NodeNumber) -> bool:
        """Whether node fit rejects the node for nothing but room (or not at all)."""
        if number in self.kept or self.view.node(number) is None:
            return False
        rejection = self.rejections.get(number)
        return rejection is None or rejection.reason in (Reason.NO_ROOM, Reason.HOST_PORTS)


def passes(pod: Pod, compiled: CompiledConstraints, number: NodeNumber, view: ClusterView) -> bool:
    """Whether the pod passes the rules on a node with the current counts. O(clauses)."""
    return (
        catalog.prepare_beside_fit(pod, compiled, view, worst_case(IndexFrame(), compiled, view)).reason(number) is None
    )


def passes_on_new_node(pod: Pod, compiled: CompiledConstraints, node: Node, view: ClusterView) -> bool:
    """Whether the pod passes and fits on a node that does not exist yet. O(clauses)."""
    if static_rejection(pod, node) is not None or empty(node).shortage(pod.requests):
        return False
    # As a request with one whole node, which an autoscaler sends for a node that does not exist yet.
    frame = worst_case(RequestFrame([node]), compiled, view)
    return catalog.prepare_beside_fit(pod, compiled, view, frame).reason(0) is None


def passes_on_changed_node(incoming: Incoming, number: NodeNumber, node: Node) -> bool:
    """Whether the pod would pass and fit on a node of the index if the node were changed to ``node`` (labels, taints, cordon).

    O(clauses × pods on the node).
    """
    pod, view, old = incoming.pod, incoming.view, incoming.view.node(number)
    if old is None or number in incoming.kept or static_rejection(pod, node) is not None:
        return False
    if not free_resources_on(view, number, node, claims_on(node.name, pod, view)).takes(pod):
        return False
    if old.labels == node.labels and old.taints == node.taints:
        return passes(pod, incoming.compiled, number, view)
    # Other labels or taints: counts of the node's pods may change too. Not offered where they cannot be computed exactly.
    if view.is_undetermined(incoming.compiled) or any(
        _may_begin_to_count(key, number, pod, view) for key in node.labels.keys() - old.labels.keys()
    ):
        return False
    frame = ChangedNodeFrame(number, node, view)
    return catalog.prepare_beside_fit(pod, incoming.compiled, view, frame).reason(0) is None


def _may_begin_to_count(key: str, number: NodeNumber, pod: Pod, view: ClusterView) -> bool:
    """Whether anti-affinity over a label key may reject the pod on a node once the node has the key.

    While no node carries the key there are no counts for it, so the terms themselves are compared.
    O(terms of the pods on the node) for a key that no node carries, else O(1).
    """
    if view.is_carried(key):
        return False
    others = view.pods_on(number).values()
    return bool(view.policies.about_placed_pods) or any(
        _keeps_away(one, other, key, view) for existing in others for one, other in ((existing, pod), (pod, existing))
    )


def _keeps_away(one: Pod, other: Pod, key: str, view: ClusterView) -> bool:
    """Whether required anti-affinity of one pod over a label key selects the other. O(terms)."""
    namespace, labels = other.signature.namespace, other.signature.labels
    return any(
        term.topology_key == key and term.selects(namespace, labels, view.namespace_labels(namespace))
        for term in one.signature.affinity.required_anti
    )


def empty(node: Node) -> FreeResources:
    """The free resources of a node without pods."""
    return FreeResources(dict(node.allocatable), node.allocatable.get(PODS, 0))


def fits_without(pod: Pod, number: NodeNumber, leaving: Iterable[Pod], view: ClusterView) -> bool:
    """Whether the pod passes node fit on the node after these pods have left it. O(resources)."""
    node = view.node(number)
    if node is None or static_rejection(pod, node) is not None:
        return False
    free = free_resources_on(view, number, node, claims_on(node.name, pod, view))
    for other in leaving:
        if other.node == node.name:
            free.count(other, -1)
    return free.takes(pod)


def missing_room(pod: Pod, number: NodeNumber, view: ClusterView) -> dict[str, int]:
    """By resource how much more the node would need for the pod. Empty where more room would not help. O(resources)."""
    node = view.node(number)
    if node is None:
        return {}
    free = free_resources_on(view, number, node, claims_on(node.name, pod, view))
    missing = {PODS: 1 - free.slots} if free.slots < 1 else {}
    for name, amount in pod.requests.items():
        if name != PODS and amount > max(free.free.get(name, 0), 0):
            missing[name] = amount - free.free.get(name, 0)
    # With the missing amounts added, only host ports can still reject the pod, and more room does not help there.
    for name, amount in missing.items():
        free.free[name] = free.free.get(name, 0) + amount
    free.slots += missing.get(PODS, 0)
    return missing if free.takes(pod) else {}


def is_helped_by_moving(incoming: Incoming, moved: Pod, number: NodeNumber, targets: Iterable[NodeNumber]) -> str:
    """The first target node to which ``moved`` may go so that the incoming pod passes and fits on node ``number``; "" if none.

    The moved pod has to pass its own rules and fit on the target. O(targets × clauses).
    """
    view, pod = incoming.view, incoming.pod
    if not fits_without(pod, number, (moved,), view):
        return ""
    # Compiled before the trial takes the pod: a count group that is made inside the trial would count the pod that left.
    own, placed = view.compiled(moved.signature), moved.recreated()
    # The counts of the moved pod would be bounds. A change is offered only if its result is exact.
    if view.is_undetermined(own):
        return ""
    with view.trial() as trial:
        trial.take(moved)
        if not passes(pod, incoming.compiled, number, view):
            return ""
        filters = catalog.prepare_beside_fit(placed, own, view, IndexFrame())
        for target in targets:
            node = view.node(target)
            if node is None or node.name == moved.node or filters.reason(target) is not None:
                continue
            if not fits_without(placed, target, (), view):
                continue
            trial.place(placed, target)
            helps = passes(pod, incoming.compiled, number, view)
            trial.remove_last()
            if helps and (target != number or fits_without(pod, number, (moved,), view)):
                return node.name
    return ""
