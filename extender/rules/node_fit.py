"""Whether a node by itself could take a pod: cordon, taints, node affinity, and room for its requests.

kube-scheduler decides these for every node that it asks about. We need them for the nodes that it has not looked at
while a preemption is planned, and for the room that pods nominated by us take before the scheduler knows of them.
Not checked, because the index does not hold it: host ports, volumes, devices. `Pod.has_unseen_needs` tells of a pod
that asks for such things, so that it is not nominated to a node on the strength of this module alone.
https://kubernetes.io/docs/concepts/scheduling-eviction/kube-scheduler/ (NodeUnschedulable, TaintToleration,
NodeAffinity, NodeResourcesFit)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from extender.index.view import ClusterView, NodeNumber
from extender.model.objects import Node, Pod
from extender.model.rejections import Reason
from extender.model.resources import PODS, Resources
from extender.model.taints import NO_SCHEDULE, Taint, first_untolerated

CORDON = Taint("node.kubernetes.io/unschedulable", "", NO_SCHEDULE)


def static_rejection(pod: Pod, node: Node) -> Reason | None:
    """What keeps the pod off the node whichever pods leave it, None where nothing does. O(taints + terms)."""
    signature = pod.signature
    if node.unschedulable and not any(each.tolerates(CORDON) for each in signature.tolerations):
        return Reason.CORDONED
    if node.taints and first_untolerated(node.taints, signature.tolerations) is not None:
        return Reason.TAINT
    if not signature.node_affinity.matches(node.name, node.labels):
        return Reason.NODE_AFFINITY
    return None


@dataclass(slots=True)
class FreeResources:
    """What is left on one node in a what-if: pods are taken away and counted back without touching the index.

    ``free`` may be negative. A resource that is neither offered nor requested has no entry.
    """

    free: dict[str, int] = field(default_factory=dict)
    slots: int = 0

    def count(self, pod: Pod, sign: int) -> None:
        """The pod stands here (``sign`` 1), or no longer does (-1). O(its resources)."""
        self.slots -= sign
        free = self.free
        for name, amount in pod.requests.items():
            free[name] = free.get(name, 0) - sign * amount

    def takes(self, requests: Resources) -> bool:
        """Whether a pod with these requests fits in what is free. What it does not ask for may be overdrawn."""
        if self.slots < 1:
            return False
        free = self.free
        return all(amount <= free.get(name, 0) for name, amount in requests.items() if amount > 0 and name != PODS)


def free_resources_on(view: ClusterView, number: NodeNumber, others: Iterable[Pod] = ()) -> FreeResources | None:
    """What is left beside the pods on the node and the ``others``; None for a node that does not exist.

    Pods that are going still hold their room. O(resources + others).
    """
    node = view.node(number)
    if node is None:
        return None
    room = FreeResources(dict(node.allocatable), node.allocatable.get(PODS, 0) - len(view.pods_on(number)))
    for name, amount in view.requested(number).items():
        room.free[name] = room.free.get(name, 0) - amount
    for pod in others:
        room.count(pod, 1)
    return room


def rejection(pod: Pod, view: ClusterView, number: NodeNumber, others: Iterable[Pod] = ()) -> Reason | None:
    """Why the node, with the ``others`` beside the pods that stand there, does not take the pod; None where it does."""
    node = view.node(number)
    room = free_resources_on(view, number, others)
    if node is None or room is None:
        return Reason.UNKNOWN_NODE
    standing = static_rejection(pod, node)
    if standing is not None:
        return standing
    return None if room.takes(pod.requests) else Reason.NO_ROOM
