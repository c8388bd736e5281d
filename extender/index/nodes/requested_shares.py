"""How much of each node is requested, by which kube-scheduler scores nodes whose other scores are equal.

If filter answers one node, the plugins NodeResourcesFit and NodeResourcesBalancedAllocation have no choice, so the
extender chooses as they would. Facts that this relies on:

1. If the shares c of CPU and m of memory are requested, LeastAllocated gives 1 - (c + m) / 2 and balanced allocation
   1 - |c - m| / 2. Both have weight 1, and their sum is 2 - max(c, m). So the larger share alone decides.
   Since Kubernetes 1.36 balanced allocation gives (3 - |c - m| + |c' - m'|) / 4, where c' and m' are the shares without
   the pod. It prefers a node that the pod makes more even. ``total`` (c' + m') and ``lean`` (c' - m') are kept for it.
   Many nodes of a cluster have equal shares. They share one `NodeShares`, so a choice among them scores it once.
2. A pod without a CPU request counts with 100m, without a memory request with 200Mi, so that such pods are spread too.
   kube-scheduler does so for each container; here it is done for the pod. Balanced allocation, and so ``lean``, has no defaults.
3. The shares are computed from integer sums each time, so a float never accumulates an error.

https://kubernetes.io/docs/concepts/scheduling-eviction/resource-bin-packing/
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import msgspec
from msgspec.structs import astuple

from extender.index.nodes.columns import ByNumber
from extender.index.nodes.topology import NodePods, Topology
from extender.model.bounded import shrink
from extender.model.objects import NO_RESOURCES, Pod
from extender.model.resources import CPU, MEMORY, UNSET_CPU, UNSET_MEMORY, scored_requests, share_of_unit

_LEAST_SPARE: Final = 16  # rows that are kept for new nodes
_MOST_SHARED: Final = 4096  # different shares, 250 bytes each


class NodeShares(msgspec.Struct, frozen=True, eq=False, gc=False):
    """What the score plugins compare of a node: one object for nodes with equal values, as a rule.

    - ``total``: the sum of the two requested shares
    - ``lean``: the requested share of CPU minus the share of memory, without defaults for pods without requests
    - ``per_cpu``, ``per_memory``: as in `SharesView`
    """

    total: float
    lean: float
    per_cpu: float
    per_memory: float


class SharesView(Protocol):
    """The requested resources of each node by number, see `RequestedShares`; and a search by position of a request."""

    @property
    def cpu(self) -> ByNumber[int]:
        """Milli-CPU that pods request."""

    @property
    def memory(self) -> ByNumber[int]:
        """Bytes of memory that pods request."""

    @property
    def per_cpu(self) -> ByNumber[float]:
        """One milli-CPU as a share of the node; 0 if the node offers none."""

    @property
    def per_memory(self) -> ByNumber[float]:
        """One byte of memory as a share of the node; 0 if the node offers none."""

    @property
    def larger(self) -> ByNumber[float]:
        """The larger of the two requested shares."""


class BalanceView(SharesView, Protocol):
    """What balanced allocation compares too."""

    @property
    def of_node(self) -> Mapping[str, NodeShares]:
        """What balanced allocation reads, by the name of each existing node: a request then needs one look-up a name."""


class RequestedShares:
    """Columns by node number, and `NodeShares` by name: about 180 bytes a node."""

    def __init__(self, topology: Topology, pods: NodePods) -> None:
        # Requested by the pods there.
        self.cpu: list[int] = []
        self.memory: list[int] = []
        # The larger of the two requested shares, so that a choice among a hundred nodes takes one look-up each, not
        # four.
        self.larger: list[float] = []
        self.of_node: dict[str, NodeShares] = {}
        self._shared: dict[tuple[float, float, float, float], NodeShares] = {}
        # One unit as a share of the node.
        self.per_cpu = array("d")
        self.per_memory = array("d")
        self._topology = topology
        self._pods = pods

    def count(self, pod: Pod, number: int, sign: int) -> None:
        """A pod is on a node (``sign`` 1), or no longer (-1). O(1)."""
        if number >= len(self.cpu):
            self._grow(number + 1)
        requests = pod.requests
        self.cpu[number] = cpu = self.cpu[number] + sign * (requests.get(CPU) or UNSET_CPU)
        self.memory[number] = memory = self.memory[number] + sign * (requests.get(MEMORY) or UNSET_MEMORY)
        self._share(number, cpu, memory)

    def set_node(self, number: int) -> None:
        """A node was added, changed or removed, and its pods are counted. O(1)."""
        if number >= len(self.cpu):
            self._grow(number + 1)
        node = self._topology.nodes[number]
        if node is None:
            self.of_node.pop(self._topology.names[number], None)
            shrink(self.of_node)
        offered = NO_RESOURCES if node is None else node.allocatable
        self.per_cpu[number], self.per_memory[number] = share_of_unit(offered, CPU), share_of_unit(offered, MEMORY)
        self._share(number, self.cpu[number], self.memory[number])

    def _share(self, number: int, cpu: int, memory: int) -> None:
        """The shares of a node on which so much is requested. The pods there are counted in `NodePods` already."""
        per_cpu, per_memory, requested = self.per_cpu[number], self.per_memory[number], self._pods.requested(number)
        by_cpu, by_memory = cpu * per_cpu, memory * per_memory
        self.larger[number] = max(by_memory, by_cpu)
        if self._topology.nodes[number] is not None:
            lean = requested.get(CPU, 0) * per_cpu - requested.get(MEMORY, 0) * per_memory
            self.of_node[self._topology.names[number]] = self._shares(by_cpu + by_memory, lean, per_cpu, per_memory)

    def _shares(self, total: float, lean: float, per_cpu: float, per_memory: float) -> NodeShares:
        """The object for these values. A full table is emptied: then equal nodes may have two objects, which costs time only."""
        key = (total, lean, per_cpu, per_memory)
        shares = self._shared.get(key)
        if shares is None:
            if len(self._shared) >= _MOST_SHARED:
                self._shared.clear()
            shares = self._shared[key] = NodeShares(total, lean, per_cpu, per_memory)
        return shares

    def _grow(self, size: int) -> None:
        short = size - len(self.cpu)
        for column in (self.cpu, self.memory):
            column.extend([0] * short)
        for shares in (self.larger, self.per_cpu, self.per_memory):
            shares.extend([0.0] * short)

    def shrink(self) -> None:
        """A node number was released. If most rows are beyond the last number, drops these. Amortised O(1)."""
        # The cut rows have no pods: a number beyond the last name is in no use.
        used = len(self._topology.names)
        if used * 2 + _LEAST_SPARE < len(self.cpu):
            for column in (self.cpu, self.memory, self.larger, self.per_cpu, self.per_memory):
                del column[used:]

    def clear(self) -> None:
        """Removes all pods, for a recount that adds them again."""
        for number in range(len(self.cpu)):
            self.cpu[number] = self.memory[number] = 0
            self.larger[number] = 0.0
        for name, number in self._topology.known.items():
            self.of_node[name] = self._shares(0.0, 0.0, self.per_cpu[number], self.per_memory[number])

    def differences(self, numbers: Iterable[int]) -> list[str]:
        """A line for each node number whose columns differ from a recount. O(pods there)."""
        names = self._topology.names
        return [
            f"requested on {names[number]}: {counted} counted, {true} there"
            for number in numbers
            if number < len(names) and (counted := self._row(number)) != (true := self._recount(number))
        ]

    def _row(self, number: int) -> tuple[float, ...]:
        columns = (self.cpu, self.memory, self.per_cpu, self.per_memory, self.larger)
        shares = self.of_node.get(self._topology.names[number])
        return (*[column[number] for column in columns], *(() if shares is None else astuple(shares)))

    def _recount(self, number: int) -> tuple[float, ...]:
        """The row of a node number, computed from the node and its pods alone."""
        node = self._topology.nodes[number]
        requests = [scored_requests(pod.requests) for pod in self._pods.pods_on(number).values()]
        cpu, memory = sum(cpu for cpu, _ in requests), sum(memory for _, memory in requests)
        offered = NO_RESOURCES if node is None else node.allocatable
        per_cpu, per_memory = share_of_unit(offered, CPU), share_of_unit(offered, MEMORY)
        by_cpu, by_memory = cpu * per_cpu, memory * per_memory
        lean = self._requested(number, CPU) * per_cpu - self._requested(number, MEMORY) * per_memory
        row = (cpu, memory, per_cpu, per_memory, max(by_cpu, by_memory))
        return row if node is None else (*row, by_cpu + by_memory, lean, per_cpu, per_memory)

    def _requested(self, number: int, resource: str) -> int:
        """What the pods on a node request, without defaults. O(pods there)."""
        return sum(pod.requests.get(resource, 0) for pod in self._pods.pods_on(number).values())
