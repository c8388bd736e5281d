"""A synthetic cluster of a given size: its pods and their nodes. Equal scenarios give equal clusters.

Pods of one selector are on different nodes as long as there are enough, evenly over the zones, so that required
anti-affinity and hard spread are satisfied from the start. Watch lines are created one at a time and not kept.
"""

import math
from collections.abc import Iterator

from extender.simulator.bench.workload.pods import (
    PLAIN,
    PodId,
    PodWriter,
    has_ssd,
    namespace_line,
    node_line,
    node_name,
    watch_line,
    zone_of,
)
from extender.simulator.bench.workload.scenario import Load

_SPREAD_OF_SELECTORS = 1000  # the pods of a single selector are in all namespaces, those of one of 1,000 in one


class SyntheticCluster:
    """The objects of one load, and the incoming pods."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.part = load.scenario.cluster
        self.nodes = [node_name(number) for number in range(self.part.nodes)]
        self.writer = PodWriter(load.scenario.template)
        self._plain = PodWriter(PLAIN)
        # Coprime to the number of nodes, so that a selector's pods reach every node before one gets a second.
        self._step = next(n for n in range(7, 7 + self.part.nodes + 1) if math.gcd(n, self.part.nodes) == 1)
        self._reach = min(self.part.namespaces, max(1, _SPREAD_OF_SELECTORS // load.selectors))

    def zone(self, node: int) -> str:
        """The zone of a node."""
        return zone_of(node, self.part.zones)

    def zone_named(self, node: str) -> str:
        """The zone of a node by its name."""
        return self.zone(int(node.rpartition("-")[2]))

    def node_lines(self) -> Iterator[bytes]:
        """The watch lines of all nodes."""
        return (node_line(number, self.part.zones, self.part.node_labels) for number in range(self.part.nodes))

    def namespace_lines(self) -> Iterator[bytes]:
        """The watch lines of all namespaces."""
        return (namespace_line(f"ns-{i}", self.part.namespace_labels) for i in range(self.part.namespaces))

    def replica_set_lines(self) -> Iterator[bytes]:
        """The watch lines of the pods' owners, if the scenario has them."""
        if not self.part.replica_sets:
            return
        for selector in range(self.load.selectors):
            for namespace in sorted({self.namespace(selector, rank) for rank in range(self._reach)}):
                yield self.writer.owner_line(selector, namespace)

    def pod_lines(self) -> Iterator[bytes]:
        """The watch lines of all existing pods, in alternating selectors."""
        return (watch_line("ADDED", self.running(pod, node)) for pod, node in self.existing())

    def running(self, pod: PodId, node: int) -> bytes:
        """The body of an existing pod."""
        writer = self._plain if pod.is_plain else self.writer
        return writer.write("running", pod, self.nodes[node], self.zone(node))

    def existing(self) -> Iterator[tuple[PodId, int]]:
        """Every existing pod with the number of its node."""
        return map(self.existing_pod, range(self.load.pods))

    def existing_pod(self, number: int) -> tuple[PodId, int]:
        """The existing pod with this number, and the number of its node."""
        rank, selector = divmod(number, self.load.selectors)
        if rank < self.part.most_per_selector:
            return PodId(number, selector, self.namespace(selector, rank)), self.node_of(selector, rank)
        return PodId(number, 0, f"ns-{number % self.part.namespaces}", is_plain=True), number % self.part.nodes

    def node_of(self, selector: int, rank: int) -> int:
        """The node of the pod with this number among those of its selector."""
        start = selector * self.part.nodes // self.load.selectors
        return (start + rank * self._step) % self.part.nodes

    def namespace(self, selector: int, rank: int) -> str:
        """The namespace of a pod."""
        return "ns-0" if self.part.one_namespace else f"ns-{(selector + rank % self._reach) % self.part.namespaces}"

    def incoming_pod(self, number: int) -> PodId:
        """The incoming pod with this number. Selectors alternate in a scattered order."""
        selectors = self.load.selectors
        selector = number * 7919 % selectors if math.gcd(7919, selectors) == 1 else number % selectors
        draw = (selector if selectors > 1 else number) * 37 % 100
        wants_ssd = draw < self.load.scenario.requests.node_selector_share * 100
        # `{t}` follows the number, so with many selectors each keeps its value, as the replicas of a workload do.
        own = selector + selectors * (1_000_000 + number)
        return PodId(own, selector, self.namespace(selector, 0), wants_ssd=wants_ssd)

    def ssd_nodes(self) -> list[int]:
        """The nodes that match the node selector."""
        return [number for number in range(self.part.nodes) if has_ssd(number, self.part.zones)]
