"""Which of many passing nodes are worth answering: the best under our own score, found without scoring them all.

A node's rank is a sum over groups of weight × pods in its domain. Groups know the range of their counts, so the best
rank that any node could have is known beforehand, and the search ends once enough nodes reach it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from extender.index.view import ClusterView, Column, CompiledConstraints, GroupView, KeyView
from extender.model.labels import HOSTNAME
from extender.model.spread import topology_weight
from extender.rules import catalog
from extender.rules.catalog import PreparedFilters
from extender.rules.interpod_affinity import weighted_groups
from extender.settings import Settings
from extender.verbs.search import top_domains
from extender.verbs.search.requested_nodes import RequestedNodes
from extender.verbs.search.scoring import points

_TOLERANCE = 1e-9
_NEVER = float("-inf")
_LONG = 100  # names from which on looking up all of them costs more than starting from the fullest domains
_SPARE = 4  # a first piece a quarter larger than what is wanted mostly saves a second one

Ranked = list[tuple[float, int]]


@dataclass(frozen=True, slots=True)
class Search:
    """One question ready to be searched: the requested nodes, the constraints, and the filters that a node must pass."""

    compiled: CompiledConstraints
    filters: PreparedFilters
    requested: RequestedNodes
    view: ClusterView
    settings: Settings


@dataclass(frozen=True, slots=True)
class _Part:
    """One group's share of a rank; ``best`` is the most that any node can get from it."""

    weight: float
    domains: Column
    counts: Mapping[int, int]
    best: float


def best_passing(search: Search, most: int, turn: int) -> Ranked:
    """Up to ``most`` positions that pass, with their ranks, best first, starting from the name number ``turn``.

    Without preferences O(most) names are looked at; with one rule's preferences it ends as soon as ``most`` nodes of
    the best possible rank are found. Only where several rules have preferences, or one that counts no pods, are all
    passing nodes scored.
    """
    compiled, requested = search.compiled, search.requested
    scoring = catalog.scoring_rules(compiled, search.settings.rules)
    if not scoring:
        return _unranked(search, most, turn)
    if len(scoring) > 1 or not scoring[0].ranks_by_counts:
        return _scored(search, most, turn)
    groups = weighted_groups(compiled, search.settings.rules.inter_pod_affinity.hard_pod_affinity_weight)
    if groups and requested.view is not None and len(requested) >= _LONG and top_domains.applies(groups):
        return top_domains.best_by_top_domains(groups, search.filters, requested, most, turn)
    parts = [_part(part.weight, part.group, search) for part in groups]
    required: list[Column] = []
    if compiled.soft and not compiled.soft_error:
        parts, required = _spread_parts(search)
    return _ranked(search, parts, required, most, turn) if parts else _unranked(search, most, turn)


def _part(weight: float, group: GroupView, search: Search, *, without_key: bool = True) -> _Part:
    """``without_key``: nodes that lack the key are ranked too, with no pod counted on them."""
    extreme = group.greatest if weight > 0 else group.smallest
    is_zero = weight < 0 and without_key and _some_lack(group.key, search)
    return _Part(weight, search.requested.frame.domains(group.key), group.counts, 0 if is_zero else weight * extreme())


def _some_lack(key: KeyView, search: Search) -> bool:
    """Whether a requested node may lack the key; always true for nodes that the request brings along."""
    return search.requested.view is None or key.lacking > 0


def _spread_parts(search: Search) -> tuple[list[_Part], list[Column]]:
    """Fewer pods rank higher. The weights are by the domains of the cluster, as the passing nodes are not known yet."""
    compiled, requested = search.compiled, search.requested
    parts, required = [], []
    for ask in compiled.soft:
        key = search.view.key(ask.constraint.topology_key)
        size = len(requested) if ask.constraint.topology_key == HOSTNAME else len(key.nodes_in)
        parts.append(_part(-topology_weight(size), ask.group, search, without_key=not compiled.soft_needs_all_keys))
        if compiled.soft_needs_all_keys and _some_lack(key, search):
            required.append(requested.frame.domains(key))
    return parts, required


def _unranked(search: Search, most: int, turn: int) -> Ranked:
    """The first that pass: all are equal."""
    found: list[int] = []
    for piece in search.requested.pieces(turn, most + most // _SPARE):
        found.extend(search.filters.passing(piece))
        if len(found) >= most:
            break
    return [(0.0, node) for node in found[:most]]


def _ranked(search: Search, parts: list[_Part], required: list[Column], most: int, turn: int) -> Ranked:
    """The best by rank; ends early when enough nodes reach the best rank that there can be."""
    target = sum(part.best for part in parts) - _TOLERANCE
    best: list[int] = []
    looked_at: list[tuple[Sequence[int], list[float]]] = []
    for piece in search.requested.pieces(turn, most + most // _SPARE):
        passing = search.filters.passing(piece)
        ranks = _ranks(passing, parts, required)
        best.extend([node for node, rank in zip(passing, ranks, strict=True) if rank >= target])
        if len(best) >= most:
            return [(target, node) for node in best[:most]]
        looked_at.append((passing, ranks))
    every = [item for passing, ranks in looked_at for item in zip(ranks, passing, strict=True)]
    every.sort(key=itemgetter(0), reverse=True)  # stable, so that equals keep the order of the turn
    return every[:most]


def _ranks(nodes: Sequence[int], parts: list[_Part], required: list[Column]) -> list[float]:
    """The rank of each node; a node without a key that scoring needs comes last. O(nodes × parts)."""
    part, *rest = parts
    weight, domains, count_of = part.weight, part.domains, part.counts.get
    ranks = [weight * count_of(domains[node], 0) for node in nodes]
    for part in rest:
        weight, domains, count_of = part.weight, part.domains, part.counts.get
        ranks = [rank + weight * count_of(domains[node], 0) for rank, node in zip(ranks, nodes, strict=True)]
    for column in required:
        ranks = [rank if column[node] else _NEVER for rank, node in zip(ranks, nodes, strict=True)]
    return ranks


def _scored(search: Search, most: int, turn: int) -> Ranked:
    """Scores every passing node as prioritize would: the two rules' points add up only once they are normalised."""
    requested = search.requested
    passing = [node for piece in requested.pieces(turn, len(requested)) for node in search.filters.passing(piece)]
    score_of = points(search.compiled, search.view, search.settings, requested.frame, passing).of
    ranked = [(float(score_of[node]), node) for node in passing]
    ranked.sort(key=itemgetter(0), reverse=True)
    return ranked[:most]
