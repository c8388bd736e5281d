"""How many whole pods of a group each node holds, and why a node holds none.

Counted by node and then summed: room on two nodes for half a pod each is room for none. What a pod requests is what the
scheduler counts: init containers, sidecars, overhead and resources of the pod are part of `Pod.requests`. Pods that claim
room and are on no node yet count on every node where they may be: those with slots, those nominated, and assumed pods of
undetermined node.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from extender.index.nodes.columns import NodeNumber
from extender.index.view import ClusterView
from extender.model.constraints.labels import HOSTNAME
from extender.model.objects import Node, Pod
from extender.model.rejections import Reason
from extender.model.release import Level
from extender.model.resources import PODS, Resources
from extender.rules.free_resources import FreeResources, conflicting_nominated_pods, free_resources_on
from extender.rules.node_fit import static_rejection

_NO_CLAIMS: Mapping[str, Pod] = {}


def shape(pod: Pod) -> Hashable:
    """Equal for pods that fit on the same nodes."""
    return pod.signature, pod.priority, frozenset(pod.requests.items())


class NodeRoom(msgspec.Struct, frozen=True, gc=False):
    """A node for pods of one shape: how many it holds, and why it holds none."""

    number: NodeNumber
    name: str
    holds: int
    reason: Reason | None = None


class Capacity:
    """The room for the pods of one group over the nodes of the index. Valid until anything changes.

    ``own``: the UIDs of these pods, whose claims do not count against them.
    """

    def __init__(self, view: ClusterView, own: Collection[str]) -> None:
        self._view = view
        self._own = own
        self._reserved = view.reserved.by_node
        self._undetermined: dict[str, dict[str, Pod]] = {}
        for pod, nodes in view.undetermined():
            if pod.uid not in own:
                for name in nodes:
                    self._undetermined.setdefault(name, {})[pod.uid] = pod

    def over(self, pod: Pod, levels: Sequence[Level] = ()) -> Sequence[NodeRoom]:
        """The room for pods like this one on each node, or on those in a domain. O(nodes × (terms + resources + claims)).

        For a usual node 0.5 µs, and a quarter of that for one that is not in the domain.
        """
        view, found = self._view, list[NodeRoom]()
        amounts = [(name, amount) for name, amount in pod.requests.items() if amount > 0 and name != PODS]
        goes_anywhere = pod.signature.node_affinity.admits_all
        claimed = {*self._reserved, *self._undetermined, *view.nominated}
        for name, number in view.known.items():  # no function call for a usual node: this is most of a decision
            node = view.node(number)
            if node is None or (levels and not is_in(node, levels)):
                continue
            if node.taints or node.unschedulable or not goes_anywhere:
                rejected = static_rejection(pod, node)
                if rejected is not None:
                    found.append(NodeRoom(number, name, 0, rejected.reason))
                    continue
            if name in claimed:
                found.append(self._beside_claims(number, node, pod))
                continue
            offered, in_use = node.allocatable, view.requested(number)
            holds = offered.get(PODS, 0) - len(view.pods_on(number))
            for resource, amount in amounts:
                most = (offered.get(resource, 0) - in_use.get(resource, 0)) // amount
                if most < holds:  # noqa: PLR1730 (a call costs as much as the rest)
                    holds = most
            found.append(NodeRoom(number, name, holds) if holds > 0 else NodeRoom(number, name, 0, Reason.NO_ROOM))
        if pod.host_ports or is_alone_on_its_node(pod, view):
            return [each if each.holds <= 1 else NodeRoom(each.number, each.name, 1) for each in found]
        return found

    def free(self, room: NodeRoom, pod: Pod) -> FreeResources:
        """What is free on a node beside all claims. O(resources + claims)."""
        node = self._view.node(room.number)
        if node is None:
            return FreeResources()
        claims = self._claims(room.number, room.name, pod)
        return free_resources_on(self._view, room.number, node, claims.values())

    def _beside_claims(self, number: NodeNumber, node: Node, pod: Pod) -> NodeRoom:
        claims = self._claims(number, node.name, pod)
        holds = whole_pods(free_resources_on(self._view, number, node, claims.values()), pod.requests)
        if holds:
            return NodeRoom(number, node.name, holds)
        slots = self._reserved.get(node.name, _NO_CLAIMS)
        rest = [each for uid, each in claims.items() if uid not in slots]
        is_reserved = len(rest) < len(claims) and whole_pods(
            free_resources_on(self._view, number, node, rest), pod.requests
        )
        return NodeRoom(number, node.name, 0, Reason.RESERVED if is_reserved else Reason.NO_ROOM)

    def _claims(self, number: NodeNumber, name: str, pod: Pod) -> Mapping[str, Pod]:
        """The pods that claim room on the node and are not on it, by UID."""
        claims = {each.uid: each for each in conflicting_nominated_pods(pod, name, self._view)}
        claims |= self._undetermined.get(name, _NO_CLAIMS)
        claims |= self._reserved.get(name, _NO_CLAIMS)
        here = self._view.pods_on(number)
        return {uid: each for uid, each in claims.items() if uid not in self._own and uid not in here}

    def free_share(self, rooms: Iterable[NodeRoom], pod: Pod) -> float:
        """The share of what the nodes offer that is free for such pods, of the resource of which the least is.

        O(nodes × resources).
        """
        free: dict[str, int] = {}
        offered: dict[str, int] = {}
        for room in rooms:
            node = self._view.node(room.number)
            if node is None or room.reason not in _COUNTED:
                continue
            there = self.free(room, pod).free
            for name in pod.requests:
                free[name] = free.get(name, 0) + max(there.get(name, 0), 0)
                offered[name] = offered.get(name, 0) + node.allocatable.get(name, 0)
        return min((free[name] / most for name, most in offered.items() if most), default=0.0)


def is_in(node: Node, levels: Sequence[Level]) -> bool:
    """Whether a node is in the domain of these levels."""
    labels = node.labels
    for level in levels:  # noqa: SIM110 - a generator would cost twice as much
        if labels.get(level.key) != level.value:
            return False
    return True


_COUNTED: Final = (None, Reason.NO_ROOM, Reason.RESERVED)


def is_alone_on_its_node(pod: Pod, view: ClusterView) -> bool:
    """Whether a node takes only one such pod, by the pod's own anti-affinity, whatever its room. O(terms)."""
    signature = pod.signature
    labels = view.namespace_labels(signature.namespace)
    return any(
        term.topology_key == HOSTNAME and term.selects(signature.namespace, signature.labels, labels)
        for term in signature.affinity.required_anti
    )


def whole_pods(free: FreeResources, requests: Resources) -> int:
    """How many pods with these requests the free room holds. O(resources)."""
    most = free.slots
    for name, amount in requests.items():
        if amount > 0 and name != PODS:
            most = min(most, free.free.get(name, 0) // amount)
    return max(most, 0)


@dataclass(slots=True)
class Reasons:
    """How many nodes hold no pod, by the text of the reason."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, reason: Reason, nodes: int = 1) -> None:
        """Counts nodes."""
        if nodes:
            self.counts[reason.text] = self.counts.get(reason.text, 0) + nodes

    def sorted(self) -> tuple[tuple[str, int], ...]:
        """The most frequent reason first, equal ones by text."""
        return tuple(sorted(self.counts.items(), key=lambda item: (-item[1], item[0])))
