"""Groups: the running counts that one term or constraint needs, pods per domain of one topology key.

A group never reads a pod. Code that places, removes or relabels pods calls ``add`` with a node number and a signed
number of pods, and the same call with the other sign undoes it. Invariants:

1. ``counts`` holds no zero: a domain whose count falls to zero has no entry, so an empty mapping means no pods.
2. In a `SpreadGroup` the counted domains are a subset of the scope's, because only eligible nodes have a domain there.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, NamedTuple

from extender.index.nodes.columns import Column, ColumnView, NodeColumn
from extender.index.nodes.domains import Inclusion, KeyDomains, KeyView, Scope, ScopeView
from extender.model.objects import Node

if TYPE_CHECKING:
    from extender.index.counts.selections import Selection


class IndexDriftError(RuntimeError):
    """Raised when a count would become negative: some change was applied twice or not at all."""


class Expected(NamedTuple):
    """Pods whose node is not known yet, by domain of a group: those that are sure to come there, and those that may.

    A pod is sure to come to a domain if all nodes that it may be on are there.
    """

    sure: Mapping[int, int]
    possible: Mapping[int, int]


class GroupView:
    """What readers see of a group: pods per domain, a domain without pods having no entry.

    ``users`` counts the compiled constraints that read the group (an owner group: its signatures). ``version`` grows with
    every change of the counts. ``undetermined`` is how many pods would count here whose node is not known yet (`assumed`).
    """

    __slots__ = ("_levels", "column", "counts", "key", "undetermined", "users", "version")
    key: KeyView
    column: ColumnView
    counts: Mapping[int, int]

    def __init__(self, key: KeyView) -> None:
        self.key = key
        self.column = key
        self.counts = {}
        self.version = 0
        self.users = 0
        self.undetermined = 0
        self._levels: dict[int, set[int]] | None = None

    @property
    def levels(self) -> Mapping[int, AbstractSet[int]]:
        """The domains by their count, so that finding the least and the greatest costs O(distinct counts).

        Made when it is first read, O(domains with pods): the groups of most terms that existing pods carry are never
        read this way, and it takes twice the memory of the counts.
        """
        levels = self._levels
        if levels is None:
            levels = self._levels = {}
            for domain, count in self.counts.items():
                levels.setdefault(count, set()).add(domain)
        return levels

    @property
    def domain_of(self) -> Column:
        """In which domain a node's pods count: 0 where they do not. Not to be kept while nodes change."""
        return self.column.of_node

    def greatest(self) -> int:
        """The largest count of a domain, 0 where no pod is counted. O(distinct counts)."""
        return max(self.levels, default=0)

    def smallest(self) -> int:
        """The smallest count over all domains of the key, those without a pod included. O(distinct counts)."""
        return 0 if len(self.counts) < len(self.key.nodes_in) else min(self.levels, default=0)


class Group(GroupView):
    """A group that is counted in."""

    __slots__ = ()
    key: KeyDomains
    column: NodeColumn
    counts: dict[int, int]

    def add(self, node: int, pods: int) -> None:
        """Counts so many pods more (or fewer) on a node. O(1); raises ``IndexDriftError`` below zero."""
        domain = self.column.of_node[node]
        if not domain:
            return
        old = self.counts.get(domain, 0)
        new = old + pods
        if new < 0:
            raise IndexDriftError(f"{pods} pods in {self.key.key}={self.key.value(domain)} make {new}")
        if new:
            self.counts[domain] = new
        else:
            self.counts.pop(domain, None)
        self.version += 1
        levels = self._levels
        if levels is None:
            return
        if old:
            level = levels[old]
            level.discard(domain)
            if not level:
                del levels[old]
        if new:
            levels.setdefault(new, set()).add(domain)


Where = str | tuple[str, Inclusion]
"""A topology key, with the nodes that count where not all of them do."""


class SelectedGroup(Group):
    """A group of the pods of a selection, over the nodes with a topology key. Compiled constraints acquire it."""

    __slots__ = ("selection",)

    def __init__(self, selection: Selection, column: KeyDomains | Scope) -> None:
        super().__init__(column if isinstance(column, KeyDomains) else column.key)
        self.selection = selection
        self.column = column

    @property
    def where(self) -> Where:
        """What tells it from the other groups of its selection."""
        return (self.key.key, self.column.inclusion) if isinstance(self.column, Scope) else self.key.key


class SpreadGroupView(GroupView):
    """What readers see of a `SpreadGroup`, with what skew is measured against."""

    __slots__ = ()
    column: ScopeView

    @property
    def domains(self) -> int:
        """How many eligible domains there are, those without a pod included."""
        return len(self.column.domains)

    def least(self) -> int:
        """The smallest count over the eligible domains, 0 where there is none. O(distinct counts)."""
        return 0 if len(self.counts) < len(self.column.domains) else min(self.levels, default=0)

    def is_eligible_domain(self, domain: int) -> bool:
        """Whether an eligible node is in the domain."""
        return domain in self.column.domains

    def admits(self, node: Node) -> bool:
        """Whether a node, also one that the index does not know, would count."""
        return self.column.inclusion.admits(node)


class SpreadGroup(SpreadGroupView, SelectedGroup):
    """Pods per *eligible* domain of a scope."""

    __slots__ = ()
    column: Scope
