"""Free room: a node passes if it has room for the pod beside all pods that any scheduler has placed, or may have.

kube-scheduler checks this itself (NodeResourcesFit, NodePorts), from bound pods and pods that it has assumed. With
several schedulers, each does not see the pods that others have assumed, so two of them may give away the same room.
Then each answer names one node and the extender assumes the pod there, so it knows all pods. It counts:

1. bound and assumed pods;
2. assumed pods in doubt, on each node where they may be;
3. nominated pods of equal or higher priority.

Slots of groups are counted by the rule `reserved_room`. A resource that a node does not offer is left to
kube-scheduler, which knows devices that stand for it.

Active only with ``schedulers: many``. https://kubernetes.io/docs/tasks/extend-kubernetes/configure-multiple-schedulers/
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from operator import ge

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
    """The nodes with room."""

    pod: Pod
    view: ClusterView
    frame: Frame
    room: RoomView
    # A column of free amounts, and the requested amount, for each requested resource; None if positions are not node
    # numbers.
    columns: Sequence[tuple[Sequence[int], int]] | None
    # The requested resources without a column, such as GPUs.
    others: Resources
    # Positions of nodes with nominated pods, or with claims that have ports or such resources; no column counts these.
    crowded: frozenset[int]
    # The pod's host ports.
    wanted: UsedPorts
    status: RuleStatus = SUCCESS
    rejects_all: Rejection | None = None

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """The nodes with room.

        O(nodes × resources), plus O(resources + claims) for a node that columns do not decide.
        """
        # Nodes of a request are not in the columns.
        if self.columns is None:
            return [node for node in nodes if self.verdict(node) is None]
        # The columns first, from the cheapest check on: each leaves fewer nodes for the next.
        slots = self.room.slots
        passing = [node for node in nodes if slots[node] > 0]
        for column, amount in self.columns:
            passing = [node for node in passing if column[node] >= amount]
        if self.others:
            passing = self._with_others(passing)
        # Nominated pods and the ports of claims need the verdict (crowded nodes).
        crowded, ports_on, wanted = self.crowded, self.view.ports_on, self.wanted
        if wanted:
            passing = [node for node in passing if node in crowded or ports_on(node).conflict(wanted) is None]
        return [node for node in passing if node not in crowded or self.verdict(node) is None] if crowded else passing

    def _with_others(self, nodes: Sequence[int]) -> list[int]:
        """The nodes with enough of the resources without a column, beside the pods that are on them.

        O(nodes × the smaller of the requested and the offered resources), in native code unless pods use them.
        """
        others, node_of, requested_on = self.others, self.view.node, self.view.requested
        most, names, amounts = len(others), others.keys(), others.values()
        passing = []
        for number in nodes:
            there, used = node_of(number), requested_on(number)
            if there is not None:
                offered = there.allocatable
                # The default is enough: a resource that the node does not offer is left to kube-scheduler.
                if len(offered) < most:
                    asked = [(name, amount) for name, amount in offered.items() if name in others]
                    fits = all(amount - used.get(name, 0) >= others[name] for name, amount in asked)
                else:
                    fits = all(map(ge, map(offered.get, names, amounts), amounts))
                    if fits and used and (shared := used.keys() & names):
                        asked = [(name, offered[name]) for name in shared if name in offered]
                        fits = all(amount - used[name] >= others[name] for name, amount in asked)
                if not fits:
                    continue
            passing.append(number)
        return passing

    def verdict(self, position: int) -> Rejection | None:
        """Names the resource with the requested and free amounts, or the host port. O(resources + claims)."""
        there = self.frame.node(position, self.view)
        if there is None:
            return None
        checked = _checked(self.pod, there, self.room)
        free = free_beside(there, claims_on(there.name, self.pod, self.view), self.view, checked)
        return room_rejection(_NAME, checked, self.wanted, free)

    def reason(self, position: int) -> Reason | None:
        """Without ports there is only one reason, and columns are faster than the verdict."""
        if self.pod.host_ports:
            return PreparedFilter.reason(self, position)
        return None if self.passing((position,)) else Reason.NO_ROOM

    def rejected(self, nodes: Sequence[int]) -> Iterator[tuple[Reason, Sequence[int]]]:
        """Without ports all of them for the one reason, in one pass over the nodes."""
        if self.pod.host_ports:
            yield from PreparedFilter.rejected(self, nodes)
            return
        passing = set(self.passing(nodes))
        if rejected := [node for node in nodes if node not in passing]:
            yield Reason.NO_ROOM, rejected


def _checked(pod: Pod, node: Node, room: RoomView) -> Resources:
    """The requests to check: resources with a column, and other resources that the node offers.

    O(the smaller of the requests and the node's resources).
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
        """Active if the index counts free room, which it does for several schedulers."""
        return view.room is not None

    def version(self, _compiled: CompiledConstraints, view: ClusterView) -> int:
        """Grows when room may have become free. A pod that takes room does not let a rejected pod pass."""
        return 0 if view.room is None else view.room.version + view.claims_version

    def pod_key(self, pod: Pod, view: ClusterView) -> Hashable:
        """The requests and host ports, and the priority, because nominated pods are compared by it."""
        return None if view.room is None else (pod.priority, frozenset(pod.requests.items()), pod.host_ports)

    def unwatched_changes(self, view: ClusterView) -> tuple[Subscribable, ...]:
        """Changes of room that an assumed pod held and was not bound to."""
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
        counted, requests = {*room.free, PODS}, pod.requests
        columns = [(column, amount) for name, column in room.free.items() if (amount := requests.get(name, 0)) > 0]
        others = {name: amount for name, amount in requests.items() if amount > 0 and name not in counted}
        # Columns contain claims' requests, but not their ports and other resources. They contain no nominated pods.
        special = (*view.nominated, *room.claims) if pod.host_ports or others else view.nominated
        crowded = frozenset(number for name in special if (number := view.known.get(name)) is not None)
        ports = UsedPorts(pod.host_ports)
        return FreeRoomFilter(pod, view, frame, room, columns if frame.numbers_nodes else None, others, crowded, ports)

    def lasting_part(self, _compiled: CompiledConstraints) -> CompiledConstraints | None:
        """None, because `on_node` is its part."""
        return None

    def on_node(self, pod: Pod, view: ClusterView, node: NodeNumber, others: Sequence[Pod]) -> NodeTrial | None:
        """The free resources beside the ``others`` and the pods that may come to the node."""
        there = view.node(node)
        if there is None or view.room is None:
            return None
        claims = {claim.uid: claim for claim in (*claims_on(there.name, pod, view, ()), *others)}
        free = free_resources_on(view, node, there, claims.values())
        return NodeTrial(free.free, free.slots, free.ports, _checked(pod, there, view.room), UsedPorts(pod.host_ports))
