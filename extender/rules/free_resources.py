"""What is free on a node, as node fit counts it, and the pods that claim a part of it before they are on it.

https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#how-pods-with-resource-requests-are-scheduled
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from extender.index.view import IndexReaders, NodeNumber
from extender.model.objects import Node, Pod
from extender.model.resources import PODS, Resources


@dataclass(slots=True)
class FreeResources:
    """What is free on one node in a dry run: pods are taken away and counted back without touching the index.

    ``free`` may be negative. A resource that is neither offered nor requested has no entry. ``slots`` is how many more
    pods the node may run.
    """

    free: dict[str, int] = field(default_factory=dict)
    slots: int = 0

    def count(self, pod: Pod, sign: int) -> None:
        """The pod is on the node (``sign`` 1), or no longer is (-1). O(its resources)."""
        self.slots -= sign
        free = self.free
        for name, amount in pod.requests.items():
            free[name] = free.get(name, 0) - sign * amount

    def shortage(self, requests: Resources) -> str:
        """The first resource of which too little is free, else empty; what is not requested may be overdrawn."""
        if self.slots < 1:
            return PODS
        free = self.free
        for name, amount in requests.items():
            if amount > 0 and name != PODS and amount > free.get(name, 0):
                return name
        return ""


def free_resources_on(view: IndexReaders, number: NodeNumber, node: Node, others: Iterable[Pod] = ()) -> FreeResources:
    """What is free beside the pods on the node and the ``others``. O(resources + others).

    Terminating pods still hold their resources.
    """
    found = FreeResources(dict(node.allocatable), node.allocatable.get(PODS, 0) - len(view.pods_on(number)))
    for name, amount in view.requested(number).items():
        found.free[name] = found.free.get(name, 0) - amount
    for pod in others:
        found.count(pod, 1)
    return found


def conflicting_nominated_pods(pod: Pod, node: str, view: IndexReaders) -> list[Pod]:
    """The pods of equal or higher priority that are nominated to the node and are not on it yet. O(nominated pods)."""
    nominated = view.nominated.get(node)
    number = view.known.get(node)
    if not nominated or number is None:
        return []
    here = view.pods_on(number)
    return [
        each for uid, each in nominated.items() if each.priority >= pod.priority and uid != pod.uid and uid not in here
    ]
