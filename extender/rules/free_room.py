"""Free room: a node passes if it holds the pod beside all that any scheduler has placed there, or may have.

kube-scheduler decides this for itself (NodeResourcesFit, NodePorts), from bound pods and from those that it has assumed. With
several schedulers each lacks the pods that the others have assumed, and two of them give the same room away. Every answer
names one node then, and the extender assumes the pod there, so it knows of all. It counts bound and assumed pods, assumed
pods in doubt on each node where they may be, and nominated pods of equal or higher priority; slots of groups are the
rule `reserved_room`'s. A resource that a node does not offer is left to kube-scheduler, which knows devices that stand for it.

Active only with ``schedulers: many``. https://kubernetes.io/docs/tasks/extend-kubernetes/configure-multiple-schedulers/
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.nodes.columns import NodeNumber
from extender.index.nodes.room import RoomView
from extender.index.objects.changes import Subscribable
from extender.index.view import ClusterView
from extender.model.objects import NO_RESOURCES, Node, Pod
from extender.model.rejections import Reason, Rejection
from extender.model.resources import PODS, Resources
from extender.rules.frames import Frame
from extender.rules.free_resources import FreeResources, claims_on, free_resources_on, room_rejection
from extender.rules.rule import SUCCESS, Pods, Rule, Status

_NAME = "FreeRoom"


@dataclass(frozen=True, slots=True)
class FreeRoomFilter:
    """The nodes with room. ``columns`` are those of the requested resources with the amounts, ``others`` has no column.

    ``crowded``: the positions of nodes with nominated pods, which no column counts. ``columns`` is None where positions are
    not node numbers.
    """

    pod: Pod
    view: ClusterView
    frame: Frame
    room: RoomView
    columns: Sequence[tuple[Sequence[int], int]] | None
    others: bool
    crowded: frozenset[int]
    status: Status = SUCCESS
    rejects_all: Rejection | None = None

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """Those with room. O(nodes × resources); O(resources + claims) more where columns do not say all."""
        if self.columns is None:
            return [node for node in nodes if self.reason(node) is None]
        slots = self.room.slots
        found = [node for node in nodes if slots[node] > 0]
        for column, amount in self.columns:
            found = [node for node in found if column[node] >= amount]
        if self.others:
            return [node for node in found if self.reason(node) is None]
        crowded = self.crowded
        return [node for node in found if node not in crowded or self.reason(node) is None] if crowded else found

    def reason(self, node: int) -> Reason | None:
        """Why the node is rejected. O(resources + claims)."""
        found = self.rejection(node, self.view)
        return None if found is None else found.reason

    def rejected(self, nodes: Sequence[int]) -> Iterator[tuple[Reason, Sequence[int]]]:
        """Those without room, by whether resources or host ports are taken."""
        if not self.pod.host_ports:
            passing = set(self.passing(nodes))
            yield Reason.NO_ROOM, [node for node in nodes if node not in passing]
            return
        reasons = [(self.reason(node), node) for node in nodes]
        for reason in (Reason.NO_ROOM, Reason.HOST_PORTS):
            yield reason, [node for found, node in reasons if found is reason]

    def rejection(self, node: int, view: ClusterView) -> Rejection | None:
        """Names the resource with what is requested and what is left of it, or the host port."""
        there = self.frame.node(node, view)
        if there is None:
            return None
        return room_rejection(_NAME, self.pod, _checked(self.pod, there, self.room), _free_on(there, self.pod, view))


def _checked(pod: Pod, node: Node, room: RoomView) -> Resources:
    """The requests that are checked: those with a column, and those for other resources that the node offers."""
    offered = node.allocatable
    return {name: amount for name, amount in pod.requests.items() if name in room.free or name in offered}


def _free_on(node: Node, pod: Pod, view: ClusterView) -> FreeResources:
    """What is free on a node of the index or of a request, beside all pods that are or may come there."""
    claims = claims_on(node.name, pod, view)
    number = view.known.get(node.name)
    if number is not None:
        return free_resources_on(view, number, node, claims)
    free = FreeResources(dict(node.allocatable), node.allocatable.get(PODS, 0))
    for each in claims:
        free.count(each, 1)
    return free


@dataclass(slots=True)
class _Trial(FreeResources):
    """The room in the dry run on one node, and the pod that it is for with the requests that are checked."""

    pod: Pod | None = None
    requests: Resources = field(default_factory=lambda: NO_RESOURCES)
    can_pass: bool = True

    def passes(self) -> bool:
        """Whether the pod fits now."""
        return self.pod is None or room_rejection(_NAME, self.pod, self.requests, self) is None


class FreeRoom(Rule):
    """The rule."""

    name = _NAME
    applies_to = Pods.SHARED_NODES

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
    ) -> FreeRoomFilter:
        """The filter. O(resources + nodes with nominated pods)."""
        room = view.room
        if room is None:
            raise ValueError("room is counted for several schedulers only")
        wanted = [(name, amount) for name, amount in pod.requests.items() if amount > 0 and name != PODS]
        columns = [(room.free[name], amount) for name, amount in wanted if name in room.free]
        others = len(columns) < len(wanted) or bool(pod.host_ports)
        crowded = frozenset(number for name in view.nominated if (number := view.known.get(name)) is not None)
        return FreeRoomFilter(pod, view, frame, room, columns if frame.numbers_nodes else None, others, crowded)

    def lasting_part(self, _compiled: CompiledConstraints) -> CompiledConstraints | None:
        """None: `on_node` is its part."""
        return None

    def on_node(self, pod: Pod, view: ClusterView, node: NodeNumber, others: Sequence[Pod]) -> _Trial | None:
        """The room beside the ``others`` and the pods that may come to the node."""
        there = view.node(node)
        if there is None or view.room is None:
            return None
        claims = {each.uid: each for each in (*claims_on(there.name, pod, view, ()), *others)}
        free = free_resources_on(view, node, there, claims.values())
        return _Trial(free.free, free.slots, free.ports, pod, _checked(pod, there, view.room))
