"""What is free on each node beside every pod that is there or may come there, for a rule that looks at many nodes.

With several schedulers none of them knows the pods that another one has just placed, so the extender counts room itself:
pods on a node, assumed ones included, and assumed pods that are on one of several nodes or in doubt, on each of these. Only
then an index has this table. Facts this rests on:

1. A column holds a number for each node, so that a check is a look-up and a comparison. Columns exist for the resources
   that every node offers; extended resources are few nodes' and are looked up in `NodePods`.
2. The numbers of nodes that do not exist mean nothing: they are set when a node gets the number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from extender.index.nodes.topology import NodePods, Topology
from extender.model.objects import Pod
from extender.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources

_COLUMNS: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
_NO_PODS: Mapping[str, Pod] = {}


class RoomView:
    """What readers see of `RoomTable`, by node number; negative where a node is overcommitted.

    ``slots`` are how many more pods each node may run, ``free`` what is left of CPU, memory and ephemeral storage by resource.
    ``claims`` are the assumed pods that may be on a node and count on none, by node name and UID; they are counted in both, and
    no entry is empty. ``version`` grows whenever room may have become free.
    """

    slots: Sequence[int]
    free: Mapping[str, Sequence[int]]
    claims: Mapping[str, Mapping[str, Pod]]
    version: int


class RoomTable(RoomView):
    """Free resources by node number, changed with every pod and node."""

    slots: list[int]
    free: dict[str, list[int]]
    claims: dict[str, dict[str, Pod]]

    def __init__(self, topology: Topology, pods: NodePods) -> None:
        self.version = 0
        self.slots = []
        self.free = {name: [] for name in _COLUMNS}
        self.claims = {}
        self._topology = topology
        self._pods = pods

    def count(self, pod: Pod, number: int, sign: int) -> None:
        """A pod is on a node (``sign`` 1), or no longer is (-1). O(resources)."""
        if sign < 0:
            self.version += 1
        if number < len(self.slots):
            self._add(number, pod.requests, sign)

    def claim(self, pod: Pod, nodes: Iterable[str], sign: int) -> None:
        """A pod may be on any of the nodes (``sign`` 1), or no longer is (-1). O(nodes × resources)."""
        if sign < 0:
            self.version += 1
        for name in dict.fromkeys(nodes):
            if sign > 0:
                self.claims.setdefault(name, {})[pod.uid] = pod
            else:
                here = self.claims[name]
                del here[pod.uid]
                if not here:
                    del self.claims[name]
            number = self._topology.known.get(name)
            if number is not None:
                self._add(number, pod.requests, sign)

    def _add(self, number: int, requests: Resources, sign: int) -> None:
        self.slots[number] -= sign
        free = self.free
        for name, amount in requests.items():
            if name in free:
                free[name][number] -= sign * amount

    def set_node(self, number: int) -> None:
        """A node was added, changed or removed, and the pods on it are counted. O(resources + claims on the node)."""
        self.version += 1
        if self._topology.nodes[number] is None:
            return
        short = number + 1 - len(self.slots)
        for column in (self.slots, *self.free.values()):
            column.extend([0] * short)
        self.slots[number], left = self.recount(number)
        for name, column in self.free.items():
            column[number] = left[name]

    def recount(self, number: int) -> tuple[int, dict[str, int]]:
        """The slots of an existing node and its free resources, from the node and the pods alone."""
        node = self._topology.nodes[number]
        if node is None:
            return 0, dict.fromkeys(self.free, 0)
        claims, used = self.claims.get(node.name, _NO_PODS), self._pods.requested(number)
        slots = node.allocatable.get(PODS, 0) - len(self._pods.pods_on(number)) - len(claims)
        left = {name: node.allocatable.get(name, 0) - used.get(name, 0) for name in self.free}
        for pod in claims.values():
            for name in self.free:
                left[name] -= pod.requests.get(name, 0)
        return slots, left

    def rebuild(self) -> None:
        """Sets every column anew, after all pods were counted again. O(nodes + claims)."""
        for number in self._topology.known.values():
            self.set_node(number)

    def differences(self, numbers: Iterable[int]) -> list[str]:
        """A line for each of the nodes whose columns differ from a recount."""
        nodes, wrong = self._topology.nodes, []
        for number in numbers:
            if number >= len(nodes) or nodes[number] is None:
                continue
            counted = self.slots[number], {name: column[number] for name, column in self.free.items()}
            true = self.recount(number)
            if counted != true:
                wrong.append(f"free on {self._topology.names[number]}: {counted} counted, {true} there")
        return wrong
