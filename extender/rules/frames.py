"""The nodes that a question is about, and in which domain each of them is.

Two frames: the nodes that the index knows, asked by name, and the nodes that a request brings along, which may be
hypothetical (an autoscaler's template). Rules see positions and domain numbers only, so they are written once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from extender.index.view import ClusterView, GroupView, KeyView, SpreadGroupView
from extender.model.objects import Node


class Frame(Protocol):
    """Positions of nodes, and how to find their domains."""

    def domains(self, key: KeyView) -> Sequence[int]:
        """Domain number by position: 0 where the node lacks the key, negative where the index knows no such domain."""

    def new_domains(self, group: SpreadGroupView) -> int:
        """How many domains would be eligible for the group only because of nodes that the index does not know."""

    def most(self, group: GroupView) -> Mapping[int, int]:
        """The greatest count that each domain may have."""

    def may_count(self, group: GroupView) -> bool:
        """Whether the group may count anybody at all."""

    def is_covered_by(self, group: GroupView) -> bool:
        """Whether it is certain, without a look at any node, that each stands in a domain that the group counts in."""


class CertainFrame:
    """What the index counts is all there is."""

    def most(self, group: GroupView) -> Mapping[int, int]:
        """The counts themselves."""
        return group.counts

    def may_count(self, group: GroupView) -> bool:
        """Whether it does."""
        return bool(group.counts)


class IndexFrame(CertainFrame):
    """The nodes of the index; a position is a node number."""

    def domains(self, key: KeyView) -> Sequence[int]:
        """The index's own column: no copy."""
        return key.of_node

    def new_domains(self, _group: SpreadGroupView) -> int:
        """None: every domain is known."""
        return 0

    def is_covered_by(self, group: GroupView) -> bool:
        """Whether no node lacks the key and no domain is empty. O(1)."""
        return not group.key.lacking and len(group.counts) == len(group.key.nodes_in)


class RequestFrame(CertainFrame):
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

    def is_covered_by(self, _group: GroupView) -> bool:
        """Never certain: the nodes may be hypothetical."""
        return False


class WorstCaseFrame:
    """Another frame, with the pods whose node is not known yet taken to stand wherever that is worst.

    They add to what anti-affinity and skew count in every domain where they may be; they satisfy no affinity, they
    raise no minimum, and they end the privilege of the first pod of a group.
    """

    def __init__(self, frame: Frame, view: ClusterView) -> None:
        self._frame = frame
        self._view = view

    def domains(self, key: KeyView) -> Sequence[int]:
        """As the other frame has them."""
        return self._frame.domains(key)

    def new_domains(self, group: SpreadGroupView) -> int:
        """As the other frame counts them."""
        return self._frame.new_domains(group)

    def most(self, group: GroupView) -> Mapping[int, int]:
        """The counts with every such pod added wherever it may be. O(such pods × their nodes)."""
        if not group.pending:
            return group.counts
        counts = dict(group.counts)
        for domain, pods in self._view.possible(group).items():
            counts[domain] = counts.get(domain, 0) + pods
        return counts

    def may_count(self, group: GroupView) -> bool:
        """Whether it counts anybody or somebody is pending."""
        return bool(group.counts) or group.pending > 0

    def is_covered_by(self, group: GroupView) -> bool:
        """By the pods alone whose node is known."""
        return self._frame.is_covered_by(group)
