"""The nodes of a question as positions: numbers of the index, or the order of a request's own nodes.

Names are looked up piece by piece, since a short answer rarely needs all of them. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from extender.index.view import ClusterView
from extender.model.objects import Node
from extender.rules.frames import Frame, IndexFrame, RequestFrame
from extender.wire.extender_v1 import ExtenderArgs

_GROWTH = 2


@dataclass(frozen=True, slots=True)
class RequestedNodes:
    """The nodes of a request: the names in the request's order, and how positions find their domains.

    ``view`` is None where the request brought its own ``nodes``.
    """

    names: Sequence[str]
    frame: Frame
    view: ClusterView | None = None
    nodes: Sequence[Node] = ()

    def __len__(self) -> int:
        return len(self.names)

    def positions(self, start: int = 0, stop: int | None = None) -> list[int]:
        """Positions of a piece of the names; names that the index does not know are left out. O(names)."""
        if self.view is None:
            return list(range(len(self.names)))[start:stop]
        names = self.names[start:stop] if start or stop is not None else self.names
        found = list(map(self.view.known.get, names))
        return [each for each in found if each is not None] if None in found else found  # type: ignore[return-value]  # no None left

    @property
    def knows_all(self) -> bool:
        """Whether every name has a position. O(names)."""
        return self.view is None or all(map(self.view.known.__contains__, self.names))

    def position(self, name: str) -> int | None:
        """The position of one name, None where neither the request nor the index knows it. O(names) without an index."""
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

    def pieces(self, turn: int, first: int) -> Iterator[list[int]]:
        """All positions in growing pieces, starting at the name number ``turn`` and going round once."""
        size = first
        for start, stop in ((turn, len(self.names)), (0, turn)):
            at = start
            while at < stop:
                yield self.positions(at, min(at + size, stop))
                at, size = at + size, size * _GROWTH


def requested_nodes(args: ExtenderArgs, view: ClusterView) -> RequestedNodes:
    """The request's nodes, in either form. O(1) for names."""
    if args.nodes is not None:
        return RequestedNodes([node.name for node in args.nodes], RequestFrame(args.nodes), nodes=args.nodes)
    return RequestedNodes(args.node_names or [], IndexFrame(), view)
