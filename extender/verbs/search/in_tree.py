"""What in-tree plugins would still have preferred, where filter answers one node and they have no choice left.

NodeAffinity and TaintToleration are weighed against our own rules with the weights of kube-scheduler's defaults. Only pods
with preferred node terms pay for that, and those that only nodes with taints PreferNoSchedule are left for. Resources decide
among equals: their plugins have half the weight of one of our rules, and a look at all nodes costs more than it is worth.
ImageLocality is left out, as the index does not know images.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from extender.index.nodes.requested_shares import SharesView
from extender.index.view import ClusterView
from extender.model.constraints.taints import PREFER_NO_SCHEDULE, Taint
from extender.model.objects import Node, Pod, PodSignature
from extender.model.resources import CPU, MEMORY, scored_requests, share_of_unit
from extender.rules import catalog
from extender.rules.rule import MAX_SCORE
from extender.settings.rules import ScoringStrategy
from extender.verbs.request import RequestedNodes, Search

_NODE_AFFINITY: Final = 2
_TAINT_TOLERATION: Final = 3

# The share of a node that a pod may take before each node is looked at with it, which is four look-ups in place of one.
_SMALL: Final = 0.03


def reluctant_nodes(pod: Pod, requested: RequestedNodes, view: ClusterView) -> AbstractSet[int]:
    """The positions with a taint PreferNoSchedule that the pod does not tolerate. O(1) where no node has such taints.

    Else O(different taints × tolerations + nodes that have them).
    """
    tolerations = pod.signature.tolerations
    if requested.view is None:
        nodes = requested.nodes
        return {position for position, node in enumerate(nodes) if node.taints and _untolerated(node.taints, pod)}
    found = [nodes for taints, nodes in view.soft_taints.items() if not tolerations or _untolerated(taints, pod)]
    return found[0] if len(found) == 1 else frozenset[int]().union(*found)


def weighed_best(search: Search, pod: Pod, start: int) -> list[int]:
    """The passing positions with most points of our rules, preferred node affinity and soft taints together.

    O(names × (terms + taints)), as each plugin's score is relative to the best of all that pass.
    """
    requested, signature = search.requested, pod.signature
    passing = [node for piece in requested.pieces(start, len(requested)) for node in search.passing(piece)]
    own = catalog.points(search.compiled, search.view, requested.frame, passing, search.settings.rules).of
    nodes = [requested.node(position) for position in passing]
    weights = [0 if node is None else node_preference(node, signature) for node in nodes]
    taints = [0 if node is None else _untolerated(node.taints, pod) for node in nodes]
    most, worst = max(weights, default=0) or 1, max(taints, default=0) or 1
    points = [
        own.get(position, 0)
        + _NODE_AFFINITY * (MAX_SCORE * weight // most)
        + _TAINT_TOLERATION * (MAX_SCORE - MAX_SCORE * count // worst)
        for position, weight, count in zip(passing, weights, taints, strict=True)
    ]
    best = max(points, default=0)
    return [position for position, total in zip(passing, points, strict=True) if total == best]


def node_preference(node: Node, signature: PodSignature) -> int:
    """The weights of the pod's preferred terms that match the node (NodeAffinity)."""
    return sum(each.weight for each in signature.preferred_nodes if each.term.matches(node.name, node.labels))


def _untolerated(taints: Sequence[Taint], pod: Pod) -> int:
    """How many of the taints PreferNoSchedule the pod does not tolerate (TaintToleration)."""
    tolerations = pod.signature.tolerations
    soft = [taint for taint in taints if taint.effect == PREFER_NO_SCHEDULE]
    return sum(not any(each.tolerates(taint) for each in tolerations) for taint in soft)


def preferred_by_resources(
    positions: Sequence[int], requested: RequestedNodes, pod: Pod, view: ClusterView, strategy: ScoringStrategy
) -> int:
    """The first of the positions that NodeResourcesFit and balanced allocation prefer, with the pod on it. O(positions).

    Where the pod takes little of the node that is the emptiest without it, no other node is better by more than that.
    With LeastAllocated that is the node whose larger requested share is the smallest, with MostAllocated the one whose
    smaller share is the largest (`index/nodes/requested_shares.py`).
    """
    shares: SharesView = view.shares if requested.view is not None else _SharesOfRequest(positions, requested, view)
    cpu, memory = scored_requests(pod.requests)
    if strategy == "MostAllocated":
        return max(positions, key=lambda node: _smaller(*_with_pod(shares, node, cpu, memory)))
    first = min(positions, key=shares.larger.__getitem__)
    if max(_with_pod(shares, first, cpu, memory)) - shares.larger[first] < _SMALL:
        return first
    # As `_with_pod`, without a call for each.
    cpus, memories, per_cpu, per_memory = shares.cpu, shares.memory, shares.per_cpu, shares.per_memory
    larger = [
        max((cpus[node] + cpu) * per_cpu[node], (memories[node] + memory) * per_memory[node]) for node in positions
    ]
    return positions[larger.index(min(larger))]


def _with_pod(shares: SharesView, node: int, cpu: int, memory: int) -> tuple[float, float]:
    """The requested shares of CPU and memory with so much more on the node."""
    return (shares.cpu[node] + cpu) * shares.per_cpu[node], (shares.memory[node] + memory) * shares.per_memory[node]


def _smaller(cpu: float, memory: float) -> float:
    """The smaller of the shares; the other one where a node does not offer a resource, of which its share is 0."""
    return min(cpu, memory) or max(cpu, memory)


class _SharesOfRequest:
    """The columns of `RequestedShares` for nodes that a request brings along, by position: the index may not know them."""

    def __init__(self, positions: Sequence[int], requested: RequestedNodes, view: ClusterView) -> None:
        self.cpu: dict[int, int] = {}
        self.memory: dict[int, int] = {}
        self.per_cpu: dict[int, float] = {}
        self.per_memory: dict[int, float] = {}
        self.larger: dict[int, float] = {}
        for position in positions:
            node = requested.nodes[position]
            number = view.known.get(node.name)
            self.cpu[position] = 0 if number is None else view.shares.cpu[number]
            self.memory[position] = 0 if number is None else view.shares.memory[number]
            self.per_cpu[position] = share_of_unit(node.allocatable, CPU)
            self.per_memory[position] = share_of_unit(node.allocatable, MEMORY)
            self.larger[position] = max(_with_pod(self, position, 0, 0))
