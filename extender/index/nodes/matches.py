"""Which nodes meet requirements about nodes, for pods that scheduling policies hold to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from extender.index.nodes.columns import Column
from extender.model.constraints.node_affinity import NodeAffinity
from extender.model.objects import Node

_UNKNOWN = 2


class NodeMatches:
    """The nodes that one node affinity admits; ``users`` counts the compiled constraints that read it.

    A node is matched when it is first asked about and again after it changed, so that no request matches more nodes than
    it asks about, and further ones read a byte for each. ``nodes`` is the index's own list, by node number.
    """

    __slots__ = ("_nodes", "_verdicts", "affinity", "users")

    def __init__(self, affinity: NodeAffinity, nodes: Sequence[Node | None]) -> None:
        self.affinity = affinity
        self.users = 0
        self._nodes = nodes
        self._verdicts = bytearray()

    def among(self, nodes: Sequence[int]) -> Column:
        """Not 0 for those of the nodes that are admitted. O(nodes), and O(terms) for each that was not matched yet."""
        verdicts = self._verdicts
        if lacking := len(self._nodes) - len(verdicts):
            verdicts.extend(bytes((_UNKNOWN,)) * lacking)
        if _UNKNOWN in map(verdicts.__getitem__, nodes):
            for number in [number for number in nodes if verdicts[number] == _UNKNOWN]:
                node = self._nodes[number]
                verdicts[number] = node is not None and self.admits(node)
        return verdicts

    def admits(self, node: Node) -> bool:
        """Whether a node, also one that has no number, is admitted. O(terms)."""
        return self.affinity.matches(node.name, node.labels)

    def forget(self, number: int) -> None:
        """After a node came, changed its labels or was deleted. O(1)."""
        if number < len(self._verdicts):
            self._verdicts[number] = _UNKNOWN

    def wrong(self, numbers: Iterable[int]) -> list[int]:
        """Those of the nodes whose verdict is known and not true: for the audit. O(nodes × terms)."""
        nodes, verdicts = self._nodes, self._verdicts
        known = [number for number in numbers if number < len(verdicts) and verdicts[number] != _UNKNOWN]
        return [
            number
            for number in known
            if verdicts[number] != ((node := nodes[number]) is not None and self.admits(node))
        ]

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self._nodes)
