"""Which of many passing nodes are worth answering: the best under our own score, found without scoring them all.

A node's rank is a sum over groups of weight × pods in its domain. Groups know the range of their counts, so the best
rank that any node could have is known beforehand, and the search ends once enough nodes reach it.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from extender.index.view import ClusterView, GroupView, Question
from extender.model.labels import HOSTNAME
from extender.model.spread import topology_weight
from extender.rules.catalog import PreparedFilters
from extender.rules.frames import Frame
from extender.rules.interpod_affinity import weighted_groups
from extender.settings import Settings
from extender.verbs.asking import Asked
from extender.verbs.scoring import points

_TOLERANCE = 1e-9
_NEVER = float("-inf")
_SPARE = 4  # a first piece a quarter larger than what is wanted mostly saves a second one


@dataclass(frozen=True, slots=True)
class _Part:
    """One group's share of a rank."""

    weight: float
    domains: Sequence[int]
    counts: Mapping[int, int]
    best: float


def best_passing(
    question: Question,
    filters: PreparedFilters,
    asked: Asked,
    view: ClusterView,
    settings: Settings,
    *,
    most: int,
    turn: int,
) -> list[int]:
    """Up to ``most`` positions that pass, the best ranked first found, starting from name number ``turn``.

    Without preferences O(most) names are looked at; with one rule's preferences it ends as soon as ``most`` nodes of
    the best possible rank are found. Only where both rules have preferences all passing nodes are scored.
    """
    hard_weight = settings.rules.inter_pod_affinity.hard_pod_affinity_weight
    groups = weighted_groups(question, hard_weight)
    if groups and question.soft:
        return _best_scored(question, filters, asked, view, settings, most=most, turn=turn)
    parts = [_affinity_part(part.weight, part.group, asked.frame) for part in groups]
    required: list[Sequence[int]] = []
    if question.soft and not question.soft_error:
        parts, required = _spread_parts(question, view, asked)
    return _search(filters, asked, parts, required, most=most, turn=turn)


def _affinity_part(weight: float, group: GroupView, frame: Frame) -> _Part:
    best = weight * (group.greatest() if weight > 0 else group.smallest())
    return _Part(weight, frame.domains(group.key), group.counts, best)


def _spread_parts(question: Question, view: ClusterView, asked: Asked) -> tuple[list[_Part], list[Sequence[int]]]:
    """Fewer pods rank higher. The weights are by the domains of the cluster, as the passing nodes are not known yet."""
    parts, required = [], []
    for ask in question.soft:
        key = view.key(ask.constraint.topology_key)
        size = len(asked) if ask.constraint.topology_key == HOSTNAME else len(key.nodes_in)
        parts.append(_affinity_part(-topology_weight(size), ask.group, asked.frame))
        if question.soft_needs_all_keys and (asked.view is None or key.labelled < len(view.known)):
            required.append(asked.frame.domains(key))
    return parts, required


def _search(
    filters: PreparedFilters, asked: Asked, parts: list[_Part], required: list[Sequence[int]], *, most: int, turn: int
) -> list[int]:
    target = sum(part.best for part in parts) - _TOLERANCE
    best: list[int] = []
    ranked: list[tuple[float, int]] = []
    for piece in asked.pieces(turn, most + most // _SPARE):
        passing = filters.passing(piece)
        if not parts:
            best.extend(passing)
        else:
            ranks = _ranks(passing, parts, required)
            ranked.extend(zip(ranks, passing, strict=True))
            best.extend([node for rank, node in zip(ranks, passing, strict=True) if rank >= target])
        if len(best) >= most:
            return best[:most]
    others = [item for item in ranked if item[0] < target]
    if len(best) + len(others) > most:
        others.sort(key=itemgetter(0), reverse=True)
    return best + [node for _, node in others[: most - len(best)]]


def _ranks(nodes: Sequence[int], parts: list[_Part], required: list[Sequence[int]]) -> list[float]:
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


def _best_scored(
    question: Question,
    filters: PreparedFilters,
    asked: Asked,
    view: ClusterView,
    settings: Settings,
    *,
    most: int,
    turn: int,
) -> list[int]:
    """Scores every passing node as prioritize would: the two rules' points add up only once they are normalised."""
    passing = [node for piece in asked.pieces(turn, len(asked)) for node in filters.passing(piece)]
    if len(passing) <= most:
        return passing
    score_of = points(question, view, settings, asked.frame, passing).of
    return heapq.nlargest(most, passing, key=score_of.__getitem__)
