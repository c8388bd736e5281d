"""The nodes that a question is about, and in which domain each of them is.

Two frames: the nodes that the index knows, asked by name, and the nodes that a request brings along, which may be
hypothetical (an autoscaler's template). Rules see positions and domain numbers only, so they are written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from extender.index.view import KeyView, SpreadGroupView
from extender.model.objects import Node


class Frame(Protocol):
    """Positions of nodes, and how to find their domains."""

    def domains(self, key: KeyView) -> Sequence[int]:
        """Domain number by position: 0 where the node lacks the key, negative where the index knows no such domain."""

    def new_domains(self, group: SpreadGroupView) -> int:
        """How many domains would be eligible for the group only because of nodes that the index does not know."""


class IndexFrame:
    """The nodes of the index; a position is a node number."""

    def domains(self, key: KeyView) -> Sequence[int]:
        """The index's own column: no copy."""
        return key.of_node

    def new_domains(self, _group: SpreadGroupView) -> int:
        """None: every domain is known."""
        return 0


class RequestFrame:
    """The nodes of a request, by their order there. O(nodes) for each key that is asked."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes

    def domains(self, key: KeyView) -> Sequence[int]:
        """The domain of each node by the labels that it came with."""
        unknown: dict[str, int] = {}
        return [self._domain(key, node, unknown) for node in self._nodes]

    @staticmethod
    def _domain(key: KeyView, node: Node, unknown: dict[str, int]) -> int:
        value = key.value_on(node)
        if value is None:
            return 0
        return key.number_of.get(value) or unknown.setdefault(value, -1 - len(unknown))

    def new_domains(self, group: SpreadGroupView) -> int:
        """Counts the values of eligible nodes of the request that no eligible node of the index has."""
        found = set()
        for node in self._nodes:
            value = group.key.value_on(node)
            if value is not None and group.admits(node):
                domain = group.key.number_of.get(value)
                if domain is None or not group.is_eligible_domain(domain):
                    found.add(value)
        return len(found)
