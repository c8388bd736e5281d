"""Many small groups over one key, read as one: what other namespaces' terms cost a pod that they select.

A tenant may have hundreds of terms that select all pods. Each has a group of its own, most of which count a
few pods. Evaluated one by one for each node they would cost a request nodes × groups (12 ms for 390 groups and 500 nodes);
joined by their key they cost groups + nodes × keys. Nothing is kept: the counts are read when they are joined.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Final

from extender.index.counts.compiled_constraints import WeightedGroup
from extender.index.counts.groups import GroupView
from extender.index.nodes.columns import Column, DomainNumber
from extender.index.nodes.domains import KeyView

MANY: Final = 4  # for callers: up to so many groups cost less one by one
SMALL: Final = 8  # domains with pods; larger groups cost more to copy than to read


class JoinedGroup(GroupView):
    """The pods that several groups of one key count, each as often as its weight says, at that moment."""

    __slots__ = ()
    counts: dict[DomainNumber, int]

    def add(self, counts: Mapping[DomainNumber, int], weight: int) -> None:
        """Adds the counts of one group. O(its domains)."""
        here = self.counts
        for domain, pods in counts.items():
            here[domain] = here.get(domain, 0) + weight * pods


def join_weighted(parts: Sequence[WeightedGroup]) -> Sequence[WeightedGroup]:
    """Parts that give each node the same sum: small groups joined by key, those that add points and those that take any apart.

    O(parts).
    """
    kept: list[WeightedGroup] = []
    joined: dict[tuple[KeyView, bool], JoinedGroup] = {}
    for part in parts:
        group = part.group
        if len(group.counts) > SMALL:
            kept.append(part)
            continue
        adds = part.weight > 0
        into = joined.get((group.key, adds))
        if into is None:
            into = joined[group.key, adds] = JoinedGroup(group.key)
        into.add(group.counts, abs(part.weight))
    return [*kept, *(WeightedGroup(1 if adds else -1, group) for (_, adds), group in joined.items())]


Closing = tuple[Column, Container[DomainNumber]]
"""Where a node's domain is found, and the domains that are closed."""


def join_closed(clauses: Sequence[tuple[Column, Mapping[DomainNumber, int]]]) -> Sequence[Closing]:
    """The domains that each clause closes: those of small clauses joined by column. O(clauses)."""
    kept: list[Closing] = []
    joined: dict[int, tuple[Column, set[DomainNumber]]] = {}
    for column, counts in clauses:
        if len(counts) > SMALL:
            kept.append((column, counts))
        elif counts:
            joined.setdefault(id(column), (column, set()))[1].update(counts)
    return [*kept, *joined.values()]
