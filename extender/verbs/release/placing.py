"""Places all pods of a group on the nodes of one domain, or finds that they do not fit there.

Equal pods without constraints are integer arithmetic: the sum of what the nodes hold. Otherwise the pods are placed one
after the other, the largest first, with backtracking as far as a budget of steps allows. Where they have constraints, or
those of existing pods concern them, the filter's own rules decide for each pod on trial counts, so that affinity and spread
among the pods of the group hold too.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from extender.index.counts.what_if import WhatIf
from extender.index.nodes.columns import NodeNumber
from extender.index.view import ClusterView
from extender.model.objects import Pod, PodSignature
from extender.model.rejections import Reason
from extender.model.release import Slot
from extender.model.resources import PODS
from extender.rules import catalog
from extender.rules.catalog import PreparedFilters
from extender.rules.frames import IndexFrame, WorstCaseFrame
from extender.rules.free_resources import FreeResources
from extender.verbs.release.capacity import Capacity, NodeRoom, Reasons, shape

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


class Checks(Protocol):
    """The rules for one pod after another, on counts that change with each pod that is placed."""

    def filters(self, pod: Pod) -> PreparedFilters | None:
        """The filters for the next pod; None where no rule applies."""

    def place(self, pod: Pod, node: NodeNumber) -> None:
        """The pod counts on the node from now on."""

    def remove_last(self) -> None:
        """The pod that was placed last does not count any more."""


class NoChecks:
    """For pods that no rule concerns."""

    def filters(self, _pod: Pod) -> PreparedFilters | None:
        """None."""
        return None

    def place(self, pod: Pod, node: NodeNumber) -> None:
        """Does nothing."""

    def remove_last(self) -> None:
        """Does nothing."""


@dataclass(frozen=True, slots=True)
class RuleChecks:
    """The rules of the catalog on a trial, for pods that are narrowed to the domain: only its nodes count for spread."""

    view: ClusterView
    tried: WhatIf
    narrowed: Mapping[PodSignature, PodSignature]

    def filters(self, pod: Pod) -> PreparedFilters | None:
        """Prepared again for each pod, as the last one may have new terms."""
        pod = self._narrowed(pod)
        compiled = self.view.compiled(pod.signature)
        parts = catalog.counted_parts(compiled, self.view)
        frame = WorstCaseFrame(IndexFrame(), self.view) if self.view.is_undetermined(compiled) else IndexFrame()
        return catalog.prepare(parts, pod, self.view, frame) if parts else None

    def place(self, pod: Pod, node: NodeNumber) -> None:
        """Counts it."""
        self.tried.place(self._narrowed(pod), node)

    def remove_last(self) -> None:
        """Takes it out."""
        self.tried.remove_last()

    def _narrowed(self, pod: Pod) -> Pod:
        return msgspec.structs.replace(pod, signature=self.narrowed.get(pod.signature, pod.signature))


class Search:
    """The search for slots of unequal or constrained pods, depth first. ``rooms``: by shape, the nodes that hold any.

    Each pod is tried on the tightest node first.
    """

    def __init__(
        self,
        pods: Sequence[Pod],
        rooms: Mapping[Hashable, Sequence[NodeRoom]],
        capacity: Capacity,
        checks: Checks,
        budget: Budget,
    ) -> None:
        self._reasons = Reasons()
        self._budget = budget
        self._is_first = True
        self._capacity = capacity
        self._checks = checks
        self._rooms = {kind: sorted(each, key=_tightest) for kind, each in rooms.items()}
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
        return Placed((), self._most, self._reasons.sorted())

    def _order(self, pod: Pod, rooms: Sequence[NodeRoom]) -> tuple[bool, int, int]:
        """Pods that need no other pod first, then those of which the roomiest node and all nodes hold the fewest."""
        needs = bool(pod.signature.affinity.required)
        return needs, rooms[-1].holds if rooms else 0, sum(room.holds for room in rooms)

    def _candidates(self, at: int) -> Iterator[tuple[int, NodeRoom]]:
        """The nodes for the next pod, with their positions among those of its shape. Looked at piece by piece."""
        pod, rooms = self._pods[at], self._rooms[self._kinds[at]]
        filters = self._checks.filters(pod)
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
            self._reasons.add(Reason.NO_ROOM, len(rooms) - len(fitting))
            for reason, nodes in filters.rejected(fitting) if filters is not None else ():
                self._reasons.add(reason, len(nodes))

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
        self._checks.place(pod, room.number)
        self._chosen.append((place, room))
        self._most = max(self._most, len(self._chosen))

    def _remove_last(self) -> None:
        _, room = self._chosen.pop()
        self._used[room.number].count(self._pods[len(self._chosen)], -1)
        self._checks.remove_last()


def _tightest(room: NodeRoom) -> tuple[int, str]:
    return room.holds, room.name
