"""The free resources of each node beside all pods that are there or may come there, for a rule that checks many nodes.

With several schedulers, none of them knows pods that another has just placed. So the extender counts room itself, and
only then an index has this table. It counts pods on a node, assumed pods included, and undetermined and doubted pods on
each of their nodes. Facts that this relies on:

1. A column holds a number for each node, so a check is a look-up and a comparison. There are columns for resources that
   every node offers. Few nodes offer extended resources; these are looked up in `NodePods`.
2. Numbers of nodes that do not exist mean nothing. They are set when a node gets the number.
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
    """What readers see of `RoomTable`, by node number. Negative: the node is overcommitted."""

    # How many more pods each node may run.
    slots: Sequence[int]
    # Free CPU, memory and ephemeral storage, by resource.
    free: Mapping[str, Sequence[int]]
    # Assumed pods that may be on a node and count on none, by node name and UID; both columns include them, and no
    # entry is empty.
    claims: Mapping[str, Mapping[str, Pod]]
    # Grows whenever room may have become free.
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
        """A pod is on a node (``sign`` 1), or no longer (-1). O(resources)."""
        if sign < 0:
            self.version += 1
        if number < len(self.slots):
            self._add(number, pod.requests, sign)

    def claim(self, pod: Pod, nodes: Iterable[str], sign: int) -> None:
        """A pod may be on any of the nodes (``sign`` 1), or no longer (-1). O(nodes × resources)."""
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
        """A node was added, changed or removed, and its pods are counted. O(resources + claims on the node)."""
        self.version += 1
        if self._topology.nodes[number] is None:
            return
        short = number + 1 - len(self.slots)
        for column in (self.slots, *self.free.values()):
            column.extend([0] * short)
        self.slots[number], free = self.recount(number)
        for name, column in self.free.items():
            column[number] = free[name]

    def recount(self, number: int) -> tuple[int, dict[str, int]]:
        """The slots and free resources of an existing node, from the node and its pods alone."""
        node = self._topology.nodes[number]
        if node is None:
            return 0, dict.fromkeys(self.free, 0)
        claims, used = self.claims.get(node.name, _NO_PODS), self._pods.requested(number)
        slots = node.allocatable.get(PODS, 0) - len(self._pods.pods_on(number)) - len(claims)
        free = {name: node.allocatable.get(name, 0) - used.get(name, 0) for name in self.free}
        for pod in claims.values():
            for name in self.free:
                free[name] -= pod.requests.get(name, 0)
        return slots, free

    def rebuild(self) -> None:
        """Sets every column again after all pods were counted again. O(nodes + claims)."""
        for number in self._topology.known.values():
            self.set_node(number)

    def differences(self, numbers: Iterable[int]) -> list[str]:
        """A line for each node whose columns differ from a recount."""
        nodes, wrong = self._topology.nodes, []
        for number in numbers:
            if number >= len(nodes) or nodes[number] is None:
                continue
            counted = self.slots[number], {name: column[number] for name, column in self.free.items()}
            true = self.recount(number)
            if counted != true:
                wrong.append(f"free on {self._topology.names[number]}: {counted} counted, {true} there")
        return wrong
