"""One interned question and its running counts: pods per domain of one topology key.

A group never looks at a pod. Whoever places, removes or relabels pods calls ``add`` with a node number and a signed
number of pods, and the same call undoes it. Facts this rests on:

1. ``counts`` holds no zero: a domain whose count falls to zero has no entry, so "nobody" is an empty mapping.
2. In a `SpreadGroup` the counted domains are a subset of the scope's, because only eligible nodes have a domain there.
"""

from __future__ import annotations

from extender.index.domains import KeyDomains, Scope
from extender.model.objects import Node


class IndexDriftError(RuntimeError):
    """Raised when a count would become negative: some change was applied twice or not at all."""


class Group:
    """Pods per domain. ``askers`` counts the compiled questions that hold the group (an inverse group: its owners)."""

    __slots__ = ("askers", "counts", "domain_of", "key", "version")

    def __init__(self, key: KeyDomains) -> None:
        self.key = key
        self.domain_of = key.of_node
        self.counts: dict[int, int] = {}
        self.version = 0
        self.askers = 0

    def add(self, node: int, pods: int) -> None:
        """Counts so many pods more (or fewer) on a node. O(1); raises ``IndexDriftError`` below zero."""
        domain = self.domain_of[node]
        if domain:
            count = self.counts.get(domain, 0) + pods
            if count > 0:
                self.counts[domain] = count
            elif count == 0:
                self.counts.pop(domain, None)
            else:
                raise IndexDriftError(f"{pods} pods in {self.key.key}={self.key.value(domain)} make {count}")
            self.version += 1


class SpreadGroup(Group):
    """Pods per eligible domain, with the distribution of the counts so that the minimum is at hand."""

    __slots__ = ("_levels", "scope")

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope.key)
        self.scope = scope
        self.domain_of = scope.of_node
        self._levels: dict[int, int] = {}

    @property
    def domains(self) -> int:
        """How many eligible domains there are, those without a pod included."""
        return len(self.scope.domains)

    def add(self, node: int, pods: int) -> None:
        """As for any group; O(1)."""
        domain = self.domain_of[node]
        if not domain:
            return
        old = self.counts.get(domain, 0)
        super().add(node, pods)
        self._shift(old, self.counts.get(domain, 0))

    def _shift(self, old: int, new: int) -> None:
        if old:
            left = self._levels[old] - 1
            if left:
                self._levels[old] = left
            else:
                del self._levels[old]
        if new:
            self._levels[new] = self._levels.get(new, 0) + 1

    def least(self) -> int:
        """The smallest count over the eligible domains, 0 where there is none. O(distinct counts)."""
        if len(self.counts) < len(self.scope.domains) or not self._levels:
            return 0
        return min(self._levels)

    def is_eligible_domain(self, domain: int) -> bool:
        """Whether some eligible node stands in the domain."""
        return domain in self.scope.domains

    def admits(self, node: Node) -> bool:
        """Whether a node, also one that the index does not know, would count."""
        return self.scope.inclusion.admits(node)
