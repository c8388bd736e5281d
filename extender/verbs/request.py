"""What a request is about: the pod that the watch shows, and the requested nodes as positions.

1. A request only identifies a pod. Priority, preemption policy, scheduling gates, node, requests and constraints are read from the
   pod that the watch shows. So the sender of a request cannot preempt by a priority that the API server never admitted, and cannot
   take up room for a pod that does not exist.
2. A pod without gates keeps its constraints, except labels, owners and added tolerations (KEP-3838). So where the request and the
   watch differ, one of them is older by an update.
3. The decision is made by the pod of the watch, because that pod counts for other pods, now and once it is bound. Where the watch
   may be the older one, `tasks/filter_service.py` waits for it first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from itertools import chain, islice

import msgspec

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.nodes.requested_shares import SharesView
from extender.index.view import ClusterView
from extender.model.objects import Node, Pod, PodSignature
from extender.rules import catalog
from extender.rules.catalog import PreparedFilters
from extender.rules.frames import Frame, IndexFrame, RequestFrame
from extender.rules.meter import RuleMeter, Stopwatch
from extender.settings.configuration import Settings
from extender.verbs.offered_nodes import OfferedNodes
from extender.wire.extender_v1 import ExtenderArgs

_NONE: AbstractSet[int] = frozenset()
WINDOW = 100  # names that are read at once to choose from: the size of kube-scheduler's smallest sample
SPARE = 4  # the first piece is a quarter larger than the wanted number, which mostly saves a second piece


class Unconfirmed(Enum):
    """Why a pod is not decided now: a stable text, and whether the next watch event may change that (``may_pass``).

    The scheduler tries the pod again after its own back-off. https://kubernetes.io/docs/concepts/scheduling-eviction/pod-scheduling-readiness/
    """

    NOT_SHOWN = ("the watch does not show this pod yet", True)
    GATED = ("the watch shows scheduling gates on this pod", True)
    OTHER_NAME = ("the watch shows a pod of another name under this UID", False)
    PLACED = ("the watch shows this pod on a node already", False)
    DELETED = ("the watch shows this pod as deleted", False)

    def __init__(self, text: str, may_pass: bool) -> None:  # noqa: FBT001 (an enum's value is given by position)
        self.text = text
        self.may_pass = may_pass


def watched_pod(uid: str, namespace: str, name: str, view: ClusterView) -> Pod | Unconfirmed:
    """The pod if the watch shows it pending and without gates, else the reason. O(1)."""
    shown = view.pod(uid)
    if shown is None:
        return Unconfirmed.DELETED if uid in view.deleted else Unconfirmed.NOT_SHOWN
    # A UID never moves to another name, so the request is forged or damaged.
    if shown.name != name or shown.signature.namespace != namespace:
        return Unconfirmed.OTHER_NAME
    if shown.node:
        return Unconfirmed.PLACED
    if shown.terminating:
        return Unconfirmed.DELETED
    return Unconfirmed.GATED if shown.gated else shown


def has_same_constraints(one: PodSignature, other: PodSignature) -> bool:
    """Whether two signatures have the same constraints. O(1) for the same object, else O(size)."""
    return one is other or _parts(one) == _parts(other)


def _parts(signature: PodSignature) -> tuple[object, ...]:
    placement = (signature.affinity, signature.spread, signature.node_affinity, signature.preferred_nodes)
    return (signature.namespace, signature.labels, signature.tolerations, signature.controller, *placement)


class RequestedNodes(msgspec.Struct, frozen=True, gc=False):
    """The nodes of a request: their names in the request's order, and for each the position by which rules find its domain.

    - Request by names: a position is the number of the node in the index (``view``).
    - Request with whole ``nodes``: ``view`` is None, and a position is an index into ``nodes``.
    """

    names: Sequence[str]
    frame: Frame
    view: ClusterView | None = None
    nodes: Sequence[Node] = ()

    def __len__(self) -> int:
        return len(self.names)

    def positions(self, start: int = 0, stop: int | None = None) -> list[int]:
        """Positions of a slice of the names. Names that the index does not know are left out. O(names)."""
        if self.view is None:
            return list(range(len(self.names)))[start:stop]
        names = self.names[start:stop] if start or stop is not None else self.names
        return _without_none(list(map(self.view.known.get, names)))

    @property
    def knows_all(self) -> bool:
        """Whether every name has a position. O(names)."""
        return self.view is None or all(map(self.view.known.__contains__, self.names))

    def position(self, name: str) -> int | None:
        """The position of a name, None for an unknown name. O(1), or O(names) for a request with whole nodes."""
        if self.view is not None:
            return self.view.known.get(name)
        return self.names.index(name) if name in self.names else None

    def node(self, position: int) -> Node | None:
        """The node at a position."""
        return self.nodes[position] if self.view is None else self.view.node(position)

    @property
    def known_names(self) -> Sequence[str]:
        """Names by position, also of nodes that were not requested."""
        return self.names if self.view is None else self.view.node_names

    def names_at(self, positions: Sequence[int]) -> list[str]:
        """The names at these positions, in their order."""
        names = self.known_names
        return [names[position] for position in positions]

    def known_from(self, start: int, most: int) -> list[str]:
        """Up to ``most`` names of known nodes, from the name number ``start`` on. O(most) where all are known.

        The strings are the request's own objects. To go over positions to the strings of the index takes three times as long.
        """
        names = chain(islice(self.names, start, None), islice(self.names, start))
        known = names if self.view is None else filter(self.view.known.__contains__, names)
        return list(islice(known, most))

    def pieces(self, start: int, size: int, growth: int = 2) -> Iterator[list[int]]:
        """All positions in pieces, from the name number ``start`` round to the name before it.

        The first piece has ``size`` names, each following piece ``growth`` times as many.
        """
        # A piece that goes over the end of the list is two slices. Pieces grow, because a search that needs a second piece mostly
        # needs many names.
        total, passed = len(self.names), 0
        while passed < total:
            first, stop = (start + passed) % total, start + min(passed + size, total)
            last = stop if stop <= total else stop - total
            yield self.positions(first, last) if first < last else self.positions(first) + self.positions(0, last)
            passed, size = passed + size, size * growth


def _without_none(positions: list[int | None]) -> list[int]:
    return [position for position in positions if position is not None] if None in positions else positions  # type: ignore[return-value]  # no None left


def requested_nodes(args: ExtenderArgs, view: ClusterView) -> RequestedNodes:
    """The nodes of a request by names or with whole nodes. O(1) for names."""
    if args.nodes is not None:
        return RequestedNodes([node.name for node in args.nodes], RequestFrame(args.nodes), nodes=args.nodes)
    return RequestedNodes(args.node_names or [], IndexFrame(), view)


Ranked = list[tuple[float, int]]
"""Positions with their ranks, best first."""


def worst_case(frame: Frame, compiled: CompiledConstraints, view: ClusterView) -> Frame:
    """The frame for a decision: each assumed pod of undetermined node counts where it is the worst for the incoming pod."""
    return frame.worst_case(view) if view.is_undetermined(compiled) else frame


class RequestSearch(msgspec.Struct, frozen=True, gc=False):
    """One request, ready to be searched.

    - ``compiled``, ``filters``: the constraints of the pod, and the filters that a node must pass.
    - ``excluded``: positions that the search leaves out, though they may pass.
    - ``meter``: counts and times the rules that score.
    - ``offered``: which nodes the scheduler seldom requests. Without it nodes of equal preference are equal.
    - ``shares``: the requested shares of the nodes, in place of the shares of the index.
    """

    compiled: CompiledConstraints
    filters: PreparedFilters
    requested: RequestedNodes
    view: ClusterView
    settings: Settings
    meter: RuleMeter | None = None
    excluded: AbstractSet[int] = _NONE
    offered: OfferedNodes | None = None
    shares: SharesView | None = None

    @property
    def watch(self) -> Stopwatch | None:
        """What times the decision, if it is timed."""
        return None if self.meter is None else self.meter.watch

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """The positions that pass and are not excluded, in their order."""
        passing, excluded = self.filters.passing(nodes), self.excluded
        return [node for node in passing if node not in excluded] if excluded else passing

    def all_passing(self, start: int) -> list[int]:
        """All positions that pass, from the name number ``start`` on. O(names)."""
        passing: list[int] = []
        for piece in self.requested.pieces(start, len(self.requested)):
            passing += self.passing(piece)
        return passing

    def passing_names(self, start: int) -> Sequence[str]:
        """The names that pass, from the name number ``start`` on. O(names).

        Where every node passes, names of nodes that the index does not know are among them.
        """
        if self.filters.passes_all and not self.excluded:
            return [*self.requested.names[start:], *self.requested.names[:start]]
        return self.requested.names_at(self.all_passing(start))

    def first_passing(self, most: int, start: int) -> Ranked:
        """Up to ``most`` positions that pass, from the name number ``start`` on, all of rank 0. O(most) where most pass."""
        passing: list[int] = []
        for piece in self.requested.pieces(start, most if self.filters.passes_all else most + most // SPARE):
            passing.extend(self.passing(piece))
            if len(passing) >= most:
                break
        return [(0.0, node) for node in passing[:most]]

    def enough_passing(self, enough: int, start: int) -> list[int]:
        """The positions that pass, window by window until there are ``enough``. O(a window) where most pass."""
        # Below two windows all names are read at once: the second window would cost more than it saves.
        passing: list[int] = []
        names = len(self.requested)
        for window in self.requested.pieces(start, WINDOW if names >= 2 * WINDOW else names, 1):
            passing.extend(self.passing(window))
            if len(passing) >= enough:
                break
        return passing


def prepared(pod: Pod, requested: RequestedNodes, view: ClusterView, settings: Settings) -> RequestSearch:
    """The search for an effective pod, in the worst case of undetermined pods (`worst_case`). O(terms + constraints)."""
    compiled = view.compiled(pod.signature)
    frame = worst_case(requested.frame, compiled, view)
    return RequestSearch(compiled, catalog.prepare_filters(pod, compiled, view, frame), requested, view, settings)


def every_node(view: ClusterView) -> RequestedNodes:
    """All nodes of the index. The names are not copied. A name whose node was deleted has no position."""
    return RequestedNodes(view.node_names, IndexFrame(), view)
