"""Room on nodes that is reserved for the pods of decided groups: a slot for each, until it is bound.

1. A slot is room on a node for a pod without a node. It does not bind the pod to the node. If the pod goes elsewhere,
   its slot moves there; an equal pod of its group that had its slot there gets the place left (`Reservations.follow`).
2. For pods of other groups, the requests of a slot reduce the free room of the node.
3. A slot ends when its pod is bound, deleted or finished, when the slots of its group are replaced or released, and
   when they expire.
4. A pod that is assumed on the node of its slot counts there already. Readers of slots skip it, so that a binding that
   fails leaves the room reserved.
5. Invariant: a pod has at most one slot, on the node `node_of`.
6. A pod on a node may have a slot on another node: it is to be moved there (`move_key`). The slot is for the pod that its
   controller creates in its place, so it stays whatever becomes of the pod, and is the slot of the new pod once that
   is on the node (`Reservations.hand_over`). The mover releases it.

While any room is reserved, `Requests` records which schedulers send requests: a group whose scheduler has a long
backlog keeps its room, a group whose scheduler does not exist loses it. Time comes in as ``now`` in monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from extender.index.claims.nominations import Nominations
from extender.index.objects.changes import ChangeJournal, Subscribable, Subscribers
from extender.model import resources
from extender.model.changes import Reservation, ReservationEnd
from extender.model.objects import Pod
from extender.model.release import GroupKey, Slot
from extender.model.resources import PODS, Resources

_NO_ROOM: Resources = {}
_MOVES: Final = "moves"  # in place of the policy in the keys of claims of moves
_MOST_SCHEDULERS = 64  # whose last request is remembered: pods may name any scheduler


def move_key(pod: Pod) -> GroupKey | None:
    """The key of the claim for the replacement of a pod that is moved: its controller. None without a controller. O(1)."""
    controller = pod.signature.controller
    return None if controller is None else GroupKey(pod.namespace, _MOVES, f"{controller.kind}/{controller.name}")


def is_move(key: GroupKey) -> bool:
    """Whether a key is of a claim for a move."""
    return key.policy == _MOVES


@dataclass(slots=True)
class _Group:
    """The pods of a group that have slots, and when the slots expire."""

    until: float
    pods: set[str] = field(default_factory=set)


class _Held(NamedTuple):
    """The slot of a pod: its group, its node, and the pod as it was counted."""

    group: GroupKey
    node: str
    pod: Pod


class Requests:
    """Which schedulers send requests while room is reserved, and for which pods with slots.

    Times are monotonic seconds.

    ``pods``: UIDs of pods with slots for which a request came after they got the slot. For the `_MOST_SCHEDULERS`
    latest schedulers the time of the last request is remembered.
    """

    def __init__(self) -> None:
        self.pods: set[str] = set()
        self._last: dict[str, float] = {}
        self._resumed = float("-inf")

    def note(self, scheduler: str, now: float) -> None:
        """A scheduler sends a request for any pod. O(1), or O(`_MOST_SCHEDULERS`) for a new name."""
        if scheduler not in self._last and len(self._last) >= _MOST_SCHEDULERS:
            # The one that was silent for longest goes: forgotten, it counts as a scheduler that never sent a request.
            del self._last[min(self._last, key=self._last.__getitem__)]
        self._last[scheduler] = now

    def resume(self, now: float) -> None:
        """This process was stopped until now, so requests in between were not seen."""
        self._resumed = now

    def last_of(self, scheduler: str) -> float:
        """When a scheduler sent its last request, or could not be seen; -inf if it never did. O(1)."""
        return max(self._last.get(scheduler, self._resumed), self._resumed)


class ReservedView:
    """What readers see of the slots of pods. No entry is empty."""

    # The pods that have a slot, by node name and UID; they may be assumed on the node already.
    by_node: Mapping[str, Mapping[str, Pod]]
    # What the slots of a node take; ``pods`` is their number.
    totals: Mapping[str, Resources]
    # Notifies of changes after which a rejected pod may pass: room became free and its pod is not bound there.
    changes: Subscribable

    def __init__(self, nominations: Nominations) -> None:
        self._nominations = nominations
        self._held: dict[str, _Held] = {}
        self._groups: dict[GroupKey, _Group] = {}
        self._rooms: dict[str, dict[str, int]] = {}
        self._version = 0
        self._nominated = 0

    @property
    def version(self) -> int:
        """Grows with every change of the free room beside slots, on nodes with slots. O(1)."""
        if self.by_node and self._nominated != self._nominations.version:
            # A pod that is nominated to a node with slots takes room beside them, so its changes count too.
            self._nominated = self._nominations.version
            self._version += 1
        return self._version

    def node_of(self, uid: str) -> str:
        """The node of a pod's slot; empty if it has none. O(1)."""
        slot = self._held.get(uid)
        return "" if slot is None else slot.node

    def move_of(self, pod: Pod) -> Slot | None:
        """The slot that a pod without a node gets as the replacement of a pod of its controller. O(1)."""
        if not self._groups or pod.node or (key := move_key(pod)) is None or (group := self._groups.get(key)) is None:
            return None
        moved = next(iter(group.pods))
        return Slot(moved, self._held[moved].node)

    def siblings_of(self, uid: str) -> Collection[str]:
        """The UIDs of the pods of its group that have slots, the pod itself included. Empty for a pod without a slot.

        O(1).
        """
        held = self._held.get(uid)
        return () if held is None else self._groups[held.group].pods

    def group_of(self, uid: str) -> GroupKey | None:
        """The group of a pod that has a slot. O(1)."""
        held = self._held.get(uid)
        return None if held is None else held.group

    def are_alike(self, uid: str, other: str) -> bool:
        """Whether two pods with slots can exchange them, because each has room in the other's slot. O(resources)."""
        first, second = self._held[uid].pod, self._held[other].pod
        return (
            first.requests == second.requests
            and first.host_ports == second.host_ports
            and first.signature.node_affinity == second.signature.node_affinity
            and first.signature.tolerations == second.signature.tolerations
        )

    def room_of(self, namespace: str) -> Resources:
        """What is reserved for all pods of a namespace; ``pods`` is their number. O(1)."""
        return self._rooms.get(namespace, _NO_ROOM)


class Reservations(ReservedView):
    """All slots. ``pods``: the pods that the watch shows. ``requests``: schedulers' requests while there are slots."""

    by_node: dict[str, dict[str, Pod]]
    totals: dict[str, dict[str, int]]
    changes: Subscribers[Slot]

    def __init__(self, pods: Mapping[str, Pod], nominations: Nominations, journal: ChangeJournal | None = None) -> None:
        super().__init__(nominations)
        self._pods = pods
        self._journal = journal or ChangeJournal()
        self.by_node = {}
        self.totals = {}
        self.changes = Subscribers()
        self.held = self._held
        self.requests = Requests()

    @property
    def groups(self) -> Collection[GroupKey]:
        """The groups that have slots, without moves."""
        return [key for key in self._groups if not is_move(key)]

    @property
    def keys(self) -> Collection[GroupKey]:
        """The groups and the moves that have slots."""
        return self._groups.keys()

    def slots_of(self, group: GroupKey) -> tuple[Slot, ...]:
        """The slots of a group, by UID. O(its slots)."""
        reserved = self._groups.get(group)
        return () if reserved is None else tuple(Slot(uid, self.held[uid].node) for uid in sorted(reserved.pods))

    def pods_of(self, group: GroupKey) -> Collection[str]:
        """The UIDs of the pods of a group that have slots. O(1)."""
        reserved = self._groups.get(group)
        return reserved.pods if reserved is not None else ()

    def until(self, group: GroupKey) -> float:
        """When the slots of a group expire; 0 if it has none. O(1)."""
        reserved = self._groups.get(group)
        return 0.0 if reserved is None else reserved.until

    def beside(self, group: GroupKey) -> tuple[int, dict[str, int]]:
        """How many other groups of its namespace have slots, and what the slots take; ``pods`` is their number.

        O(groups with slots + slots of the group).
        """
        own = self._groups.get(group)
        room = dict(self._rooms.get(group.namespace, _NO_ROOM))
        if own is not None:
            _count(room, [self.held[uid].pod for uid in own.pods], -1)
        return sum(other.namespace == group.namespace for other in self._groups) - (own is not None), room

    def reserve(self, group: GroupKey, slots: Iterable[Slot], until: float) -> int:
        """Replaces the slots of a group in one step. Returns how many it has now. O(slots).

        A pod that is unknown, finished, or on a node already gets no slot; for a move it has to be on a node. The room on the nodes is not checked,
        because `verbs/release/` has found it in the same step.
        """
        new = {slot.pod: slot.node for slot in slots if self._may_hold(slot.pod, on_node=is_move(group))}
        if self._journal.note is not None:
            self._journal.note(Reservation(group, tuple(Slot(*slot) for slot in new.items())))
        before = self._groups.get(group)
        if before is not None:
            before.until = until
            # A slot that stays on its node is kept, so that its room is not offered to others in between.
            for uid in [uid for uid in before.pods if new.get(uid) != self.held[uid].node]:
                self._end(uid, is_freed=True)
        self._begin(group, new, until)
        return len(new)

    def claim(self, move: GroupKey, pod: Pod, node: str) -> None:
        """The slot of a move, without an end. The watch may not show its pod any more. The room is not checked. O(resources)."""
        if self._journal.note is not None:
            self._journal.note(Reservation(move, (Slot(pod.uid, node),)))
        self._begin(move, {pod.uid: node}, inf, {pod.uid: pod})

    def hand_over(self, pod: Pod) -> None:
        """A pod has come to a node. If its place there was claimed for it as a replacement, the slot is its own. O(resources).

        Otherwise pod and slot would both count until the mover releases the slot.
        """
        key = move_key(pod)
        if key is None or (group := self._groups.get(key)) is None or pod.uid in self.held:
            return
        moved = next(iter(group.pods))
        if self.held[moved].node == pod.node:
            self._end(moved, is_freed=False)
            self._begin(key, {pod.uid: pod.node}, group.until, {pod.uid: pod})

    def release(self, group: GroupKey) -> None:
        """Ends all slots of a group. O(slots)."""
        reserved = self._groups.get(group)
        if self._journal.note is not None and reserved is not None:
            self._journal.note(ReservationEnd(group))
        for uid in list(reserved.pods) if reserved is not None else ():
            self._end(uid, is_freed=True)

    def expire(self, now: float) -> list[GroupKey]:
        """Ends the slots that have expired; returns their groups. O(groups with slots)."""
        late = [group for group, reserved in self._groups.items() if now >= reserved.until]
        for group in late:
            self.release(group)
        return late

    def extend(self, seconds: float, now: float) -> None:
        """Extends every slot by a time in which this process was stopped and read no events. O(groups with slots)."""
        for reserved in self._groups.values():
            reserved.until += seconds
        self.requests.resume(now)

    def observe(self, uid: str, new: Pod | None) -> None:
        """Applies a change of a pod that has a slot. None: it is deleted or finished. O(resources)."""
        held = self.held[uid]
        if is_move(held.group):
            return
        # The room is free for others, unless the pod has taken it itself.
        if new is None or new.node or new.finished:
            self._end(uid, is_freed=new is None or new.node != held.node)
        elif new.requests != held.pod.requests or new.namespace != held.pod.namespace:
            until = self._groups[held.group].until
            self._end(uid, is_freed=True)
            self._begin(held.group, {uid: held.node}, until)

    def follow(self, uid: str, node: str, here: Container[str]) -> None:
        """A pod with a slot is on a node, or assumed there alone. Its slot is there from now on. O(slots on the node).

        If an equal pod of its group has a slot there, the two slots are exchanged, because each pod may have taken the
        other's room. ``here``: UIDs of the pods on the node; they have taken their room already.
        """
        held = self.held[uid]
        if held.node == node or is_move(held.group):
            return
        siblings = self._groups[held.group].pods
        slots = self.by_node.get(node, {}).keys() & siblings
        # A sibling that is on the node itself has used its slot. Sorted, so that replicas and replays choose alike.
        partner = next(
            (sibling for sibling in sorted(slots) if sibling not in here and self.are_alike(uid, sibling)), ""
        )
        self._move(uid, node)
        if partner:
            self._move(partner, held.node)
        else:
            self.changes.notify(Slot(uid, held.node), None)

    def note_request(self, pod: Pod, now: float) -> None:
        """The scheduler of a pod sends a request for it. O(1)."""
        self.requests.note(pod.scheduler, now)
        if pod.uid in self.held:
            self.requests.pods.add(pod.uid)

    def touched(self, node: str) -> None:
        """A pod was placed on a node, or left it. O(1)."""
        self._version += node in self.by_node

    def _may_hold(self, uid: str, *, on_node: bool) -> bool:
        pod = self._pods.get(uid)
        return pod is not None and bool(pod.node) is on_node and not pod.finished

    def _begin(
        self, group: GroupKey, slots: Mapping[str, str], until: float, known: Mapping[str, Pod] | None = None
    ) -> None:
        """``slots``: by UID the node. Slots that `reserve` has kept stay as they are. ``known``: their pods; None: as the watch shows them."""
        new = {}
        for uid, node in slots.items():
            held = self.held.get(uid)
            if held is not None and (held.group, held.node) == (group, node):
                continue
            if held is not None:
                self._end(uid, is_freed=True)
            new[uid] = node
        by_node, by_namespace = dict[str, list[Pod]](), dict[str, list[Pod]]()
        for uid, node in new.items():
            pod = (self._pods if known is None else known)[uid]
            self.held[uid] = _Held(group, node, pod)
            self._groups.setdefault(group, _Group(until)).pods.add(uid)
            by_node.setdefault(node, []).append(pod)
            by_namespace.setdefault(pod.signature.namespace, []).append(pod)
        for node, pods in by_node.items():
            self._put(pods, node)
        for namespace, pods in by_namespace.items():
            _add(self._rooms, namespace, pods, 1)

    def _put(self, pods: Sequence[Pod], node: str) -> None:
        self.by_node.setdefault(node, {}).update((pod.uid, pod) for pod in pods)
        _add(self.totals, node, pods, 1)
        self._version += 1

    def _take(self, pod: Pod, node: str) -> None:
        here = self.by_node[node]
        del here[pod.uid]
        if not here:
            del self.by_node[node]
        _add(self.totals, node, (pod,), -1)
        self._version += 1

    def _move(self, uid: str, node: str) -> None:
        """The slot of a pod moves to another node. The caller notifies of the room that becomes free."""
        held = self.held[uid]
        self._take(held.pod, held.node)
        self._put((held.pod,), node)
        # Sums by namespace stay the same, because the slot only changes its node.
        self.held[uid] = held._replace(node=node)

    def _end(self, uid: str, *, is_freed: bool) -> None:
        """Ends a slot. ``is_freed``: its pod is not on its node, so others may get the room."""
        group, node, pod = self.held.pop(uid)
        self.requests.pods.discard(uid)
        reserved = self._groups[group]
        reserved.pods.discard(uid)
        if not reserved.pods:
            del self._groups[group]
        self._take(pod, node)
        _add(self._rooms, pod.signature.namespace, (pod,), -1)
        if is_freed:
            self.changes.notify(Slot(uid, node), None)

    def statistics(self) -> dict[str, int]:
        """How many slots are held, and for how many groups."""
        return {"reserved_slots": len(self.held), "groups_with_slots": len(self._groups)}


def _add(rooms: dict[str, dict[str, int]], key: str, pods: Sequence[Pod], sign: int) -> None:
    """Adds the needs of pods to the sum of their node or namespace (``sign`` 1), or subtracts them (-1)."""
    room = rooms.setdefault(key, {})
    _count(room, pods, sign)
    if not room:
        del rooms[key]


def _count(room: dict[str, int], pods: Sequence[Pod], sign: int) -> None:
    for pod in pods:
        resources.add(room, pod.requests, sign)
    resources.add(room, {PODS: len(pods)}, sign)
