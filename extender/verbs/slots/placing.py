"""Places all pods of a group on the nodes of one domain, or finds that they do not fit there.

1. Equal pods without constraints need arithmetic only: the sum of the numbers of pods that the nodes hold.
2. Other pods are placed one after the other, the largest first, with backtracking as far as a budget of steps allows.
3. Where constraints of the pods, or of existing pods about them, apply, filter's own rules decide for each pod on trial counts. So
   affinity and spread among the pods of the group are kept too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import islice
from operator import attrgetter
from types import MappingProxyType
from typing import Final

import msgspec

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.nodes.columns import NodeNumber
from extender.index.trial import Trial, TrialSteps
from extender.index.view import ClusterView
from extender.model.constraints.labels import HOSTNAME
from extender.model.constraints.taints import Toleration
from extender.model.host_ports import UsedPorts
from extender.model.objects import Node, Pod, PodSignature
from extender.model.rejections import Reason, Rejection
from extender.model.release import Level, Slot
from extender.model.resources import PODS, Resources, total
from extender.rules import catalog
from extender.rules.catalog import PreparedFilters
from extender.rules.frames import IndexFrame
from extender.rules.free_resources import FreeResources, conflicting_nominated_pods, free_resources_on, static_rejection
from extender.rules.interpod_affinity import InterPodAffinity
from extender.verbs.request import worst_case


class NodeRoom(msgspec.Struct, frozen=True, gc=False):
    """A node for pods of one kind: how many of them it holds, and why it holds none."""

    number: NodeNumber
    name: str
    holds: int
    reason: Reason | None = None


MOST_VISITS = 10_000
"""How many nodes backtracking may try for one group: about 15 ms. At the end of this budget the group is rejected, although another
order of placing its pods might fit. Pods of case 1 never need it."""


@dataclass(slots=True)
class VisitBudget:
    """The rest of `MOST_VISITS`, shared by all domains that are tried for a group."""

    left: int = MOST_VISITS


_name = attrgetter("name")
_FIRST_PIECE, _PIECE = 4, 64  # nodes that are checked together. A pod mostly passes on the first
_ANYWHERE: Final[AbstractSet[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class SlotAssignment:
    """The slots of all pods; empty if they do not fit.

    - ``most``: how many pods were placed at best.
    - ``reasons``: why nodes do not take the first pod that fits nowhere, with counts; empty without a search.
    """

    slots: tuple[Slot, ...]
    most: int
    reasons: tuple[tuple[str, int], ...] = ()


def place_equal(pods: Sequence[Pod], rooms: Sequence[NodeRoom]) -> SlotAssignment:
    """Equal pods without constraints on as few nodes as possible. O(nodes + pods log pods).

    Example: 7 pods, nodes that hold 4, 4, 3 and 2: two nodes, 4 + 3. The last node is the tightest that takes all remaining pods.
    """
    # The roomiest nodes first. All nodes that hold the same number are one step, so the loop is O(distinct numbers).
    by_holds: dict[int, list[NodeRoom]] = {}
    for room in rooms:
        if room.holds in by_holds:
            by_holds[room.holds].append(room)
        elif room.holds:
            by_holds[room.holds] = [room]
    unplaced, holds = len(pods), sum(most * len(nodes) for most, nodes in by_holds.items())
    if holds < unplaced:
        return SlotAssignment((), holds)
    slots: list[Slot] = []
    for most in sorted(by_holds, reverse=True):
        here = iter(nsmallest(-(-unplaced // most), by_holds[most], key=_name))
        for room in islice(here, unplaced // most):
            slots += [Slot(pod.uid, room.name) for pod in pods[len(slots) : len(slots) + most]]
            unplaced -= most
        tightest = min((count for count in by_holds if unplaced <= count < most), default=most)
        # One more node takes all remaining pods: the tightest that can, or the next of these if no other is tighter.
        if unplaced and unplaced < most:
            last = next(here, None) if tightest == most else nsmallest(1, by_holds[tightest], key=_name)[0]
            if last is not None:
                slots += [Slot(pod.uid, last.name) for pod in pods[len(slots) :]]
                unplaced = 0
        if not unplaced:
            break
    return SlotAssignment(tuple(slots), len(pods))


def kinds_of(pods: Sequence[Pod], view: ClusterView) -> TrialSteps[dict[str, Hashable]]:
    """By UID the kind of a pod. Pods of one kind fit alike and count alike, whatever other labels they have. O(signatures).

    A Job and a StatefulSet give each pod a label of its own, so each pod has its own signature. Mostly no selector reads that
    label: then all pods are of one kind, and a result for one of them is valid for all.
    """
    compiled: dict[PodSignature, CompiledConstraints] = {}
    for pod in pods:
        if pod.signature not in compiled:
            compiled[pod.signature] = view.compiled(pod.signature)
            yield True
    # After all are compiled, because the terms of one pod of the group may count another pod of it.
    alike: dict[PodSignature, Hashable] = {}
    for signature, constraints in compiled.items():
        read = (
            signature.node_affinity,
            signature.tolerations,
            signature.controller,
            signature.excess,
            signature.enforced,
        )
        parts = frozenset([(kind, part.filter_key) for kind, part in constraints.parts.items() if part.filters])
        counted = frozenset(view.groups_that_count(signature))
        alike[signature] = read, parts, counted, constraints.excess
        yield True
    kinds = {
        pod.uid: (alike[pod.signature], pod.priority, frozenset(pod.requests.items()), pod.host_ports) for pod in pods
    }
    # A number for each kind, because the search looks kinds up for each node.
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds.values()))}
    return {uid: numbers[kind] for uid, kind in kinds.items()}


@dataclass(frozen=True, slots=True)
class RuleChecks:
    """The rules on trial counts, for pods as they are after their release: narrowed to the domain, so only its nodes count."""

    view: ClusterView
    narrowed: Mapping[PodSignature, PodSignature]

    def filters(self, pod: Pod) -> PreparedFilters | None:
        """The filters for the next pod, prepared again because the last placed pod may have new terms. None without any rule."""
        pod = self.as_released(pod)
        compiled = self.view.compiled(pod.signature)
        parts = catalog.counted_parts(compiled, self.view)
        return catalog.prepare(parts, pod, self.view, worst_case(IndexFrame(), compiled, self.view)) if parts else None

    def only_repels(self, pod: Pod) -> bool:
        """Whether a node that rejects such a pod rejects every later pod of the kind: only anti-affinity applies. O(groups)."""
        pod = self.as_released(pod)
        compiled, affinity = self.view.compiled(pod.signature), pod.signature.affinity
        rules = {type(rule) for rule, _ in catalog.counted_parts(compiled, self.view)}
        return not affinity.required and pod.signature.enforced is None and rules <= {InterPodAffinity}

    def as_released(self, pod: Pod) -> Pod:
        """The pod after its release: narrowed to the domain."""
        return msgspec.structs.replace(pod, signature=self.narrowed.get(pod.signature, pod.signature))


class RoomLeft:
    """The room of nodes beside all claims and the pods of the group that are placed there."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._used: dict[NodeNumber, FreeResources] = {}
        self._free: dict[tuple[Hashable, NodeNumber], FreeResources] = {}

    def fits(self, pod: Pod, kind: Hashable, room: NodeRoom) -> bool:
        """Whether a node holds one more pod of a kind, given that it holds at least one by itself. O(resources + ports)."""
        used = self._used.get(room.number)
        if used is None or not used.slots:
            return True
        key = (kind, room.number)
        free = self._free.get(key)
        if free is None:
            free = self._free[key] = self._capacity.free(room, pod)
        if free.slots + used.slots < 1:
            return False
        if pod.host_ports and used.ports.conflict(UsedPorts(pod.host_ports)) is not None:
            return False
        there, taken = free.free, used.free
        for name, amount in pod.requests.items():
            if amount > 0 and name != PODS and amount > there.get(name, 0) + taken.get(name, 0):
                return False
        return True

    def count(self, pod: Pod, number: NodeNumber, sign: int) -> None:
        """Counts a pod that is placed on a node (``sign`` 1) or taken back (-1). O(resources)."""
        self._used.setdefault(number, FreeResources()).count(pod, sign)


_NO_MORE: Final = (-1, NodeRoom(-1, "", 0))


class SlotSearch:
    """The search for slots of unequal or constrained pods, depth first. Each pod is tried on the tightest node first.

    ``rooms``: by kind, the nodes that hold any such pod. ``checks``: the rules; None where no rule applies to the pods.
    """

    def __init__(
        self,
        pods: Sequence[Pod],
        kinds: Mapping[str, Hashable],
        rooms: Mapping[Hashable, Sequence[NodeRoom]],
        capacity: Capacity,
        checks: RuleChecks | None,
        budget: VisitBudget,
    ) -> None:
        self._reasons = Counter[str]()
        self._budget = budget
        self._is_first = True
        self._left = RoomLeft(capacity)
        self._checks = checks
        self._rooms = {
            kind: sorted(kind_rooms, key=lambda room: (room.holds, room.name)) for kind, kind_rooms in rooms.items()
        }
        self._examples = {kinds[pod.uid]: pod for pod in reversed(pods)}
        order = {kind: self._hardest_first(pod, self._rooms[kind]) for kind, pod in self._examples.items()}
        places = {kind: place for place, kind in enumerate(self._examples)}
        self._pods = sorted(pods, key=lambda pod: (order[kinds[pod.uid]], places[kinds[pod.uid]], pod.uid))
        self._kinds = [kinds[pod.uid] for pod in self._pods]
        self._only_repels = {kind: checks is None or checks.only_repels(pod) for kind, pod in self._examples.items()}
        self._chosen: list[tuple[int, NodeRoom]] = []
        self._most = 0

    def run(self) -> TrialSteps[SlotAssignment]:
        """Slots for all pods, or none. O(pods × nodes × clauses) without backtracking. A pause costs O(placed pods)."""
        if self._checks is None:
            return (yield from self._search(None))
        with self._checks.view.trial() as trial:
            return (yield from self._search(trial))

    def _search(self, trial: Trial | None) -> TrialSteps[SlotAssignment]:
        # For each placed pod the iterator over its candidate nodes, and one more for the next pod. So it is the stack of a recursion
        # that can pause.
        levels = [self._candidates(0)]
        while levels:
            choice = next(levels[-1], _NO_MORE)
            if choice is _NO_MORE:  # dead end: the pod before gets its next node
                levels.pop()
                if self._chosen:
                    self._remove_last(trial)
            elif choice is not None:
                self._place(choice, trial)
                if len(self._chosen) == len(self._pods):
                    slots = [Slot(pod.uid, room.name) for pod, (_, room) in zip(self._pods, self._chosen, strict=True)]
                    return SlotAssignment(tuple(slots), len(slots))
                levels.append(self._candidates(len(self._chosen)))
            if (yield trial is None) and trial is not None:
                with trial.suspended():
                    yield True
        return SlotAssignment((), self._most, most_frequent(self._reasons))

    def _hardest_first(self, pod: Pod, rooms: Sequence[NodeRoom]) -> tuple[bool, int, int]:
        """The sort key of a kind of pods: the hardest to place come first, while most nodes are empty."""
        # 1. Pods with required affinity come last, because the pods that they select must be placed before them.
        needs_others = bool(pod.signature.affinity.required)
        # 2. The largest come first: even the roomiest node holds few of them. Rooms are sorted by `holds`.
        most_on_one_node = rooms[-1].holds if rooms else 0
        # 3. Of kinds that are equal so far, the kind comes first that has less room on all nodes together.
        return needs_others, most_on_one_node, sum(room.holds for room in rooms)

    def _candidates(self, at: int) -> Iterator[tuple[int, NodeRoom] | None]:
        """The nodes for the next pod, each with its position in the list of its kind. None after each piece without any."""
        kind = self._kinds[at]
        rooms = self._rooms[kind]
        filters = None if self._checks is None else self._checks.filters(self._examples[kind])
        first, size, is_dead_end = 0, _FIRST_PIECE, True
        if at and self._kinds[at - 1] == kind and self._only_repels[kind]:
            # Equal pods: another order of the same nodes is the same placement, so go on from the last pod's node.
            first = self._chosen[-1][0]
        start = first
        while start < len(rooms):
            piece = range(start, min(start + size, len(rooms)))
            start, size = piece.stop, min(2 * size, _PIECE)
            # Room first, which is arithmetic; then the rules, for all nodes of the piece together.
            open_ = {rooms[place].number: place for place in piece if self._fits(at, rooms[place])}
            passing = open_ if filters is None else filters.passing(list(open_))
            if not self._is_first:  # the way to the first dead end is not charged
                self._budget.left -= len(piece) if filters is None else _PIECE
            for number in passing:
                if self._budget.left < 0:
                    return
                is_dead_end = False
                yield open_[number], rooms[open_[number]]
            yield None
        # The first pod that fits nowhere: its reasons are the text of the rejection. Later dead ends depend on the search.
        if is_dead_end and self._is_first:
            self._is_first = False
            fitting = [room.number for room in rooms if self._fits(at, room)]
            self._reasons[Reason.NO_ROOM.text] += len(rooms) - len(fitting)
            for reason, nodes in filters.rejected(fitting) if filters is not None else ():
                self._reasons[reason.text] += len(nodes)

    def _fits(self, at: int, room: NodeRoom) -> bool:
        """Whether the node holds the pod beside the pods of the group that are placed there."""
        return self._left.fits(self._pods[at], self._kinds[at], room)

    def _place(self, choice: tuple[int, NodeRoom], trial: Trial | None) -> None:
        pod, room = self._pods[len(self._chosen)], choice[1]
        self._left.count(pod, room.number, 1)
        if trial is not None and self._checks is not None:
            trial.place(self._checks.as_released(self._examples[self._kinds[len(self._chosen)]]), room.number)
        self._chosen.append(choice)
        self._most = max(self._most, len(self._chosen))

    def _remove_last(self, trial: Trial | None) -> None:
        _, room = self._chosen.pop()
        self._left.count(self._pods[len(self._chosen)], room.number, -1)
        if trial is not None:
            trial.remove_last()


# -- capacity of nodes ------------------------------------------------------------------------------------------------

# How many whole pods of a group each node holds, and why a node holds none.
#
# 1. Counted by node and then summed: room for half a pod on two nodes is room for none.
# 2. Requests are counted as in the scheduler: init containers, sidecars, overhead and pod-level resources are in `Pod.requests`.
# 3. Pods that claim room and are on no node yet count on every node where they may be: pods with slots, nominated pods, and assumed
#    pods of undetermined node.
# 4. An assumed pod in doubt counts once in each domain, on the node where it takes most (`lost_to_doubted`). Else one pod that
#    passed on all nodes and is never bound would keep the pod groups of all tenants waiting.

_NO_CLAIMS: Mapping[str, Pod] = {}


NODES_A_STEP: Final = 10_000
"""How many nodes one step reads, before other work may run: about 5 ms."""

MOST_LOCATED: Final = 200
"""For how many pods in doubt the possible domains are known. More of them count in every domain."""


def tolerations_of(levels: Iterable[Level]) -> tuple[Toleration, ...]:
    """The tolerations that pods get with a domain: they decide which tainted nodes hold the pods. O(tolerations)."""
    return tuple(Toleration(*toleration[:4]) for level in levels for toleration in level.tolerations)


def with_tolerations(pod: Pod, more: Sequence[Toleration]) -> Pod:
    """The pod with more tolerations."""
    own = pod.signature.tolerations
    return msgspec.structs.replace(pod, signature=replace(pod.signature, tolerations=(*own, *more))) if more else pod


class Capacity:
    """The room for the pods of one group over the nodes of the index. Valid until the index changes.

    - ``own``: the UIDs of these pods. Their claims do not count.
    - ``brought``: by value of the label ``key``, the tolerations that the pods get with the domain.
    """

    def __init__(
        self,
        view: ClusterView,
        own: Collection[str],
        key: str = "",
        brought: Mapping[str, tuple[Toleration, ...]] = MappingProxyType({}),
    ) -> None:
        self._view = view
        self._key = key
        self._brought = brought
        self._tolerant: dict[tuple[PodSignature, str], Pod] = {}  # pods with these, by signature and value
        self._own = own
        self._reserved = view.reserved.by_node
        self._undetermined: dict[str, dict[str, Pod]] = {}
        self._doubted: list[tuple[Pod, AbstractSet[str]]] = []
        # Undetermined pods count on every node where they may be. In doubt (they may never be bound) they count once in a domain.
        for pod, nodes, is_doubted in view.undetermined():
            if pod.uid in own:
                continue
            if len(nodes) > 1 and is_doubted:
                self._doubted.append((pod, frozenset(nodes) if len(self._doubted) < MOST_LOCATED else _ANYWHERE))
                continue
            for name in nodes:
                self._undetermined.setdefault(name, {})[pod.uid] = pod

    def over(self, pod: Pod, levels: Sequence[Level] = ()) -> TrialSteps[Sequence[NodeRoom]]:
        """The room for pods like this one on each node, or on each node of a domain. O(nodes × (terms + resources + claims)).

        0.5 µs for a usual node, a quarter of that for a node outside of the domain. A step reads `NODES_A_STEP` nodes.
        """
        view, rooms = self._view, list[NodeRoom]()
        amounts = [(name, amount) for name, amount in pod.requests.items() if amount > 0 and name != PODS]
        goes_anywhere = pod.signature.node_affinity.admits_all
        claimed = {*self._reserved, *self._undetermined, *view.nominated}
        wanted = [(level.key, level.admitted) for level in levels]
        # A usual node costs no function call here, because this loop takes most of the time of a decision.
        for at, (name, number) in enumerate(list(view.known.items()), start=1):
            if not at % NODES_A_STEP:
                yield True
            node = view.node(number)
            if node is None or node.name != name or (wanted and not _is_in(node, wanted)):
                continue
            if node.taints or node.unschedulable or not goes_anywhere:
                rejected = self._rejection(pod, node)
                if rejected is not None:
                    rooms.append(NodeRoom(number, name, 0, rejected.reason))
                    continue
            if name in claimed:
                rooms.append(self._beside_claims(number, node, pod))
                continue
            offered, in_use = node.allocatable, view.requested(number)
            holds = offered.get(PODS, 0) - len(view.pods_on(number))
            for resource, amount in amounts:
                most = (offered.get(resource, 0) - in_use.get(resource, 0)) // amount
                if most < holds:  # noqa: PLR1730 (a call costs as much as the rest)
                    holds = most
            rooms.append(NodeRoom(number, name, holds) if holds > 0 else NodeRoom(number, name, 0, Reason.NO_ROOM))
        if pod.host_ports or is_alone_on_its_node(pod, view):
            return [room if room.holds <= 1 else NodeRoom(room.number, room.name, 1) for room in rooms]
        return rooms

    def _rejection(self, pod: Pod, node: Node) -> Rejection | None:
        """What rejects a pod on a node even if all pods leave it, with the tolerations that the pod gets there. O(taints + terms)."""
        value = node.labels.get(self._key, "")
        if more := self._brought.get(value):
            known = self._tolerant.get((pod.signature, value))
            if known is None:
                known = self._tolerant[pod.signature, value] = with_tolerations(pod, more)
            pod = known
        return static_rejection(pod, node)

    def lost_to_doubted(self, rooms: Sequence[NodeRoom], pod: Pod) -> int:
        """By how many pods like this one the room of a domain shrinks at most, on whichever nodes the pods in doubt are bound.

        The rest is enough for the group wherever they are. A slot that such a pod takes is moved. O(nodes + pods in doubt).
        """
        if not self._doubted:
            return 0
        # Two upper bounds; the lower one counts. 1. Each pod in doubt takes what it displaces on the roomiest node, at least one pod.
        # 2. All of them together take what their summed requests displace, on each node at most.
        names, largest = {room.name for room in rooms}, max((room.holds for room in rooms), default=0)
        here = [other for other, nodes in self._doubted if nodes is _ANYWHERE or not nodes.isdisjoint(names)]
        one_by_one = sum(min(largest, max(_displaced(other.requests, pod), 1)) for other in here)
        all_at_once = _displaced(total(other.requests for other in here), pod)
        return min(one_by_one, sum(min(room.holds, all_at_once) for room in rooms))

    def free(self, room: NodeRoom, pod: Pod) -> FreeResources:
        """The free resources of a node beside all claims. O(resources + claims)."""
        node = self._view.node(room.number)
        if node is None:
            return FreeResources()
        claims = self._claims(room.number, room.name, pod)
        return free_resources_on(self._view, room.number, node, claims.values())

    def on(self, name: str, pod: Pod) -> NodeRoom:
        """The room for pods like this one on a single node. O(terms + resources + claims)."""
        number = self._view.known.get(name)
        node = None if number is None else self._view.node(number)
        if number is None or node is None:
            return NodeRoom(-1, name, 0, Reason.UNKNOWN_NODE)
        rejected = self._rejection(pod, node)
        if rejected is not None:
            return NodeRoom(number, name, 0, rejected.reason)
        return self._beside_claims(number, node, pod)

    def holds(self, name: str, pods: Sequence[Pod]) -> bool:
        """Whether a node takes all of these pods at the same time. O(pods + claims)."""
        number = self._view.known.get(name)
        node = None if number is None else self._view.node(number)
        if number is None or node is None or self._rejection(pods[0], node) is not None:
            return False
        free = free_resources_on(self._view, number, node, self._claims(number, name, pods[0]).values())
        for pod in pods:
            if not free.takes(pod):
                return False
            free.count(pod, 1)
        return True

    def _beside_claims(self, number: NodeNumber, node: Node, pod: Pod) -> NodeRoom:
        claims = self._claims(number, node.name, pod)
        holds = whole_pods(free_resources_on(self._view, number, node, claims.values()), pod.requests)
        if holds:
            return NodeRoom(number, node.name, holds)
        # No room. Reserved: it would hold the pod without the slots of other groups, so waiting helps. Else it has no room at all.
        slots = self._reserved.get(node.name, _NO_CLAIMS)
        rest = [claim for uid, claim in claims.items() if uid not in slots]
        is_reserved = len(rest) < len(claims) and whole_pods(
            free_resources_on(self._view, number, node, rest), pod.requests
        )
        return NodeRoom(number, node.name, 0, Reason.RESERVED if is_reserved else Reason.NO_ROOM)

    def _claims(self, number: NodeNumber, name: str, pod: Pod) -> Mapping[str, Pod]:
        """The pods that claim room on the node and are not on it, by UID."""
        claims = {nominee.uid: nominee for nominee in conflicting_nominated_pods(pod, name, self._view)}
        claims |= self._undetermined.get(name, _NO_CLAIMS)
        claims |= self._reserved.get(name, _NO_CLAIMS)
        here = self._view.pods_on(number)
        return {uid: claim for uid, claim in claims.items() if uid not in self._own and uid not in here}

    def free_share(self, rooms: Iterable[NodeRoom], pod: Pod) -> float:
        """The free share of the nodes for such pods: of all requested resources the smallest share. O(nodes × resources)."""
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


def _displaced(requests: Resources, pod: Pod) -> int:
    """By how many pods like this one the room of a node shrinks, at most, if these requests are added. O(resources)."""
    wanted = pod.requests.items()
    return max(
        (-(-requests.get(name, 0) // amount) for name, amount in wanted if amount > 0 and name != PODS), default=0
    )


def _is_in(node: Node, wanted: Sequence[tuple[str, frozenset[str]]]) -> bool:
    """Whether a node has one of the values of each label key."""
    labels = node.labels
    for key, values in wanted:  # noqa: SIM110 - a generator would cost twice as much
        if labels.get(key) not in values:
            return False
    return True


_COUNTED: Final = (None, Reason.NO_ROOM, Reason.RESERVED)


def is_alone_on_its_node(pod: Pod, view: ClusterView) -> bool:
    """Whether the pod's own anti-affinity allows only one such pod on a node, whatever the room. O(terms)."""
    signature = pod.signature
    labels = view.namespace_labels(signature.namespace)
    return any(
        term.topology_key == HOSTNAME and term.selects(signature.namespace, signature.labels, labels)
        for term in signature.affinity.required_anti
    )


def is_unconstrained(pod: Pod, view: ClusterView) -> bool:
    """Whether no rule that counts pods can reject a node for the pod, wherever the pods of its group are placed."""
    compiled = view.compiled(pod.signature)
    is_rejected = compiled.is_malformed or compiled.excess is not None
    return not (is_rejected or compiled.filter_groups() or pod.signature.enforced is not None)


def whole_pods(free: FreeResources, requests: Resources) -> int:
    """How many pods with these requests fit into the free resources. O(resources)."""
    most = free.slots
    for name, amount in requests.items():
        if amount > 0 and name != PODS:
            most = min(most, free.free.get(name, 0) // amount)
    return max(most, 0)


def most_frequent(reasons: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """How many nodes hold no pod, by the text of the reason: the most frequent first, equal ones by text."""
    return tuple(
        sorted(((text, nodes) for text, nodes in reasons.items() if nodes), key=lambda item: (-item[1], item[0]))
    )
