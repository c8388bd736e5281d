"""The nodes of a question brought to positions: numbers of the index, or the order of a request's own nodes.

Shared by the verbs; decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from extender.index.view import ClusterView
from extender.rules.frames import Frame, IndexFrame, RequestFrame
from extender.wire.extender_v1 import ExtenderArgs


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked about: names, the position of each, and how positions find their domains.

    ``positions`` holds -1 for a name that the index does not know (its watch is behind).
    """

    names: Sequence[str]
    positions: Sequence[int]
    frame: Frame

    def known(self) -> list[int]:
        """The positions of all nodes that are known, in order."""
        return [position for position in self.positions if position >= 0]

    def names_of(self) -> dict[int, str]:
        """Names by position."""
        return dict(zip(self.positions, self.names, strict=True))


def ask(args: ExtenderArgs, view: ClusterView) -> Asked:
    """Positions for the request's nodes, in either form. O(nodes)."""
    if args.nodes is not None:
        return Asked([node.name for node in args.nodes], range(len(args.nodes)), RequestFrame(args.nodes))
    names = args.node_names or []
    number_of = view.known.get
    return Asked(names, [number_of(name, -1) for name in names], IndexFrame())
