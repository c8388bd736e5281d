"""Room on nodes that is reserved for the pods of decided groups: a slot for each pod, from the decision until it is bound.

A slot is room on a node for a pod without one, and no address: the pod may go to another node. Then its slot follows it, and an
equal pod of its group that had its slot there gets the room that the pod has left (`Reservations.follow`). The requests of
a slot are taken from the free room of the node for pods of other groups. A slot ends when its pod is bound, deleted or finished,
when the slots of its group are replaced or released, and when they expire. A pod that is assumed on the node of its slot counts
there already: readers of slots leave it out, so that a binding that fails leaves the room reserved.

While any room is reserved, `Reservations` also notes which schedulers ask (`Requests`): a group whose scheduler has a long
backlog keeps its room, one whose scheduler does not exist loses it.

Invariant: a pod has at most one slot, which `node_of` holds. Time comes in as ``now`` in monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from extender.index.claims.nominations import Nominations
from extender.index.objects.changes import ChangeJournal, Subscribable, Subscribers
from extender.model import resources
from extender.model.changes import Reservation, ReservationEnd
from extender.model.objects import Pod
from extender.model.release import GroupKey, Slot
from extender.model.resources import PODS, Resources

_NO_ROOM: Resources = {}
_ONE_POD: Resources = {PODS: 1}
_MOST_SCHEDULERS = 64  # of which the time of the last request is known: pods may name any


@dataclass(slots=True)
class _Group:
    """The pods of a group that have slots, and when the slots expire."""

    until: float
    pods: set[str] = field(default_factory=set)


class _Held(NamedTuple):
    """The slot of a pod: whose it is, and the pod as it was counted."""

    group: GroupKey
    node: str
    pod: Pod


class Requests:
    """Which schedulers ask while room is reserved, and about which pods that have slots. Times are monotonic seconds.

    ``pods``: the UIDs of pods that have slots and about which a scheduler has asked since they got theirs. The times of the
    `_MOST_SCHEDULERS` schedulers that asked last are known.
    """

    def __init__(self) -> None:
        self.pods: set[str] = set()
        self._last: dict[str, float] = {}
        self._resumed = float("-inf")

    def note(self, scheduler: str, now: float) -> None:
        """A scheduler asks about any pod. O(1), and O(`_MOST_SCHEDULERS`) for a name that is new."""
        if scheduler not in self._last and len(self._last) >= _MOST_SCHEDULERS:
            del self._last[min(self._last, key=self._last.__getitem__)]
        self._last[scheduler] = now

    def resume(self, now: float) -> None:
        """This process did not run until now: schedulers that asked meanwhile were not heard."""
        self._resumed = now

    def last_of(self, scheduler: str) -> float:
        """When a scheduler asked last, or could not be heard; minus infinity where it never asked. O(1)."""
        return max(self._last.get(scheduler, self._resumed), self._resumed)


class ReservedView:
    """What readers see of the slots of pods.

    ``by_node`` are the pods that have a slot, by node name and UID, ``totals`` what their slots take by node, ``pods`` being how
    many there are; no entry is empty. They may be assumed on the node already. ``changes`` are those after which a rejected pod
    may pass: room that was freed without its pod being bound there.
    """

    by_node: Mapping[str, Mapping[str, Pod]]
    totals: Mapping[str, Resources]
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
        """Grows with every change of the room that is free beside the slots on a node that has any. O(1)."""
        if self.by_node and self._nominated != self._nominations.version:
            self._nominated = self._nominations.version
            self._version += 1
        return self._version

    def node_of(self, uid: str) -> str:
        """The node of a pod's slot, empty where it has none. O(1)."""
        found = self._held.get(uid)
        return "" if found is None else found.node

    def siblings_of(self, uid: str) -> Collection[str]:
        """The UIDs of the pods of its group that have slots, the pod itself with them; none for a pod without a slot. O(1)."""
        held = self._held.get(uid)
        return () if held is None else self._groups[held.group].pods

    def group_of(self, uid: str) -> GroupKey | None:
        """The group of a pod that has a slot. O(1)."""
        held = self._held.get(uid)
        return None if held is None else held.group

    def are_alike(self, uid: str, other: str) -> bool:
        """Whether two pods with slots can exchange them: the room of one is room for the other. O(resources)."""
        one, two = self._held[uid].pod, self._held[other].pod
        return (
            one.requests == two.requests
            and one.host_ports == two.host_ports
            and one.signature.node_affinity == two.signature.node_affinity
            and one.signature.tolerations == two.signature.tolerations
        )

    def room_of(self, namespace: str) -> Resources:
        """What is reserved for the pods of a namespace together; ``pods`` is how many there are. O(1)."""
        return self._rooms.get(namespace, _NO_ROOM)


class Reservations(ReservedView):
    """All slots. ``pods`` are those that the watch shows. ``requests``: which schedulers ask while there are any."""

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
        """The groups that have slots."""
        return self._groups.keys()

    def slots_of(self, group: GroupKey) -> tuple[Slot, ...]:
        """The slots of a group, by UID. O(its slots)."""
        found = self._groups.get(group)
        return () if found is None else tuple(Slot(uid, self.held[uid].node) for uid in sorted(found.pods))

    def pods_of(self, group: GroupKey) -> Collection[str]:
        """The UIDs of the pods of a group that have slots. O(1)."""
        found = self._groups.get(group)
        return found.pods if found is not None else ()

    def groups_in(self, namespace: str) -> int:
        """How many groups of a namespace have slots. O(groups with slots)."""
        return sum(group.namespace == namespace for group in self._groups)

    def reserve(self, group: GroupKey, slots: Iterable[Slot], until: float) -> int:
        """Replaces the slots of a group in one step; returns how many it has now. O(slots).

        A pod that is not known, is on a node already or has finished gets none. Nothing is checked against the room on
        the nodes: `verbs/release/` has found it there in the same step.
        """
        new = {each.pod: each.node for each in slots if self._may_hold(each.pod)}
        if self._journal.note is not None:
            self._journal.note(Reservation(group, tuple(Slot(*each) for each in new.items())))
        before = self._groups.get(group)
        if before is not None:
            before.until = until
            for uid in [uid for uid in before.pods if new.get(uid) != self.held[uid].node]:
                self._end(uid, is_freed=True)
        for uid, node in new.items():
            self._begin(group, uid, node, until)
        return len(new)

    def release(self, group: GroupKey) -> None:
        """Ends all slots of a group. O(slots)."""
        found = self._groups.get(group)
        if self._journal.note is not None and found is not None:
            self._journal.note(ReservationEnd(group))
        for uid in list(found.pods) if found is not None else ():
            self._end(uid, is_freed=True)

    def expire(self, now: float) -> list[GroupKey]:
        """Ends the slots that have expired; returns their groups. O(groups with slots)."""
        late = [group for group, found in self._groups.items() if now >= found.until]
        for group in late:
            self.release(group)
        return late

    def extend(self, seconds: float, now: float) -> None:
        """Extends every slot by a time in which this process did not run and read no events. O(groups with slots)."""
        for found in self._groups.values():
            found.until += seconds
        self.requests.resume(now)

    def observe(self, uid: str, new: Pod | None) -> None:
        """Applies a change of a pod that has a slot; None where it is deleted or has finished. O(resources)."""
        held = self.held[uid]
        if new is None or new.node or new.finished:
            self._end(uid, is_freed=new is None or new.node != held.node)
        elif new.requests != held.pod.requests or new.namespace != held.pod.namespace:
            until = self._groups[held.group].until
            self._end(uid, is_freed=True)
            self._begin(held.group, uid, held.node, until)

    def follow(self, uid: str, node: str, here: Container[str]) -> None:
        """A pod that is ``held`` is on a node, or assumed there alone: its slot is there from now on. O(slots on the node).

        Where an equal pod of its group has a slot there, the two slots are exchanged, as one pod may have taken the room of the other.
        ``here``: the UIDs of the pods on the node, which have taken their room already.
        """
        held = self.held[uid]
        if held.node == node:
            return
        siblings = self._groups[held.group].pods
        slots = self.by_node.get(node, {}).keys() & siblings
        other = next((each for each in sorted(slots) if each not in here and self.are_alike(uid, each)), "")
        self._move(uid, node)
        if other:
            self._move(other, held.node)
        else:
            self.changes.notify(Slot(uid, held.node), None)

    def note_request(self, pod: Pod, now: float) -> None:
        """The scheduler of a pod asks about it. O(1)."""
        self.requests.note(pod.scheduler, now)
        if pod.uid in self.held:
            self.requests.pods.add(pod.uid)

    def touched(self, node: str) -> None:
        """A pod was placed on a node, or has left it. O(1)."""
        self._version += node in self.by_node

    def _may_hold(self, uid: str) -> bool:
        pod = self._pods.get(uid)
        return pod is not None and not (pod.node or pod.finished)

    def _begin(self, group: GroupKey, uid: str, node: str, until: float) -> None:
        held = self.held.get(uid)
        if held is not None:
            if held.group == group and held.node == node:
                return
            self._end(uid, is_freed=True)
        pod = self._pods[uid]
        self.held[uid] = _Held(group, node, pod)
        self._groups.setdefault(group, _Group(until)).pods.add(uid)
        self._put(pod, node)
        _add(self._rooms, pod.namespace, pod, 1)

    def _put(self, pod: Pod, node: str) -> None:
        self.by_node.setdefault(node, {})[pod.uid] = pod
        _add(self.totals, node, pod, 1)
        self._version += 1

    def _take(self, pod: Pod, node: str) -> None:
        here = self.by_node[node]
        del here[pod.uid]
        if not here:
            del self.by_node[node]
        _add(self.totals, node, pod, -1)
        self._version += 1

    def _move(self, uid: str, node: str) -> None:
        """The slot of a pod is on another node from now on. Its caller notifies of the room that is free then."""
        held = self.held[uid]
        self._take(held.pod, held.node)
        self._put(held.pod, node)
        self.held[uid] = held._replace(node=node)

    def _end(self, uid: str, *, is_freed: bool) -> None:
        """Ends a slot. ``is_freed``: its pod is not on its node, so that another one may get the room."""
        group, node, pod = self.held.pop(uid)
        self.requests.pods.discard(uid)
        found = self._groups[group]
        found.pods.discard(uid)
        if not found.pods:
            del self._groups[group]
        self._take(pod, node)
        _add(self._rooms, pod.namespace, pod, -1)
        if is_freed:
            self.changes.notify(Slot(uid, node), None)

    def statistics(self) -> dict[str, int]:
        """How many slots are held, and for how many groups."""
        return {"reserved_slots": len(self.held), "groups_with_slots": len(self._groups)}


def _add(rooms: dict[str, dict[str, int]], key: str, pod: Pod, sign: int) -> None:
    """Adds what a pod needs to the sum of its node or namespace (``sign`` 1), or takes it away (-1)."""
    room = rooms.setdefault(key, {})
    resources.add(room, pod.requests, sign)
    resources.add(room, _ONE_POD, sign)
    if not room:
        del rooms[key]
