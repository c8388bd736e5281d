"""The best passing nodes under our own score, found without scoring them all.

A node's rank is a sum over count groups: weight × number of pods in the node's domain. Each group knows the range of its counts,
so the best possible rank is known beforehand. The search ends once enough nodes reach it.
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
_LONG = 200  # with more names it may be cheaper to start from the fullest domains than to look up every name


@dataclass(frozen=True, slots=True)
class _Part:
    """One count group's part of a rank. A node with ``count`` pods in its domain gets the most from it: ``best``."""

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

    - No rule has scores: all ranks are equal, and O(most) names are read.
    - One rule has scores: the search ends as soon as ``most`` nodes of the best possible rank are found.
    - Several rules have scores, or a rule whose scores count no pods: every passing node is scored.
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
    """The passing positions that share the best rank: all of them, or at least ``enough``.

    Names are read in windows until enough nodes with the best possible rank are found. A node has that rank if each part is at its
    best there, which is a look-up.
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
    """The count groups that order the nodes. Empty without preferences, None where each node has to be scored."""
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
    """The parts of a rank; and the domain columns of required keys, because a node without such a key comes last."""
    required = [group.required for group in groups if group.required is not None and _some_lack(group.required, search)]
    return [_part(group, search) for group in groups], [search.requested.frame.domains(key) for key in required]


def _at_best(nodes: Sequence[int], parts: Sequence[_Part], required: Sequence[Column]) -> Sequence[int]:
    """The nodes that get the most from every part. O(nodes × parts), less where the first parts leave few nodes."""
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
    # With a negative weight the best node may be a node without the key: no pod is counted there.
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
    """Scores every passing node as prioritize does. Needed for several rules, because their points must be normalised to add up."""
    passing = search.all_passing(start)
    score_of = catalog.points(
        search.compiled, search.view, search.requested.frame, passing, search.settings.rules, search.watch
    ).of
    return sorted([(float(score_of[node]), node) for node in passing], key=itemgetter(0), reverse=True)


# -- the best from the domains with most pods -------------------------------------------------------------------------

# For preferences that only add points and count over one key. Ranking every name costs 2 ms with 5,000 names and a few hundred
# preferred pods.
#
# 1. Few domains have preferred pods: all nodes of these domains are ranked.
# 2. Many domains have them: each count group keeps its domains by count, and the fullest few suffice. This is the threshold
#    algorithm of Fagin, Lotem and Naor: stop when no domain that was not looked at yet can beat the nodes found so far.

_SLICE = 64
_MORE = 8  # names to read beyond the wanted number, because some nodes will not pass
_FEW_NODES = 8  # nodes in a domain on average. In larger domains the first names that are tried are good already


def has_small_domains(groups: Sequence[RankedGroup]) -> bool:
    """Whether every part adds points over the same key, and the domains of that key are small."""
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
    """Passing nodes of domains with preferred pods: all, or until ``most`` are found that no unseen domain can beat.

    ``only_equals``: only nodes of the best rank are wanted. Then it also ends where no unseen domain can equal the best rank.
    """
    nodes_in, requested = groups[0].group.key.nodes_in, search.requested
    name_of = requested.known_names
    if sum(len(part.group.counts) for part in groups) <= len(requested):
        here = {name_of[node]: node for domain in _preferred(groups) for node in nodes_in[domain]}
        nodes = list(map(here.__getitem__, here.keys() & requested.names))
        first = start % max(len(nodes), 1)
        return list(_with_ranks(groups, search.passing(nodes[first:] + nodes[:first])))
    # Domains by tiers. `threshold`: the best rank that a domain after this tier can have. Enough nodes at or above it end the search.
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
    """Slices of domains, the fullest first. With each slice: the highest rank that a domain after it can have."""
    # For each part its counts in descending order, with a position in them. The next tier is taken from the part that can still add
    # most; the sum of all parts' next values limits the rank of every domain that was not given yet.
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
    preferred, domain_of, wanted = _preferred(groups), groups[0].group.key.of_node, most
    for piece in search.requested.pieces(start, most + _MORE):
        untouched = [node for node in piece if domain_of[node] not in preferred]
        for node in search.passing(untouched)[:wanted]:
            wanted -= 1
            yield 0.0, node
        if wanted <= 0:
            return
