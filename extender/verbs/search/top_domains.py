"""The best of many requested nodes, found from the domains with preferred pods instead of from the names.

For preferences that only add points and count over one key. With 5,000 names and a few hundred preferred pods, ranking
every name costs 2 ms. Where few domains have such pods, all their nodes are ranked. Where many do, each group keeps its
domains by count, and the first few suffice (the threshold algorithm of Fagin, Lotem and Naor: stop when nothing unseen
can beat what has been found).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from operator import itemgetter

from extender.index.nodes.domains import KeyView
from extender.rules.rule import RankedGroup
from extender.verbs.request import Ranked, Search

_SLICE = 64
_SPARE = 8  # names read beyond what is wanted, as some will not pass
_SMALL = 8  # nodes in a domain on average; in larger domains the first names tried are good already


def applies(groups: Sequence[RankedGroup]) -> bool:
    """Whether every part adds points, over one and the same key, whose domains are small."""
    key = groups[0].group.key
    if len(key.nodes_in) * _SMALL < key.filled + key.lacking:
        return False
    return all(part.weight > 0 and part.group.key is key for part in groups)


def best_by_top_domains(groups: Sequence[RankedGroup], search: Search, most: int, start: int) -> Ranked:
    """Up to ``most`` passing positions with their ranks, best first. O(names to a set + domains tried)."""
    preferred: AbstractSet[int] = frozenset()
    if _are_few(groups, search):
        preferred = _preferred(groups)
        found = _from_all(groups, preferred, search, start)
    else:
        found = _from_tiers(groups, search, most, start)
    found.sort(key=itemgetter(0), reverse=True)
    if len(found) < most:  # then all domains with preferred pods have been tried
        key, preferred = groups[0].group.key, preferred or _preferred(groups)
        found.extend(_untouched(preferred, key, search, most - len(found), start))
    return found[:most]


def equals_by_top_domains(groups: Sequence[RankedGroup], search: Search, enough: int, start: int) -> list[int]:
    """The passing positions of the best rank, all or at least ``enough``. O(names to a set + domains tried)."""
    if _are_few(groups, search):
        found = _from_all(groups, _preferred(groups), search, start)
    else:
        found = _from_tiers(groups, search, enough, start, only_equals=True)
    if not found:
        found = list(_untouched(_preferred(groups), groups[0].group.key, search, enough, start))
    best = max([rank for rank, _ in found], default=0.0)
    return [node for rank, node in found if rank == best]


def _are_few(groups: Sequence[RankedGroup], search: Search) -> bool:
    """Whether no more domains than names have preferred pods: then all of them are tried."""
    return sum(len(part.group.counts) for part in groups) <= len(search.requested)


def _preferred(groups: Sequence[RankedGroup]) -> set[int]:
    """The domains in which any group counts a pod."""
    return set[int]().union(*(part.group.counts for part in groups))


def _from_all(groups: Sequence[RankedGroup], preferred: AbstractSet[int], search: Search, start: int) -> Ranked:
    """The requested and passing nodes of all these domains."""
    requested = search.requested
    nodes_in, name_of = groups[0].group.key.nodes_in, requested.known_names
    here = {name_of[node]: node for domain in preferred for node in nodes_in[domain]}
    nodes = list(map(here.__getitem__, here.keys() & requested.names))
    first = start % max(len(nodes), 1)
    return list(_ranked(groups, search.passing(nodes[first:] + nodes[:first])))


def _from_tiers(
    groups: Sequence[RankedGroup], search: Search, most: int, start: int, *, only_equals: bool = False
) -> Ranked:
    """Those of the domains with most pods, until ``most`` are found that nothing unseen can beat.

    ``only_equals``: nodes below the best rank are not wanted, so the end is also where nothing unseen can equal the best.
    """
    names = set(search.requested.names)
    found: Ranked = []
    seen: set[int] = set()
    for threshold, domains in _tiers(groups, start):
        fresh = [domain for domain in domains if domain not in seen]
        seen.update(fresh)
        found.extend(_passing(groups, search, names, fresh))
        if sum(rank >= threshold for rank, _ in found) >= most:
            break
        if only_equals and any(rank > threshold for rank, _ in found):
            break
    return found


def _tiers(groups: Sequence[RankedGroup], start: int) -> Iterator[tuple[float, Sequence[int]]]:
    """Slices of domains, those with most pods first, each with the most that a domain not yet given can have."""
    levels = [sorted(part.group.levels, reverse=True) for part in groups]
    tops = [part.weight * counts[0] for part, counts in zip(groups, levels, strict=True)]
    at = [0] * len(groups)
    while any(tops):
        which = max(range(len(tops)), key=tops.__getitem__)
        part, counts = groups[which], levels[which]
        domains = list(part.group.levels[counts[at[which]]])
        first = start % len(domains)
        rotated = domains[first:] + domains[:first]
        for begin in range(0, len(rotated) - _SLICE, _SLICE):
            yield sum(tops), rotated[begin : begin + _SLICE]
        at[which] += 1
        tops[which] = part.weight * counts[at[which]] if at[which] < len(counts) else 0
        yield sum(tops), rotated[(len(rotated) - 1) // _SLICE * _SLICE :]


def _passing(
    groups: Sequence[RankedGroup], search: Search, names: set[str], domains: Sequence[int]
) -> Iterator[tuple[float, int]]:
    """The requested and passing nodes of these domains with their ranks."""
    nodes_in, name_of = groups[0].group.key.nodes_in, search.requested.known_names
    nodes = [node for domain in domains for node in nodes_in[domain]]
    return _ranked(groups, search.passing([node for node in nodes if name_of[node] in names]))


def _ranked(groups: Sequence[RankedGroup], nodes: Sequence[int]) -> Iterator[tuple[float, int]]:
    domain_of = groups[0].group.key.of_node
    parts = [(part.weight, part.group.counts.get) for part in groups]
    for node in nodes:
        domain = domain_of[node]
        yield float(sum([weight * count_of(domain, 0) for weight, count_of in parts])), node


def _untouched(
    preferred: AbstractSet[int], key: KeyView, search: Search, most: int, start: int
) -> Iterator[tuple[float, int]]:
    """Passing nodes whose domain no group counts: all of rank 0."""
    domain_of, left = key.of_node, most
    for piece in search.requested.pieces(start, most + _SPARE):
        untouched = [node for node in piece if domain_of[node] not in preferred]
        for node in search.passing(untouched)[:left]:
            left -= 1
            yield 0.0, node
        if left <= 0:
            return
