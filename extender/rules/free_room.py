"""Free room: a node passes if it holds the pod beside all that any scheduler has placed there, or may have.

kube-scheduler decides this for itself (NodeResourcesFit, NodePorts), from bound pods and from those that it has assumed. With
several schedulers each lacks the pods that the others have assumed, and two of them give the same room away. Every answer
names one node then, and the extender assumes the pod there, so it knows of all. It counts bound and assumed pods, assumed
pods in doubt on each node where they may be, and nominated pods of equal or higher priority; slots of groups are the
rule `reserved_room`'s. A resource that a node does not offer is left to kube-scheduler, which knows devices that stand for it.

Active only with ``schedulers: many``. https://kubernetes.io/docs/tasks/extend-kubernetes/configure-multiple-schedulers/
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.nodes.columns import NodeNumber
from extender.index.nodes.room import RoomView
from extender.index.objects.changes import Subscribable
from extender.index.view import ClusterView
from extender.model.host_ports import UsedPorts
from extender.model.objects import Node, Pod
from extender.model.rejections import Reason, Rejection
from extender.model.resources import PODS, Resources
from extender.rules.frames import Frame
from extender.rules.free_resources import NodeTrial, claims_on, free_beside, free_resources_on, room_rejection
from extender.rules.rule import SUCCESS, PreparedFilter, Rule, RuleStatus, VerdictOnPod

_NAME = "FreeRoom"


@dataclass(frozen=True, slots=True)
class FreeRoomFilter(PreparedFilter):
    """The nodes with room. ``columns`` are those of the requested resources with the amounts, ``others`` has no column.

    ``crowded``: the positions of nodes with nominated pods, or with claims that have ports, which no column counts. ``columns``
    is None where positions are not node numbers. ``wanted``: the pod's host ports.
    """

    pod: Pod
    view: ClusterView
    frame: Frame
    room: RoomView
    columns: Sequence[tuple[Sequence[int], int]] | None
    others: bool
    crowded: frozenset[int]
    wanted: UsedPorts
    status: RuleStatus = SUCCESS
    rejects_all: Rejection | None = None

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """Those with room. O(nodes × resources); O(resources + claims) more where columns do not say all."""
        if self.columns is None:
            return [node for node in nodes if self.verdict(node) is None]
        slots = self.room.slots
        found = [node for node in nodes if slots[node] > 0]
        for column, amount in self.columns:
            found = [node for node in found if column[node] >= amount]
        if self.others:
            return [node for node in found if self.verdict(node) is None]
        crowded, ports_on, wanted = self.crowded, self.view.ports_on, self.wanted
        if wanted:
            found = [node for node in found if node in crowded or ports_on(node).conflict(wanted) is None]
        return [node for node in found if node not in crowded or self.verdict(node) is None] if crowded else found

    def verdict(self, position: int) -> Rejection | None:
        """Names the resource with what is requested and what is left of it, or the host port. O(resources + claims)."""
        there = self.frame.node(position, self.view)
        if there is None:
            return None
        checked = _checked(self.pod, there, self.room)
        free = free_beside(there, claims_on(there.name, self.pod, self.view), self.view, checked)
        return room_rejection(_NAME, checked, self.wanted, free)

    def reason(self, position: int) -> Reason | None:
        """Without ports there is one reason, and the columns tell it faster."""
        if self.pod.host_ports:
            return PreparedFilter.reason(self, position)
        return None if self.passing((position,)) else Reason.NO_ROOM


def _checked(pod: Pod, node: Node, room: RoomView) -> Resources:
    """The requests that are checked: those with a column, and those for other resources that the node offers.

    O(the fewer of the requests and of what the node offers).
    """
    offered, requests = node.allocatable, pod.requests
    if len(requests) > len(offered) + len(room.free):
        return {name: requests[name] for name in dict.fromkeys((*room.free, *offered)) if name in requests}
    return {name: amount for name, amount in pod.requests.items() if name in room.free or name in offered}


class FreeRoom(Rule):
    """The rule."""

    name = _NAME
    counts_room = True

    def is_active(self, _compiled: CompiledConstraints, view: ClusterView) -> bool:
        """Where the index counts room, which it does for several schedulers."""
        return view.room is not None

    def version(self, _compiled: CompiledConstraints, view: ClusterView) -> int:
        """Grows when room may have become free. A pod that takes room makes no rejected pod pass."""
        return 0 if view.room is None else view.room.version + view.claims_version

    def pod_key(self, pod: Pod, view: ClusterView) -> Hashable:
        """The requests and host ports, and the priority, which nominated pods are compared by."""
        return None if view.room is None else (pod.priority, frozenset(pod.requests.items()), pod.host_ports)

    def unwatched_changes(self, view: ClusterView) -> tuple[Subscribable, ...]:
        """Room that an assumed pod kept and was not bound to."""
        return () if view.room is None else (view.given_back,)

    def prepare_filter(
        self, pod: Pod, _compiled: CompiledConstraints, view: ClusterView, frame: Frame
    ) -> PreparedFilter:
        """The filter. O(resources + host ports + nodes with nominated pods)."""
        room = view.room
        if room is None:
            raise ValueError("room is counted for several schedulers only")
        excess = pod.signature.excess
        if excess is not None and excess.limit == "hostPorts":
            return VerdictOnPod(Rejection(_NAME, Reason.OVER_LIMIT, excess.text, blamed=(excess.limit,)))
        wanted = [(name, amount) for name, amount in pod.requests.items() if amount > 0 and name != PODS]
        columns = [(room.free[name], amount) for name, amount in wanted if name in room.free]
        special = (*view.nominated, *room.claims) if pod.host_ports else view.nominated
        crowded = frozenset(number for name in special if (number := view.known.get(name)) is not None)
        ports, others = UsedPorts(pod.host_ports), len(columns) < len(wanted)
        return FreeRoomFilter(pod, view, frame, room, columns if frame.numbers_nodes else None, others, crowded, ports)

    def lasting_part(self, _compiled: CompiledConstraints) -> CompiledConstraints | None:
        """None: `on_node` is its part."""
        return None

    def on_node(self, pod: Pod, view: ClusterView, node: NodeNumber, others: Sequence[Pod]) -> NodeTrial | None:
        """The room beside the ``others`` and the pods that may come to the node."""
        there = view.node(node)
        if there is None or view.room is None:
            return None
        claims = {each.uid: each for each in (*claims_on(there.name, pod, view, ()), *others)}
        free = free_resources_on(view, node, there, claims.values())
        return NodeTrial(free.free, free.slots, free.ports, _checked(pod, there, view.room), UsedPorts(pod.host_ports))
