"""The best nodes of a long question, found from the domains that attract instead of from the names.

For preferences that only add points and count over one key. With 5,000 names and a few hundred pods that attract,
ranking every name costs 2 ms. Where few domains attract, their nodes are all ranked. Where many do, those with most
pods are at hand in each group, and a few of them suffice (the threshold algorithm of Fagin, Lotem and Naor: stop when
nothing unseen can beat what has been found).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from operator import itemgetter

from extender.index.view import KeyView, WeightedGroup
from extender.rules.catalog import PreparedFilters
from extender.verbs.request import Ranked, RequestedNodes

_SLICE = 64
_SPARE = 8  # names looked up beyond what is wanted, as some will not pass
_SMALL = 8  # nodes in a domain on average; in larger domains the first names tried are good already


def applies(groups: Sequence[WeightedGroup]) -> bool:
    """Whether every part adds points, over one and the same key, whose domains are small."""
    key = groups[0].group.key
    if len(key.nodes_in) * _SMALL < key.filled + key.lacking:
        return False
    return all(part.weight > 0 and part.group.key is key for part in groups)


def best_by_top_domains(
    groups: Sequence[WeightedGroup], filters: PreparedFilters, requested: RequestedNodes, most: int, turn: int
) -> Ranked:
    """Up to ``most`` passing positions with their ranks, best first. O(names to a set + domains looked at)."""
    attracting: AbstractSet[int] = frozenset()
    if sum(len(part.group.counts) for part in groups) <= len(requested):
        attracting = _attracting(groups)
        found = _from_all(groups, attracting, filters, requested, turn)
    else:
        found = _from_tiers(groups, filters, requested, most, turn)
    found.sort(key=itemgetter(0), reverse=True)
    if len(found) < most:  # then all that attract have been looked at
        key, attracting = groups[0].group.key, attracting or _attracting(groups)
        found.extend(_untouched(attracting, key, filters, requested, most - len(found), turn))
    return found[:most]


def _attracting(groups: Sequence[WeightedGroup]) -> set[int]:
    """The domains in which any group counts a pod."""
    return set[int]().union(*(part.group.counts for part in groups))


def _from_all(
    groups: Sequence[WeightedGroup],
    attracting: AbstractSet[int],
    filters: PreparedFilters,
    requested: RequestedNodes,
    turn: int,
) -> Ranked:
    """The requested and passing nodes of all these domains."""
    nodes_in, name_of = groups[0].group.key.nodes_in, requested.known_names
    here = {name_of[node]: node for domain in attracting for node in nodes_in[domain]}
    nodes = list(map(here.__getitem__, here.keys() & requested.names))
    start = turn % max(len(nodes), 1)
    return list(_ranked(groups, filters.passing(nodes[start:] + nodes[:start])))


def _from_tiers(
    groups: Sequence[WeightedGroup], filters: PreparedFilters, requested: RequestedNodes, most: int, turn: int
) -> Ranked:
    """Those of the fullest domains, until ``most`` are found that nothing unseen can beat."""
    names = set(requested.names)
    found: Ranked = []
    seen: set[int] = set()
    for threshold, domains in _tiers(groups, turn):
        fresh = [domain for domain in domains if domain not in seen]
        seen.update(fresh)
        found.extend(_passing(groups, filters, requested, names, fresh))
        if sum(rank >= threshold for rank, _ in found) >= most:
            break
    return found


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
    groups: Sequence[WeightedGroup],
    filters: PreparedFilters,
    requested: RequestedNodes,
    names: set[str],
    domains: Sequence[int],
) -> Iterator[tuple[float, int]]:
    """The requested and passing nodes of these domains with their ranks."""
    nodes_in, name_of = groups[0].group.key.nodes_in, requested.known_names
    nodes = [node for domain in domains for node in nodes_in[domain]]
    return _ranked(groups, filters.passing([node for node in nodes if name_of[node] in names]))


def _ranked(groups: Sequence[WeightedGroup], nodes: Sequence[int]) -> Iterator[tuple[float, int]]:
    domain_of = groups[0].group.key.of_node
    parts = [(part.weight, part.group.counts.get) for part in groups]
    for node in nodes:
        domain = domain_of[node]
        yield float(sum([weight * count_of(domain, 0) for weight, count_of in parts])), node


def _untouched(
    attracting: AbstractSet[int],
    key: KeyView,
    filters: PreparedFilters,
    requested: RequestedNodes,
    most: int,
    turn: int,
) -> Iterator[tuple[float, int]]:
    """Passing nodes whose domain no group counts: all of rank 0."""
    domain_of, left = key.of_node, most
    for piece in requested.pieces(turn, most + _SPARE):
        untouched = [node for node in piece if domain_of[node] not in attracting]
        for node in filters.passing(untouched)[:left]:
            left -= 1
            yield 0.0, node
        if left <= 0:
            return
