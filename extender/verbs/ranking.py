"""The best passing nodes under our own score, found without scoring them all.

A node's rank is a sum over groups of weight × pods in its domain. Groups know the range of their counts, so the best
rank that any node could have is known beforehand, and the search ends once enough nodes reach it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import repeat
from operator import itemgetter

from extender.index.nodes.columns import Column
from extender.index.nodes.domains import KeyView
from extender.rules import catalog
from extender.rules.meter import SCORE
from extender.rules.rule import RankedGroup
from extender.verbs.request import SPARE, WINDOW, Ranked, RequestSearch

_TOLERANCE = 1e-9
_NEVER = float("-inf")
_LONG = 200  # names from which on looking up all of them may cost more than starting from the fullest domains


@dataclass(frozen=True, slots=True)
class _Part:
    """One group's share of a rank over the requested nodes; ``count`` is the one of which a node gets the most, ``best``."""

    weight: float
    domains: Column
    counts: Mapping[int, int]
    count: int

    @property
    def best(self) -> float:
        """The most that any node can get."""
        return self.weight * self.count


def best_passing(search: RequestSearch, most: int, start: int) -> Ranked:
    """Up to ``most`` positions that pass, with their ranks, best first, starting from the name number ``start``.

    Without preferences all ranks are equal, and O(most) names are read. With those of one rule it ends as soon as ``most``
    nodes of the best possible rank are found. Only where several have, or one that counts no pods, are all nodes scored.
    """
    groups = _groups(search)
    if groups is None:
        return _scored(search, start)[:most]
    if not groups:
        return search.first_passing(most, start)
    if _begins_with_domains(groups, search):
        return best_by_top_domains(groups, search, most, start)
    return _ranked(search, *_parts(groups, search), most, start)


def best_equals(search: RequestSearch, enough: int, start: int) -> Sequence[int]:
    """The passing positions that share the best rank: all of them, or at least ``enough`` where there are more.

    Names are read in windows, until enough are found that no other can beat. A node has the best rank that there can be
    where each part is at its best, which is a look-up.
    """
    groups = _groups(search)
    if groups is None:
        return _equals(_scored(search, start))
    if not groups:
        return search.enough_passing(enough, start)
    if _begins_with_domains(groups, search):
        return equals_by_top_domains(groups, search, enough, start)
    parts, required = _parts(groups, search)
    equals: list[int] = []
    passing: list[int] = []
    for window in search.requested.pieces(start, WINDOW, 1):
        here = search.passing(window)
        passing += here
        equals += _at_best(here, parts, required)
        if len(equals) >= enough:
            break
    return equals or _equals(list(zip(_ranks(passing, parts, required), passing, strict=True)))


def _groups(search: RequestSearch) -> Sequence[RankedGroup] | None:
    """The groups that order the nodes, none where there are no preferences; None where each node is to be scored."""
    scoring = catalog.scoring_rules(search.compiled, search.settings.rules)
    meter = search.meter
    if scoring and meter is not None:
        for rule in scoring:
            meter.scored[rule.name] += 1
        # Timed until the caller has the nodes; several rules are timed one by one.
        if len(scoring) == 1 and meter.watch is not None:
            meter.watch.switch((scoring[0].name, SCORE))
    if len(scoring) > 1:
        return None
    most, rules = len(search.requested), search.settings.rules
    return scoring[0].ranked_groups(search.compiled, search.view, most, rules) if scoring else ()


def _begins_with_domains(groups: Sequence[RankedGroup], search: RequestSearch) -> bool:
    requested = search.requested
    return requested.view is not None and len(requested) >= _LONG and has_small_domains(groups)


def _parts(groups: Sequence[RankedGroup], search: RequestSearch) -> tuple[list[_Part], list[Column]]:
    """The parts of a rank, and the domains of the keys without which a node comes last."""
    required = [group.required for group in groups if group.required is not None and _some_lack(group.required, search)]
    return [_part(group, search) for group in groups], [search.requested.frame.domains(key) for key in required]


def _at_best(nodes: Sequence[int], parts: Sequence[_Part], required: Sequence[Column]) -> Sequence[int]:
    """Those of the nodes that get the most from every part. O(nodes × parts), and less where the first leaves few."""
    for part in parts:
        domains, counts, count = part.domains, part.counts, part.count
        if count:
            nodes = [node for node in nodes if counts.get(domains[node], 0) == count]
        else:
            nodes = [node for node in nodes if domains[node] not in counts]
    for column in required:
        nodes = [node for node in nodes if column[node]]
    return nodes


def _equals(ranked: Ranked) -> list[int]:
    best = max([rank for rank, _ in ranked], default=_NEVER)
    return [node for rank, node in ranked if rank == best]


def _part(ranked: RankedGroup, search: RequestSearch) -> _Part:
    weight, group = ranked.weight, ranked.group
    extreme = group.greatest if weight > 0 else group.smallest
    # The best node of a negative weight may be one that lacks the key: no pod is counted on it.
    is_zero = weight < 0 and ranked.required is None and _some_lack(group.key, search)
    return _Part(weight, search.requested.frame.domains(group.key), group.counts, 0 if is_zero else extreme())


def _some_lack(key: KeyView, search: RequestSearch) -> bool:
    """Whether a requested node may lack the key; always true for nodes that the request brings along."""
    return search.requested.view is None or key.lacking > 0


def _ranked(search: RequestSearch, parts: list[_Part], required: list[Column], most: int, start: int) -> Ranked:
    """The best by rank; ends early when enough nodes reach the best rank that there can be."""
    target = sum(part.best for part in parts) - _TOLERANCE
    best: list[int] = []
    tried: list[tuple[Sequence[int], list[float]]] = []
    for piece in search.requested.pieces(start, most + most // SPARE):
        passing = search.passing(piece)
        ranks = _ranks(passing, parts, required)
        if max(ranks, default=_NEVER) >= target:
            best.extend([node for node, rank in zip(passing, ranks, strict=True) if rank >= target])
        if len(best) >= most:
            return [(target, node) for node in best[:most]]
        tried.append((passing, ranks))
    every = [item for passing, ranks in tried for item in zip(ranks, passing, strict=True)]
    return nlargest(most, every, key=itemgetter(0))  # equals keep the order of the search


def _ranks(nodes: Sequence[int], parts: list[_Part], required: list[Column]) -> list[float]:
    """The rank of each node; a node without a key that scoring needs comes last. O(nodes × parts)."""
    ranks: list[float] = []
    columns: dict[int, list[int]] = {}  # parts mostly share a key
    for part in parts:
        domains = columns.get(id(part.domains))
        if domains is None:
            domains = columns[id(part.domains)] = list(map(part.domains.__getitem__, nodes))
        weight, counts = part.weight, map(part.counts.get, domains, repeat(0))
        if ranks:
            ranks = [rank + weight * count for rank, count in zip(ranks, counts, strict=True)]
        else:
            ranks = [weight * count for count in counts]
    for column in required:
        ranks = [rank if column[node] else _NEVER for rank, node in zip(ranks, nodes, strict=True)]
    return ranks


def _scored(search: RequestSearch, start: int) -> Ranked:
    """Scores every passing node as prioritize would: the points of several rules add up only once they are normalised."""
    passing = search.all_passing(start)
    score_of = catalog.points(
        search.compiled, search.view, search.requested.frame, passing, search.settings.rules, search.watch
    ).of
    return sorted([(float(score_of[node]), node) for node in passing], key=itemgetter(0), reverse=True)


# -- the best from the domains with most pods -------------------------------------------------------------------------

# For preferences that only add points and count over one key. With 5,000 names and a few hundred preferred pods, ranking
# every name costs 2 ms. Where few domains have such pods, all their nodes are ranked. Where many do, each group keeps its
# domains by count, and the first few suffice (the threshold algorithm of Fagin, Lotem and Naor: stop when nothing unseen
# can beat what has been found).

_SLICE = 64
_MORE = 8  # names read beyond what is wanted, as some will not pass
_FEW_NODES = 8  # nodes in a domain on average; in larger domains the first names tried are good already


def has_small_domains(groups: Sequence[RankedGroup]) -> bool:
    """Whether every part adds points, over one and the same key, whose domains are small."""
    key = groups[0].group.key
    if len(key.nodes_in) * _FEW_NODES < key.filled + key.lacking:
        return False
    return all(part.weight > 0 and part.group.key is key for part in groups)


def best_by_top_domains(groups: Sequence[RankedGroup], search: RequestSearch, most: int, start: int) -> Ranked:
    """Up to ``most`` passing positions with their ranks, best first. O(names to a set + domains tried)."""
    ranked = _from_top_domains(groups, search, most, start)
    ranked.sort(key=itemgetter(0), reverse=True)
    if len(ranked) < most:  # then all domains with preferred pods have been tried
        ranked.extend(_untouched(groups, search, most - len(ranked), start))
    return ranked[:most]


def equals_by_top_domains(groups: Sequence[RankedGroup], search: RequestSearch, enough: int, start: int) -> list[int]:
    """The passing positions of the best rank, all or at least ``enough``. O(names to a set + domains tried)."""
    ranked = _from_top_domains(groups, search, enough, start, only_equals=True)
    return _equals(ranked or list(_untouched(groups, search, enough, start)))


def _from_top_domains(
    groups: Sequence[RankedGroup], search: RequestSearch, most: int, start: int, *, only_equals: bool = False
) -> Ranked:
    """Passing nodes of domains with preferred pods: all of them, or until ``most`` are found that nothing unseen can beat.

    ``only_equals``: nodes below the best rank are not wanted, so the end is also where nothing unseen can equal the best.
    """
    nodes_in, requested = groups[0].group.key.nodes_in, search.requested
    name_of = requested.known_names
    if sum(len(part.group.counts) for part in groups) <= len(requested):
        here = {name_of[node]: node for domain in _preferred(groups) for node in nodes_in[domain]}
        nodes = list(map(here.__getitem__, here.keys() & requested.names))
        first = start % max(len(nodes), 1)
        return list(_with_ranks(groups, search.passing(nodes[first:] + nodes[:first])))
    names = set(requested.names)
    ranked: Ranked = []
    seen: set[int] = set()
    for threshold, domains in _tiers(groups, start):
        fresh = [domain for domain in domains if domain not in seen]
        seen.update(fresh)
        nodes = [node for domain in fresh for node in nodes_in[domain] if name_of[node] in names]
        ranked.extend(_with_ranks(groups, search.passing(nodes)))
        if sum(rank >= threshold for rank, _ in ranked) >= most:
            break
        if only_equals and any(rank > threshold for rank, _ in ranked):
            break
    return ranked


def _preferred(groups: Sequence[RankedGroup]) -> set[int]:
    return set[int]().union(*(part.group.counts for part in groups))


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


def _with_ranks(groups: Sequence[RankedGroup], nodes: Sequence[int]) -> Iterator[tuple[float, int]]:
    domain_of = groups[0].group.key.of_node
    parts = [(part.weight, part.group.counts.get) for part in groups]
    for node in nodes:
        domain = domain_of[node]
        yield float(sum([weight * count_of(domain, 0) for weight, count_of in parts])), node


def _untouched(
    groups: Sequence[RankedGroup], search: RequestSearch, most: int, start: int
) -> Iterator[tuple[float, int]]:
    """Passing nodes whose domain no group counts: all of rank 0."""
    preferred, domain_of, left = _preferred(groups), groups[0].group.key.of_node, most
    for piece in search.requested.pieces(start, most + _MORE):
        untouched = [node for node in piece if domain_of[node] not in preferred]
        for node in search.passing(untouched)[:left]:
            left -= 1
            yield 0.0, node
        if left <= 0:
            return
