"""The nodes that a rule is applied to, the domain of each, and how undetermined pods are counted.

Two frames: the nodes that the index knows, and the nodes that a request brings along, which may be hypothetical (an
autoscaler's template). Rules see positions and domain numbers only, so each rule is written once. Where assumed pods are
undetermined, a frame counts them in the worst or in the best case for the incoming pod.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Mapping, Sequence
from copy import copy
from typing import Self

from extender.index.counts.groups import GroupView, SpreadGroupView
from extender.index.nodes.columns import Column
from extender.index.nodes.domains import KeyView, NodeMatches
from extender.index.view import ClusterView
from extender.model.objects import Node


class Frame(ABC):
    """Positions of nodes, and how to find their domains. ``numbers_nodes``: a position is the number of a node of the index.

    Undetermined pods count nowhere, until `worst_case` or `best_case` says wherever that is worst or best for the incoming
    pod. In the worst case such a pod counts for anti-affinity and skew in every domain where it may land, satisfies affinity
    and raises the minimum only where it is sure to land, and ends the first-pod rule of its group. A node that is rejected
    in the best case is rejected wherever these pods land.
    """

    numbers_nodes: bool
    undetermined: _Undetermined | None = None

    def worst_case(self, view: ClusterView) -> Self:
        """The same nodes, with each undetermined pod counted wherever that is worst."""
        return self._with(_Undetermined(view, is_best=False))

    def best_case(self, view: ClusterView) -> Self:
        """The same nodes, with each undetermined pod counted wherever that is best, for each count by itself."""
        return self._with(_Undetermined(view, is_best=True))

    def _with(self, undetermined: _Undetermined) -> Self:
        found = copy(self)
        found.undetermined = undetermined
        return found

    @abstractmethod
    def domains(self, key: KeyView) -> Column:
        """Domain number by position: 0 where the node lacks the key, negative where the index knows no such domain."""

    @abstractmethod
    def value(self, key: KeyView, node: int) -> str | None:
        """The label's value of the node at a position; None where it lacks the key. O(1)."""

    @abstractmethod
    def node(self, position: int, view: ClusterView) -> Node | None:
        """The node at a position; None where pods are on a node that does not exist. O(1)."""

    @abstractmethod
    def admitted(self, matches: NodeMatches, nodes: Sequence[int]) -> Column:
        """Not 0 for those of the positions whose node meets requirements."""

    @abstractmethod
    def eligible_domains(self, group: SpreadGroupView, without: Container[str] = ()) -> int:
        """How many domains are eligible for the group, also those that only nodes of the frame are in.

        For a domain in ``without`` the nodes of the index decide alone.
        """

    def brought(self, _key: KeyView, _domain: str) -> Iterable[Node]:
        """The nodes of a domain that the request brings along: they may be hypothetical."""
        return ()

    @abstractmethod
    def is_covered_by(self, group: GroupView) -> bool:
        """Whether it is certain, without a look at any node, that the group counts a pod in the domain of each node."""

    def satisfying(self, group: GroupView) -> Mapping[int, int]:
        """Counts for affinity, which is satisfied where a pod is counted."""
        case = self.undetermined
        return group.counts if case is None else case.bounds(group)[case.is_best]

    def conflicting(self, group: GroupView) -> Mapping[int, int]:
        """Counts for anti-affinity and for skew, which reject where pods are counted."""
        case = self.undetermined
        return group.counts if case is None else case.bounds(group)[not case.is_best]

    def least(self, group: SpreadGroupView) -> int:
        """The smallest count over the eligible domains, which skew is measured against.

        O(distinct counts), O(domains) with undetermined pods.
        """
        counts, eligible = self.satisfying(group), self.eligible_domains(group)
        if counts is group.counts and eligible == group.domains:
            return group.least()
        return 0 if len(counts) < eligible else min(counts.values(), default=0)

    def may_count(self, group: GroupView) -> bool:
        """Whether the group may count any pod; in the best case, whether it is sure to."""
        case = self.undetermined
        if case is None or not group.undetermined:
            return bool(group.counts)
        return not case.is_best or bool(case.bounds(group)[0])


class _Undetermined:
    """Where the pods of undetermined node may land, for one request: the bounds of each count."""

    def __init__(self, view: ClusterView, *, is_best: bool) -> None:
        self.is_best = is_best
        self._view = view
        self._known: dict[int, tuple[Mapping[int, int], Mapping[int, int]]] = {}

    def bounds(self, group: GroupView) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """Lower and upper bound of the counts: with the pods that are sure to land there, and with all that may.

        O(such pods × their nodes), once for each group.
        """
        if not group.undetermined:
            return group.counts, group.counts
        found = self._known.get(id(group))
        if found is None:
            expected = self._view.expected(group)
            least = _sum(group.counts, expected.sure)
            found = self._known[id(group)] = (least, _sum(least, expected.possible))
        return found


class IndexFrame(Frame):
    """The nodes of the index; a position is a node number."""

    numbers_nodes = True

    def domains(self, key: KeyView) -> Column:
        """The index's own column: no copy."""
        return key.of_node

    def value(self, key: KeyView, node: int) -> str | None:
        """By the number of the node's domain."""
        domain = key.of_node[node]
        return key.value(domain) if domain else None

    def node(self, position: int, view: ClusterView) -> Node | None:
        """As the index knows it."""
        return view.node(position)

    def admitted(self, matches: NodeMatches, nodes: Sequence[int]) -> Column:
        """As the index keeps it."""
        return matches.among(nodes)

    def eligible_domains(self, group: SpreadGroupView, _without: Container[str] = ()) -> int:
        """As the index counts them."""
        return group.domains

    def is_covered_by(self, group: GroupView) -> bool:
        """Whether no node lacks the key and no domain is empty. O(1)."""
        return len(group.counts) == len(group.key.nodes_in) and not group.key.lacking


class RequestFrame(Frame):
    """The nodes that a request brings along, by their order there. O(nodes) for each topology key."""

    numbers_nodes = False

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes

    def domains(self, key: KeyView) -> Column:
        """The domain of each node by the labels that it came with."""
        unknown: dict[str, int] = {}
        return [self._domain(key, node, unknown) for node in self._nodes]

    def value(self, key: KeyView, node: int) -> str | None:
        """By the labels that the node came with."""
        return key.value_on(self._nodes[node])

    def node(self, position: int, _view: ClusterView) -> Node | None:
        """As it came with the request."""
        return self._nodes[position]

    def admitted(self, matches: NodeMatches, nodes: Sequence[int]) -> Column:
        """By the labels that the nodes came with. O(nodes × requirements)."""
        return {node: int(matches.admits(self._nodes[node])) for node in nodes}

    @staticmethod
    def _domain(key: KeyView, node: Node, unknown: dict[str, int]) -> int:
        value = key.value_on(node)
        if value is None:
            return 0
        return key.number_of.get(value) or unknown.setdefault(value, -1 - len(unknown))

    def brought(self, key: KeyView, domain: str) -> Iterable[Node]:
        """By the labels that the nodes came with. O(nodes)."""
        return (node for node in self._nodes if key.value_on(node) == domain)

    def eligible_domains(self, group: SpreadGroupView, without: Container[str] = ()) -> int:
        """Those of the index, and the values of eligible nodes of the request that no eligible node of the index has."""
        found = set()
        for node in self._nodes:
            value = group.key.value_on(node)
            if value is not None and value not in without and group.admits(node):
                domain = group.key.number_of.get(value)
                if domain is None or not group.is_eligible_domain(domain):
                    found.add(value)
        return group.domains + len(found)

    def is_covered_by(self, _group: GroupView) -> bool:
        """Never certain: the nodes may be hypothetical."""
        return False


class ChangedNodeFrame(RequestFrame):
    """A node of the index as a change of its labels or taints would leave it, with its pods counted where they would be then.

    Only for constraints without undetermined pods. O(pods on the node) for each group that is read.
    """

    def __init__(self, number: int, node: Node, view: ClusterView) -> None:
        super().__init__([node])
        self._number = number
        self._node = node
        self._view = view

    def satisfying(self, group: GroupView) -> Mapping[int, int]:
        """The counts after the change."""
        old, new = group.domain_of[self._number], self._new_domain(group)
        view = self._view
        if old == new or not (
            pods := sum(view.times_counted(pod, group) for pod in view.pods_on(self._number).values())
        ):
            return group.counts
        counts = dict(group.counts)
        counts[old] = counts.get(old, 0) - pods
        counts[new] = counts.get(new, 0) + pods
        return {domain: count for domain, count in counts.items() if domain and count}

    def conflicting(self, group: GroupView) -> Mapping[int, int]:
        """The same."""
        return self.satisfying(group)

    def may_count(self, group: GroupView) -> bool:
        """Whether it counts any pod after the change."""
        return bool(self.satisfying(group))

    def eligible_domains(self, group: SpreadGroupView, without: Container[str] = ()) -> int:
        """Those of the index, without the one that the node would leave empty, and with one that it would be the first in."""
        old, new = group.domain_of[self._number], self._new_domain(group)
        is_first = new != 0 and not group.is_eligible_domain(new) and group.key.value_on(self._node) not in without
        is_last = old not in (0, new) and group.column.domains[old] == 1 and group.key.value(old) not in without
        return group.domains + is_first - is_last

    def _new_domain(self, group: GroupView) -> int:
        if isinstance(group, SpreadGroupView) and not group.admits(self._node):
            return 0
        return self._domain(group.key, self._node, {})


def _sum(counts: Mapping[int, int], more: Mapping[int, int]) -> Mapping[int, int]:
    if not more:
        return counts
    total = dict(counts)
    for domain, pods in more.items():
        total[domain] = total.get(domain, 0) + pods
    return total
