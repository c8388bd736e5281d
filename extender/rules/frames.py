"""The nodes that a rule is applied to, the domain of each, and how undetermined pods are counted.

There are two kinds of frames: the nodes that the index knows, and the nodes in a request, which may be hypothetical (an
autoscaler's template). Rules see positions and domain numbers only, so each rule is written once. With undetermined
pods, a frame counts them in the worst or in the best case for the incoming pod.
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
    """Positions of nodes, and how to find their domains. ``numbers_nodes``: a position is a node number of the index.

    Undetermined pods count nowhere by default. `worst_case` counts each of them so:

    1. anti-affinity and skew: in every domain where it may land;
    2. affinity and the minimum: only in a domain where it is sure to land;
    3. the first-pod rule of its group no longer applies.

    `best_case` is the opposite. A node that is rejected in the best case is rejected wherever these pods land.
    """

    numbers_nodes: bool
    undetermined: _Undetermined | None = None

    def worst_case(self, view: ClusterView) -> Self:
        """The same nodes; each undetermined pod is counted in the worst domain."""
        return self._with(_Undetermined(view, is_best=False))

    def best_case(self, view: ClusterView) -> Self:
        """The same nodes; each undetermined pod is counted in the best domain, chosen for each count separately."""
        return self._with(_Undetermined(view, is_best=True))

    def _with(self, undetermined: _Undetermined) -> Self:
        # A copy, because a frame may be in use for both cases at once (`verbs/shadow.py`).
        frame = copy(self)
        frame.undetermined = undetermined
        return frame

    @abstractmethod
    def domains(self, key: KeyView) -> Column:
        """Domain number by position. 0: the node lacks the key. Negative: the index does not know the domain."""

    @abstractmethod
    def value(self, key: KeyView, node: int) -> str | None:
        """The label's value of the node at a position; None if it lacks the key. O(1)."""

    @abstractmethod
    def node(self, position: int, view: ClusterView) -> Node | None:
        """The node at a position; None for a node that does not exist although pods are on it. O(1)."""

    @abstractmethod
    def admitted(self, matches: NodeMatches, nodes: Sequence[int]) -> Column:
        """A column in which each of the positions whose node meets the requirements is not 0."""

    @abstractmethod
    def eligible_domains(self, group: SpreadGroupView, without: Container[str] = ()) -> int:
        """How many domains are eligible for the group, including domains that have nodes only in this frame.

        For a domain in ``without`` only nodes of the index count.
        """

    def brought(self, _key: KeyView, _domain: str) -> Iterable[Node]:
        """The nodes of a domain that came with the request; they may be hypothetical."""
        return ()

    def brought_domains(self, _key: KeyView) -> Iterable[str]:
        """The domains of the nodes that came with the request."""
        return ()

    @abstractmethod
    def is_covered_by(self, group: GroupView) -> bool:
        """Whether it is certain in advance that the group counts a pod in the domain of every node."""

    def satisfying(self, group: GroupView) -> Mapping[int, int]:
        """Counts for affinity: a counted pod satisfies it."""
        case = self.undetermined
        return group.counts if case is None else case.bounds(group)[case.is_best]

    def conflicting(self, group: GroupView) -> Mapping[int, int]:
        """Counts for anti-affinity and skew: a counted pod may reject the node."""
        case = self.undetermined
        return group.counts if case is None else case.bounds(group)[not case.is_best]

    def least(self, group: SpreadGroupView) -> int:
        """The smallest count over the eligible domains, which skew is measured against.

        O(distinct counts), O(domains) with undetermined pods.
        """
        counts, eligible = self.satisfying(group), self.eligible_domains(group)
        # Without undetermined pods and added domains the group knows the minimum. Otherwise a domain without a count
        # has 0.
        if counts is group.counts and eligible == group.domains:
            return group.least()
        # The shortest proof of a domain without a pod: fewer counts than domains.
        return 0 if len(counts) < eligible else min(counts.values(), default=0)

    def may_count(self, group: GroupView) -> bool:
        """Whether the group may count any pod; in the best case, whether it is sure to."""
        case = self.undetermined
        if case is None or not group.undetermined:
            return bool(group.counts)
        # In the worst case any undetermined pod ends the first-pod rule. In the best case only one that is sure to
        # land.
        return not case.is_best or bool(case.bounds(group)[0])


class _Undetermined:
    """Where undetermined pods may land, for one request: bounds of each count."""

    def __init__(self, view: ClusterView, *, is_best: bool) -> None:
        self.is_best = is_best
        self._view = view
        self._known: dict[int, tuple[Mapping[int, int], Mapping[int, int]]] = {}

    def bounds(self, group: GroupView) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """Lower and upper bound of the counts: with the pods that are sure to land there, and with all pods that may.

        O(undetermined pods × their nodes), once for each group.
        """
        if not group.undetermined:
            return group.counts, group.counts
        bounds = self._known.get(id(group))
        if bounds is None:
            expected = self._view.expected(group)
            # Example: zone-a has 2 pods. One undetermined pod may only land in zone-a, another in zone-a or zone-b.
            # Then zone-a has 3 to 4 pods, and zone-b 0 to 1.
            least = _sum(group.counts, expected.sure)
            bounds = self._known[id(group)] = (least, _sum(least, expected.possible))
        return bounds


class IndexFrame(Frame):
    """The nodes of the index; a position is a node number."""

    numbers_nodes = True

    def domains(self, key: KeyView) -> Column:
        """The column of the index, not a copy."""
        return key.of_node

    def value(self, key: KeyView, node: int) -> str | None:
        """Looked up by the number of the node's domain."""
        domain = key.of_node[node]
        return key.value(domain) if domain else None

    def node(self, position: int, view: ClusterView) -> Node | None:
        """The node of the index."""
        return view.node(position)

    def admitted(self, matches: NodeMatches, nodes: Sequence[int]) -> Column:
        """The column of the index."""
        return matches.among(nodes)

    def eligible_domains(self, group: SpreadGroupView, _without: Container[str] = ()) -> int:
        """The count of the index."""
        return group.domains

    def is_covered_by(self, group: GroupView) -> bool:
        """Whether every node has the key and every domain has a counted pod. O(1)."""
        # A node that lacks the key is in no domain, so anti-affinity cannot reject it.
        return len(group.counts) == len(group.key.nodes_in) and not group.key.lacking


class RequestFrame(Frame):
    """The nodes in a request, in its order. O(nodes) for each topology key."""

    numbers_nodes = False

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._nodes_by_domain: dict[KeyView, dict[str, list[Node]]] = {}

    def domains(self, key: KeyView) -> Column:
        """The domain of each node by its labels in the request."""
        unknown: dict[str, int] = {}
        return [self._domain(key, node, unknown) for node in self._nodes]

    def value(self, key: KeyView, node: int) -> str | None:
        """By the node's labels in the request."""
        return key.value_on(self._nodes[node])

    def node(self, position: int, _view: ClusterView) -> Node | None:
        """The node in the request."""
        return self._nodes[position]

    def admitted(self, matches: NodeMatches, nodes: Sequence[int]) -> Column:
        """By the labels in the request. O(nodes × requirements)."""
        return {node: int(matches.admits(self._nodes[node])) for node in nodes}

    @staticmethod
    def _domain(key: KeyView, node: Node, unknown: dict[str, int]) -> int:
        value = key.value_on(node)
        if value is None:
            return 0
        # Negative numbers: they are in no table of counts, and two nodes of one unknown domain still have equal
        # numbers.
        return key.number_of.get(value) or unknown.setdefault(value, -1 - len(unknown))

    def brought(self, key: KeyView, domain: str) -> Iterable[Node]:
        """By the labels in the request. O(nodes) for the first domain of a key."""
        return self._by_domain(key).get(domain, ())

    def brought_domains(self, key: KeyView) -> Iterable[str]:
        """By the labels in the request."""
        return self._by_domain(key)

    def _by_domain(self, key: KeyView) -> Mapping[str, Sequence[Node]]:
        nodes_by_domain = self._nodes_by_domain.get(key)
        if nodes_by_domain is None:
            nodes_by_domain = self._nodes_by_domain[key] = {}
            for node in self._nodes:
                value = key.value_on(node)
                if value is not None:
                    nodes_by_domain.setdefault(value, []).append(node)
        return nodes_by_domain

    def eligible_domains(self, group: SpreadGroupView, without: Container[str] = ()) -> int:
        """Domains of the index, plus domains that are eligible only because of nodes in the request."""
        # By value, because several nodes of the request may be in one new domain.
        added = set()
        for node in self._nodes:
            value = group.key.value_on(node)
            if value is not None and value not in without and group.admits(node):
                domain = group.key.number_of.get(value)
                if domain is None or not group.is_eligible_domain(domain):
                    added.add(value)
        return group.domains + len(added)

    def is_covered_by(self, _group: GroupView) -> bool:
        """Never certain: the nodes may be hypothetical."""
        return False


class ChangedNodeFrame(RequestFrame):
    """A node of the index after a trial change of its labels or taints. Its pods count where they would be then.

    Only for constraints without undetermined pods. O(pods on the node) for each group that is read.
    """

    def __init__(self, number: int, node: Node, view: ClusterView) -> None:
        super().__init__([node])
        self._number = number
        self._node = node
        self._view = view

    def satisfying(self, group: GroupView) -> Mapping[int, int]:
        """The counts after the change."""
        # The domain of the node decides where its pods count. Pods on other nodes are not touched by the change.
        old, new = group.domain_of[self._number], self._new_domain(group)
        view = self._view
        if old == new or not (
            pods := sum(view.times_counted(pod, group) for pod in view.pods_on(self._number).values())
        ):
            return group.counts
        # A copy: the group itself must not change. Domain 0 collects pods that count nowhere, and is dropped.
        counts = dict(group.counts)
        counts[old] = counts.get(old, 0) - pods
        counts[new] = counts.get(new, 0) + pods
        return {domain: count for domain, count in counts.items() if domain and count}

    def conflicting(self, group: GroupView) -> Mapping[int, int]:
        """The counts after the change."""
        return self.satisfying(group)

    def may_count(self, group: GroupView) -> bool:
        """Whether it counts any pod after the change."""
        return bool(self.satisfying(group))

    def eligible_domains(self, group: SpreadGroupView, without: Container[str] = ()) -> int:
        """Eligible domains after the change.

        A domain that loses its last node is dropped, a domain that gains its first added.
        """
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
