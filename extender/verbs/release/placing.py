"""Places all pods of a group on the nodes of one domain, or finds that they do not fit there.

Equal pods without constraints are integer arithmetic: the sum of what the nodes hold. Otherwise the pods are placed one
after the other, the largest first, with backtracking as far as a budget of steps allows. Where they have constraints, or
those of existing pods concern them, the filter's own rules decide for each pod on trial counts, so that affinity and spread
among the pods of the group hold too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from extender.index.counts.counts import WhatIf
from extender.index.nodes.columns import NodeNumber
from extender.index.view import ClusterView
from extender.model.constraints.labels import HOSTNAME
from extender.model.objects import Node, Pod, PodSignature
from extender.model.rejections import Reason
from extender.model.release import Level, Slot
from extender.model.resources import PODS, Resources
from extender.rules import catalog
from extender.rules.catalog import PreparedFilters
from extender.rules.frames import IndexFrame
from extender.rules.free_resources import FreeResources, conflicting_nominated_pods, free_resources_on
from extender.rules.node_fit import static_rejection
from extender.verbs.request import worst_case

MOST_VISITS = 10_000
"""Nodes that are looked at again for one group, after a first pod that fits nowhere: about 15 ms. Where the budget ends, pods
that are unequal or constrained are rejected although another order of placing them might fit."""


@dataclass(slots=True)
class Budget:
    """What is left of `MOST_VISITS`, for all domains that are tried for a group."""

    left: int = MOST_VISITS


_PIECE = 64


@dataclass(frozen=True, slots=True)
class Placed:
    """Where all pods go, empty if they do not fit; ``most`` is how many pods were placed at best.

    ``reasons``: why the nodes do not take the first pod that fits nowhere, where a search found that.
    """

    slots: tuple[Slot, ...]
    most: int
    reasons: tuple[tuple[str, int], ...] = ()


def place_equal(pods: Sequence[Pod], rooms: Sequence[NodeRoom]) -> Placed:
    """Equal pods without constraints on as few nodes as possible, and the last of them on the tightest. O(nodes log nodes)."""
    left = len(pods)
    holds = sum(room.holds for room in rooms)
    if holds < left:
        return Placed((), holds)
    slots: list[Slot] = []
    open_ = sorted((room for room in rooms if room.holds), key=lambda room: (-room.holds, room.name))
    for at, largest in enumerate(open_):
        room = largest
        if room.holds >= left:
            room = min((each for each in open_[at:] if each.holds >= left), key=lambda each: (each.holds, each.name))
        some = min(room.holds, left)
        slots += [Slot(pod.uid, room.name) for pod in pods[len(slots) : len(slots) + some]]
        left -= some
        if not left:
            break
    return Placed(tuple(slots), len(pods))


@dataclass(frozen=True, slots=True)
class RuleChecks:
    """The rules of the catalog on a trial, for pods that are narrowed to the domain: only its nodes count for spread."""

    view: ClusterView
    tried: WhatIf
    narrowed: Mapping[PodSignature, PodSignature]

    def filters(self, pod: Pod) -> PreparedFilters | None:
        """The filters for the next pod, as the last one may have new terms; None where no rule applies."""
        pod = self._narrowed(pod)
        compiled = self.view.compiled(pod.signature)
        parts = catalog.counted_parts(compiled, self.view)
        return catalog.prepare(parts, pod, self.view, worst_case(IndexFrame(), compiled, self.view)) if parts else None

    def place(self, pod: Pod, node: NodeNumber) -> None:
        """The pod counts on the node from now on."""
        self.tried.place(self._narrowed(pod), node)

    def _narrowed(self, pod: Pod) -> Pod:
        return msgspec.structs.replace(pod, signature=self.narrowed.get(pod.signature, pod.signature))


class Search:
    """The search for slots of unequal or constrained pods, depth first. ``rooms``: by shape, the nodes that hold any.

    ``checks``: the rules, None for pods that no rule concerns. Each pod is tried on the tightest node first.
    """

    def __init__(
        self,
        pods: Sequence[Pod],
        rooms: Mapping[Hashable, Sequence[NodeRoom]],
        capacity: Capacity,
        checks: RuleChecks | None,
        budget: Budget,
    ) -> None:
        self._reasons = Counter[str]()
        self._budget = budget
        self._is_first = True
        self._capacity = capacity
        self._checks = checks
        self._rooms = {kind: sorted(each, key=lambda room: (room.holds, room.name)) for kind, each in rooms.items()}
        kinds = {pod.uid: shape(pod) for pod in pods}
        sizes = {kinds[pod.uid]: pod for pod in pods}
        order = {kind: self._order(pod, self._rooms[kind]) for kind, pod in sizes.items()}
        self._pods = sorted(pods, key=lambda pod: (order[kinds[pod.uid]], id(pod.signature), pod.uid))
        self._kinds = [kinds[pod.uid] for pod in self._pods]
        self._chosen: list[tuple[int, NodeRoom]] = []
        self._used: dict[NodeNumber, FreeResources] = {}
        self._free: dict[tuple[Hashable, NodeNumber], FreeResources] = {}
        self._most = 0

    def run(self) -> Placed:
        """Slots for all pods, or none. O(pods × nodes × clauses) where no pod is moved again."""
        levels = [self._candidates(0)]
        while levels:
            choice = next(levels[-1], None)
            if choice is None:
                levels.pop()
                if self._chosen:
                    self._remove_last()
                continue
            self._place(*choice)
            if len(self._chosen) == len(self._pods):
                slots = [Slot(pod.uid, room.name) for pod, (_, room) in zip(self._pods, self._chosen, strict=True)]
                return Placed(tuple(slots), len(slots))
            levels.append(self._candidates(len(self._chosen)))
        return Placed((), self._most, most_frequent(self._reasons))

    def _order(self, pod: Pod, rooms: Sequence[NodeRoom]) -> tuple[bool, int, int]:
        """Pods that need no other pod first, then those of which the roomiest node and all nodes hold the fewest."""
        needs = bool(pod.signature.affinity.required)
        return needs, rooms[-1].holds if rooms else 0, sum(room.holds for room in rooms)

    def _candidates(self, at: int) -> Iterator[tuple[int, NodeRoom]]:
        """The nodes for the next pod, with their positions among those of its shape. Looked at piece by piece."""
        pod, rooms = self._pods[at], self._rooms[self._kinds[at]]
        filters = None if self._checks is None else self._checks.filters(pod)
        first = 0
        if filters is None and at and self._kinds[at - 1] == self._kinds[at]:
            first = self._chosen[-1][0]  # equal pods: another order of the same nodes is no other placement
        fitting: list[NodeNumber] = []
        is_dead_end = True
        for start in range(first, len(rooms), _PIECE):
            piece = range(start, min(start + _PIECE, len(rooms)))
            open_ = {rooms[place].number: place for place in piece if self._fits(at, rooms[place])}
            passing = open_ if filters is None else filters.passing(list(open_))
            fitting += open_
            if not self._is_first:  # what it takes to get to the first dead end is free
                self._budget.left -= len(piece) if filters is None else _PIECE
            for number in passing:
                if self._budget.left < 0:
                    return
                is_dead_end = False
                yield open_[number], rooms[open_[number]]
        if is_dead_end and self._is_first:
            self._is_first = False
            self._reasons[Reason.NO_ROOM.text] += len(rooms) - len(fitting)
            for reason, nodes in filters.rejected(fitting) if filters is not None else ():
                self._reasons[reason.text] += len(nodes)

    def _fits(self, at: int, room: NodeRoom) -> bool:
        """Whether the node holds the pod beside those of the group that are placed there."""
        used = self._used.get(room.number)
        if used is None or not used.slots:
            return True
        pod, key = self._pods[at], (self._kinds[at], room.number)
        free = self._free.get(key)
        if free is None:
            free = self._free[key] = self._capacity.free(room, pod)
        if free.slots + used.slots < 1:
            return False
        there, taken = free.free, used.free
        for name, amount in pod.requests.items():
            if amount > 0 and name != PODS and amount > there.get(name, 0) + taken.get(name, 0):
                return False
        return True

    def _place(self, place: int, room: NodeRoom) -> None:
        pod = self._pods[len(self._chosen)]
        self._used.setdefault(room.number, FreeResources()).count(pod, 1)
        if self._checks is not None:
            self._checks.place(pod, room.number)
        self._chosen.append((place, room))
        self._most = max(self._most, len(self._chosen))

    def _remove_last(self) -> None:
        _, room = self._chosen.pop()
        self._used[room.number].count(self._pods[len(self._chosen)], -1)
        if self._checks is not None:
            self._checks.tried.remove_last()


# -- capacity of nodes ------------------------------------------------------------------------------------------------

# How many whole pods of a group each node holds, and why a node holds none.
#
# Counted by node and then summed: room on two nodes for half a pod each is room for none. What a pod requests is what the
# scheduler counts: init containers, sidecars, overhead and resources of the pod are part of `Pod.requests`. Pods that claim
# room and are on no node yet count on every node where they may be: those with slots, those nominated, and assumed pods of
# undetermined node.

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


def most_frequent(reasons: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """How many nodes hold no pod, by the text of the reason: the most frequent first, equal ones by text."""
    return tuple(
        sorted(((text, nodes) for text, nodes in reasons.items() if nodes), key=lambda each: (-each[1], each[0]))
    )
