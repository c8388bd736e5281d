"""Reserved room: a node passes if it has room for the pod beside all pods that have a slot there.

The pods of a group that is released together have slots on nodes, from the decision until they are bound.
kube-scheduler does not know of slots. Without this rule a pod that arrives meanwhile would take the room, and only part
of the group would be placed. The rule counts like node fit, plus the slots of other pods. It decides in both modes, and
costs a request nothing while no room is reserved.

The node selector of a pod with a slot limits it to the domain of its group. This rule does not limit it to a node. It
passes

1. on the node of its slot;
2. on a node with room for it beside all slots, slots of its siblings included;
3. on a node where an equal sibling has its slot: then the two exchange their slots (`Reservations.follow`).

The replacement of a pod that is moved (`ReservedView.move_of`) passes on the node that is claimed for it, and nowhere else
while the claim lasts.

An equal sibling that is on its way to one of several nodes has taken one of these places. The scheduler knows which
one, and does not offer a node without room for the pod beside the sibling. So such a sibling counts only on nodes where
the room that it may take is reserved for others.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.nodes.columns import NodeNumber
from extender.index.objects.changes import Subscribable
from extender.index.view import ClusterView
from extender.model.objects import Node, Pod
from extender.model.rejections import Reason, Rejection
from extender.model.release import Slot
from extender.model.resources import PODS
from extender.rules.frames import Frame
from extender.rules.free_resources import (
    NodeTrial,
    conflicting_nominated_pods,
    free_beside,
    free_resources_on,
    requested_there,
    static_rejection,
)
from extender.rules.rule import MOST_BLAMED, SUCCESS, PreparedFilter, Rule, RuleStatus

_NAME = "ReservedRoom"
_NONE: Mapping[str, Pod] = {}
_ELSEWHERE = Rejection(_NAME, Reason.MOVED)


def _claims_on(
    node: str, pod: Pod, view: ClusterView, undetermined: Mapping[str, Pod], moved: Slot | None = None
) -> dict[str, Pod]:
    """By UID, the pods that claim room on a node with slots without being on it, apart from the pod itself. O(claims).

    Pods with a slot, nominated pods that node fit counts, and ``undetermined`` pods that may be on the node.
    """
    claims = {claim.uid: claim for claim in conflicting_nominated_pods(pod, node, view)}
    claims |= undetermined
    claims |= view.reserved.by_node.get(node, {})
    # The pod's own slot is room for the pod itself, and so is the slot of the pod that it replaces.
    claims.pop(pod.uid, None)
    if moved is not None:
        claims.pop(moved.pod, None)
    number = view.known.get(node)
    for uid in () if number is None else claims.keys() & view.pods_on(number).keys():
        # A pod that is on the node already is part of the node's requested resources.
        del claims[uid]
    return claims


@dataclass(frozen=True, slots=True)
class ReservedRoomFilter(PreparedFilter):
    """The nodes without slots, with enough room beside the slots of others, or where the pod can have a slot.

    ``own``: the node of the pod's own slot. ``siblings``: the UIDs of the pods of its group that have slots. ``moved``: the
    slot of the pod that it replaces.
    """

    pod: Pod
    own: str
    siblings: Collection[str]
    frame: Frame
    view: ClusterView
    undetermined: Mapping[str, Mapping[str, Pod]]
    moved: Slot | None = None
    status: RuleStatus = SUCCESS
    rejects_all: Rejection | None = None

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """The nodes where reserved room stays free.

        O(nodes × resources), plus O(slots) for each that may be rejected.
        """
        if self.moved is not None:
            return [node for node in nodes if self.verdict(node) is None]
        return [node for node in nodes if self._has_plenty(node) or self.verdict(node) is None]

    def verdict(self, position: int) -> Rejection | None:
        """Names the resource, its free amount, and a few of the pods that have slots.

        O(1) for a node without slots, else O(slots + resources).
        """
        if self.moved is not None and self._is_elsewhere(position, self.moved):
            return _ELSEWHERE
        there = self._with_slots(position)
        if there is None:
            return None
        # Each claim is counted once: a pod with a slot, a nominated pod, an undetermined pod.
        undetermined = self.undetermined.get(there.name, _NONE)
        claims = _claims_on(there.name, self.pod, self.view, undetermined, self.moved)
        free = free_beside(there, claims.values(), self.view, requested_there(self.pod.requests, there))
        short = free.shortage(self.pod.requests)
        if not short or (self.own and self._takes_from_siblings(there, claims)):
            return None
        # The text names pods with slots only, because undetermined pods are gone in a moment.
        pods = [claim.full_name for claim in _claims_on(there.name, self.pod, self.view, _NONE).values()]
        count, limit = (1, free.slots) if short == PODS else (self.pod.requests[short], free.free.get(short, 0))
        return Rejection(_NAME, Reason.RESERVED, count=count, limit=limit, blamed=(short, *sorted(pods)[:MOST_BLAMED]))

    def _takes_from_siblings(self, there: Node, claims: Mapping[str, Pod]) -> bool:
        """Whether the pod fits in its own slot, or in an equal sibling's slot, beside the claims of others. O(claims).

        1. Claims of equal siblings do not count. Undetermined siblings count again if others have claims, see the
           module.
        2. In a sibling's slot the pod exchanges its slot: some equal sibling must be able to use the pod's node.
        """
        view, reserved = self.view, self.view.reserved
        equal = {uid for uid in claims.keys() & self.siblings if reserved.are_alike(self.pod.uid, uid)}
        others = [claim for uid, claim in claims.items() if uid not in equal]
        if others:
            # Such a sibling may take the room that is left beside the others, so the pod needs room beside it too.
            others += [claims[uid] for uid in equal & self.undetermined.get(there.name, _NONE).keys()]
        if free_beside(there, others, view, requested_there(self.pod.requests, there)).shortage(self.pod.requests):
            return False
        slots = equal & reserved.by_node.get(there.name, _NONE).keys()
        number = view.known.get(self.own)
        node = None if number is None else view.node(number)
        # No exchange is needed in its own slot. Without a sibling's slot here the room was free beside all claims of
        # others.
        if there.name == self.own or not slots or node is None:
            return True
        return any(static_rejection(claims[uid], node) is None for uid in slots)

    def _has_plenty(self, position: int) -> bool:
        """Whether the node certainly passes: it has no slots, or room beside all of them. O(resources)."""
        view = self.view
        there = self.frame.node(position, view)
        if there is None:
            return True
        name = there.name
        slots = view.reserved.totals.get(name)
        if slots is None:
            return True
        number = view.known.get(name)
        # Undetermined and nominated pods need the exact verdict.
        if number is None or name in self.undetermined or name in view.nominated:
            return False
        offered, in_use = there.allocatable, view.requested(number)
        if offered.get(PODS, 0) - len(view.pods_on(number)) - slots[PODS] < 1:
            return False
        for resource, amount in self.pod.requests.items():
            free = offered.get(resource, 0) - in_use.get(resource, 0) - slots.get(resource, 0)
            if amount > free and amount > 0:
                return False
        return True

    def _is_elsewhere(self, position: int, moved: Slot) -> bool:
        there = self.frame.node(position, self.view)
        return there is None or there.name != moved.node

    def _with_slots(self, position: int) -> Node | None:
        """The node at a position if the rule may reject it, else None."""
        there = self.frame.node(position, self.view)
        if there is None or there.name not in self.view.reserved.by_node:
            return None
        # On the node of its own slot the pod passes, unless an undetermined sibling may have taken the slot.
        if there.name == self.own and self.undetermined.get(there.name, _NONE).keys().isdisjoint(self.siblings):
            return None
        return there


class ReservedRoomRule(Rule):
    """The rule."""

    name = _NAME

    def is_active(self, _compiled: CompiledConstraints, view: ClusterView) -> bool:
        """Active while any room is reserved."""
        return bool(view.reserved.by_node)

    def version(self, _compiled: CompiledConstraints, view: ClusterView) -> int:
        """The version of the slots, and of the room on nodes with slots."""
        return view.reserved.version

    def pod_key(self, pod: Pod, view: ClusterView) -> Hashable:
        """The pod's slot, group, requests, and priority (compared with nominated pods); None without slots."""
        reserved = view.reserved
        if not reserved.by_node:
            return None
        own = reserved.node_of(pod.uid), reserved.group_of(pod.uid), reserved.move_of(pod)
        return own, pod.priority, frozenset(pod.requests.items())

    def prepare_filter(
        self, pod: Pod, _compiled: CompiledConstraints, view: ClusterView, frame: Frame
    ) -> ReservedRoomFilter:
        """The filter. O(1), apart from `AssumedPods.undetermined_on`."""
        reserved, uid = view.reserved, pod.uid
        own, siblings = reserved.node_of(uid), reserved.siblings_of(uid)
        return ReservedRoomFilter(pod, own, siblings, frame, view, view.undetermined_on(), reserved.move_of(pod))

    def unwatched_changes(self, view: ClusterView) -> tuple[Subscribable, ...]:
        """Changes after which less room is reserved."""
        return (view.reserved.changes,)

    def lasting_part(self, _compiled: CompiledConstraints) -> CompiledConstraints | None:
        """None, because `on_node` is its part."""
        return None

    def on_node(self, pod: Pod, view: ClusterView, node: NodeNumber, others: Sequence[Pod]) -> NodeTrial | None:
        """The free resources beside others' slots and the ``others``; None where the rule rejects no pod."""
        there = view.node(node)
        if there is None or there.name not in view.reserved.by_node:
            return None
        if view.reserved.node_of(pod.uid) == there.name:
            return None
        undetermined, moved = view.undetermined_on().get(there.name, _NONE), view.reserved.move_of(pod)
        claims = _claims_on(there.name, pod, view, undetermined, moved) | {claim.uid: claim for claim in others}
        free = free_resources_on(view, node, there, claims.values())
        return NodeTrial(free.free, free.slots, free.ports, pod.requests)
