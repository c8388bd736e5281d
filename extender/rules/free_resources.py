"""What keeps a pod off a node by node fit: the node itself, and the free resources beside its pods and claims.

https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#how-pods-with-resource-requests-are-scheduled
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from extender.index.nodes.columns import NodeNumber
from extender.index.view import ClusterView
from extender.model.constraints.taints import CORDON, first_untolerated
from extender.model.host_ports import UsedPorts
from extender.model.objects import Node, Pod
from extender.model.rejections import Reason, Rejection
from extender.model.resources import PODS, Resources


@dataclass(slots=True)
class FreeResources:
    """The free resources of one node in a dry run. Pods are removed and added back without changing the index.

    ``free`` may be negative. A resource that is neither offered nor requested has no entry. ``slots``: how many more
    pods the node may run. ``ports``: the host ports in use.
    """

    free: dict[str, int] = field(default_factory=dict)
    slots: int = 0
    ports: UsedPorts = field(default_factory=UsedPorts)

    def count(self, pod: Pod, sign: int) -> None:
        """The pod is on the node (``sign`` 1), or no longer is (-1). O(its resources)."""
        self.count_only(pod.requests, pod, sign)

    def count_only(self, names: Iterable[str], pod: Pod, sign: int) -> None:
        """`count` for these resources only. O(names)."""
        self.slots -= sign
        if pod.host_ports:
            self.ports.count(pod.host_ports, sign)
        free, requests = self.free, pod.requests
        for name in names:
            free[name] = free.get(name, 0) - sign * requests.get(name, 0)

    def shortage(self, requests: Resources) -> str:
        """The first requested resource with too little free; empty if none. Other resources may be overdrawn."""
        if self.slots < 1:
            return PODS
        free = self.free
        # As in NodeResourcesFit: a resource that is not requested does not matter, even if it is overdrawn.
        for name, amount in requests.items():
            if amount > 0 and name != PODS and amount > free.get(name, 0):
                return name
        return ""

    def takes(self, pod: Pod) -> bool:
        """Whether the pod's requests and host ports are free. O(resources + ports)."""
        if self.shortage(pod.requests):
            return False
        return not pod.host_ports or self.ports.conflict(UsedPorts(pod.host_ports)) is None


@dataclass(slots=True)
class NodeTrial(FreeResources):
    """The free resources of one node in the dry run of a preemption, and whether the incoming pod fits.

    ``can_pass``: whether the pod may pass here once pods have left.
    """

    requests: Resources = field(default_factory=dict)
    wanted: UsedPorts = field(default_factory=UsedPorts)
    can_pass: bool = True

    def count(self, pod: Pod, sign: int) -> None:
        """The pod is on the node (``sign`` 1), or no longer (-1).

        O(the smaller of its resources and the requested ones).
        """
        # A tenant may request thousands of resource names in a pod. Only names that the incoming pod requests can
        # matter.
        if len(pod.requests) <= len(self.requests):
            FreeResources.count(self, pod, sign)
        else:
            self.count_only(self.requests, pod, sign)

    def passes(self) -> bool:
        """Whether the pod fits now."""
        if not self.can_pass or self.shortage(self.requests):
            return False
        return self.ports.conflict(self.wanted) is None


def free_resources_on(view: ClusterView, number: NodeNumber, node: Node, others: Iterable[Pod] = ()) -> FreeResources:
    """The free resources beside the pods on the node and the ``others``, for this step. O(resources + others).

    Terminating pods still hold their resources.
    """
    slots, ports = node.allocatable.get(PODS, 0) - len(view.pods_on(number)), view.ports_on(number)
    # Copies: the trial changes them, and the node and its ports belong to the index.
    free = FreeResources(dict(node.allocatable), slots, ports.beside())
    for name, amount in view.requested(number).items():
        free.free[name] = free.free.get(name, 0) - amount
    for pod in others:
        free.count(pod, 1)
    return free


def free_beside(node: Node, claims: Iterable[Pod], view: ClusterView, names: Collection[str]) -> FreeResources:
    """The free amounts of these resources beside the pods and claims on a node of the index or of a request.

    O(names × claims). Only these names are read, because the pods and claims may request tens of thousands of others.
    """
    number, offered, slots = view.known.get(node.name), node.allocatable, node.allocatable.get(PODS, 0)
    if number is None:
        resources = FreeResources({name: offered.get(name, 0) for name in names}, slots)
    else:
        requested = view.requested(number)
        free = {name: offered.get(name, 0) - requested.get(name, 0) for name in names}
        resources = FreeResources(free, slots - len(view.pods_on(number)), view.ports_on(number).beside())
    for claim in claims:
        resources.count_only(names, claim, 1)
    return resources


def requested_there(requests: Resources, node: Node) -> Collection[str]:
    """The names of requested resources that the node offers. O(the smaller of both)."""
    offered = node.allocatable
    return [name for name in offered if name in requests] if len(offered) < len(requests) else offered.keys() & requests


def conflicting_nominated_pods(pod: Pod, node: str, view: ClusterView) -> list[Pod]:
    """Pods of equal or higher priority that are nominated to the node and counted on no node yet. O(nominated pods).

    A pod that is assumed on a node counts there and no longer where it is nominated: kube-scheduler ends the nomination
    when it assumes the pod. The watch may show the binding much later, for example while the API server restarts.
    """
    nominated = view.nominated.get(node)
    number = view.known.get(node)
    if not nominated or number is None:
        return []
    here = view.pods_on(number)
    return [
        other
        for uid, other in nominated.items()
        if other.priority >= pod.priority and uid != pod.uid and uid not in here and not view.assumed_node(uid)
    ]


def claims_on(node: str, pod: Pod, view: ClusterView, nominated: Iterable[Pod] | None = None) -> Collection[Pod]:
    """The pods that claim room on a node without being on it, apart from the pod itself. O(claims).

    1. Conflicting nominated pods, or the pods in ``nominated`` in their place.
    2. With several schedulers, assumed pods that may be on the node.
    """
    nominated_pods = conflicting_nominated_pods(pod, node, view) if nominated is None else list(nominated)
    room = view.room
    may_come = None if room is None else room.claims.get(node)
    if not may_come:
        return nominated_pods
    # By UID: a pod may be nominated to the node and assumed there, and counts once.
    claims = {claim.uid: claim for claim in (*nominated_pods, *may_come.values())}
    claims.pop(pod.uid, None)
    return claims.values()


_NODE_FIT = "NodeFit"


def static_rejection(pod: Pod, node: Node) -> Rejection | None:
    """What keeps the pod off the node even if all pods leave it; None if nothing does. O(taints + terms)."""
    signature = pod.signature
    # In kube-scheduler's order: NodeUnschedulable, TaintToleration, NodeAffinity. A cordon is tolerated like the taint
    # node.kubernetes.io/unschedulable, even if the node does not have that taint yet. DaemonSet pods tolerate it.
    if node.unschedulable and not any(toleration.tolerates(CORDON) for toleration in signature.tolerations):
        return _CORDONED
    if node.taints and (taint := first_untolerated(node.taints, signature.tolerations)) is not None:
        return Rejection(_NODE_FIT, Reason.TAINT, blamed=(f"{taint.key}={taint.value}:{taint.effect}",))
    if not signature.node_affinity.matches(node.name, node.labels):
        return _NODE_AFFINITY
    return None


_CORDONED = Rejection(_NODE_FIT, Reason.CORDONED)
_NODE_AFFINITY = Rejection(_NODE_FIT, Reason.NODE_AFFINITY)


def room_rejection(rule: str, requests: Resources, wanted: UsedPorts, free: FreeResources) -> Rejection | None:
    """Why a node has no room: a resource with the requested and free amounts, or a host port; else None."""
    short = free.shortage(requests)
    if short:
        # `pods` is not among the requests: each pod takes one.
        count, limit = (1, free.slots) if short == PODS else (requests[short], free.free.get(short, 0))
        return Rejection(rule, Reason.NO_ROOM, count=count, limit=limit, blamed=(short,))
    taken = free.ports.conflict(wanted)
    return None if taken is None else Rejection(rule, Reason.HOST_PORTS, count=1, limit=0, blamed=(f"port {taken}",))
