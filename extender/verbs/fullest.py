"""The best nodes of a long question, found from the fullest domains down instead of from the names.

For preferences that only add points and count over one key. With 5,000 names and a few hundred pods that attract,
ranking every name costs 2 ms; the domains with most pods are at hand in each group, and a few of them suffice
(the threshold algorithm of Fagin, Lotem and Naor: stop when nothing unseen can beat what has been found).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter

from extender.index.view import WeightedGroup
from extender.rules.catalog import PreparedFilters
from extender.verbs.asking import Asked

Ranked = list[tuple[float, int]]

_SLICE = 64
_SMALL = 8  # nodes in a domain on average; in larger domains the first names tried are good already


def applies(groups: Sequence[WeightedGroup]) -> bool:
    """Whether every part adds points, over one and the same key, whose domains are small."""
    key = groups[0].group.key
    if len(key.nodes_in) * _SMALL < len(key.of_node):
        return False
    return all(part.weight > 0 and part.group.key is key for part in groups)


def best_from_the_top(
    groups: Sequence[WeightedGroup], filters: PreparedFilters, asked: Asked, most: int, turn: int
) -> Ranked:
    """Up to ``most`` passing positions with their ranks, best first. O(names to a set + domains looked at)."""
    names = set(asked.names)
    found: Ranked = []
    seen: set[int] = set()
    for threshold, domains in _tiers(groups, turn):
        fresh = [domain for domain in domains if domain not in seen]
        seen.update(fresh)
        found.extend(_passing(groups, filters, asked, names, fresh))
        if sum(rank >= threshold for rank, _ in found) >= most:
            break
    else:
        found.extend(_untouched(groups, filters, asked, most - len(found), turn))
    found.sort(key=itemgetter(0), reverse=True)
    return found[:most]


def _tiers(groups: Sequence[WeightedGroup], turn: int) -> Iterator[tuple[float, Sequence[int]]]:
    """Slices of domains, fullest first, each with the most that a domain not yet given can have."""
    levels = [sorted(part.group.levels, reverse=True) for part in groups]
    tops = [part.weight * counts[0] for part, counts in zip(groups, levels, strict=True)]
    at = [0] * len(groups)
    while any(tops):
        which = max(range(len(tops)), key=tops.__getitem__)
        part, counts = groups[which], levels[which]
        domains = list(part.group.levels[counts[at[which]]])
        start = turn % len(domains)
        turned = domains[start:] + domains[:start]
        for first in range(0, len(turned) - _SLICE, _SLICE):
            yield sum(tops), turned[first : first + _SLICE]
        at[which] += 1
        tops[which] = part.weight * counts[at[which]] if at[which] < len(counts) else 0
        yield sum(tops), turned[(len(turned) - 1) // _SLICE * _SLICE :]


def _passing(
    groups: Sequence[WeightedGroup], filters: PreparedFilters, asked: Asked, names: set[str], domains: Sequence[int]
) -> Iterator[tuple[float, int]]:
    """The asked and passing nodes of these domains with their ranks."""
    key = groups[0].group.key
    nodes = [node for domain in domains for node in key.nodes_in[domain]]
    name_of = asked.known_names
    for node in filters.passing([node for node in nodes if name_of[node] in names]):
        domain = key.of_node[node]
        yield float(sum(part.weight * part.group.counts.get(domain, 0) for part in groups)), node


def _untouched(
    groups: Sequence[WeightedGroup], filters: PreparedFilters, asked: Asked, most: int, turn: int
) -> Iterator[tuple[float, int]]:
    """Passing nodes whose domain no group counts: all of rank 0."""
    domain_of = groups[0].group.key.of_node
    left = most
    for piece in asked.pieces(turn, max(most, 1)):
        for node in filters.passing(piece):
            if left <= 0:
                return
            if not any(domain_of[node] in part.group.counts for part in groups):
                left -= 1
                yield 0.0, node
