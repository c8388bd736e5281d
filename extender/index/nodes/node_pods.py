"""The pods on each node, the resources that they request together, and the priorities among them.

A pod is on a node when the watch shows it there or when it is assumed there. A node without pods has no entry, also
where the node exists. Node numbers are those of `Topology`; this room neither makes nor releases them.
"""

from __future__ import annotations

from collections.abc import Mapping

from extender.model.objects import Pod
from extender.model.resources import Resources, add

_NO_PODS: Mapping[str, Pod] = {}
_NO_RESOURCES: Resources = {}


class NodePods:
    """Pods and requested resources by node number, and how many placed pods have each priority.

    ``version`` grows with every pod that is added or removed.
    """

    def __init__(self) -> None:
        self.version = 0
        self._pods: dict[int, dict[str, Pod]] = {}
        self._requested: dict[int, dict[str, int]] = {}
        self._priorities: dict[int, int] = {}

    def count(self, pod: Pod, number: int, sign: int) -> bool:
        """Adds a pod to a node (``sign`` 1) or removes it (-1). Whether the node has pods now. O(resources)."""
        self.version += 1
        here = self._pods.get(number)
        if here is None:
            here = self._pods[number] = {}
            self._requested[number] = {}
        add(self._requested[number], pod.requests, sign)
        left = self._priorities.get(pod.priority, 0) + sign
        if left:
            self._priorities[pod.priority] = left
        else:
            del self._priorities[pod.priority]
        if sign > 0:
            here[pod.uid] = pod
            return True
        del here[pod.uid]
        if not here:
            del self._pods[number], self._requested[number]
        return bool(here)

    def replace(self, pod: Pod, number: int) -> None:
        """Sets a pod of a node to what it is now, with the same requests and priority. O(1)."""
        self.version += 1
        self._pods[number][pod.uid] = pod

    def clear(self) -> None:
        """Removes all pods: for a recount."""
        self._pods.clear()
        self._requested.clear()
        self._priorities.clear()

    def pods_on(self, number: int) -> Mapping[str, Pod]:
        """The pods on the node, by UID. O(1)."""
        return self._pods.get(number, _NO_PODS)

    def requested(self, number: int) -> Resources:
        """What the pods on the node request together. O(1)."""
        return self._requested.get(number, _NO_RESOURCES)

    def has_below(self, priority: int) -> bool:
        """Whether any pod on a node has a lower priority. O(distinct priorities)."""
        return any(held < priority for held in self._priorities)
