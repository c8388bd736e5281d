"""The filter verb: which of the asked nodes the pod may stand on.

Answers are short on purpose, as the length of an answer costs the scheduler more than our decision does: at most a
shortlist of the passing nodes, and texts only when nothing passes.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from extender.index.view import ClusterView, Question
from extender.model.verdicts import Code, Reason
from extender.rules import catalog
from extender.rules.catalog import PreparedFilters
from extender.settings import Settings
from extender.verbs.asking import Asked, ask
from extender.verbs.scoring import points
from extender.wire.extender_v1 import ExtenderArgs, FilterResult

_SLICE = 4


def filter_nodes(args: ExtenderArgs, view: ClusterView, settings: Settings, seed: int) -> FilterResult:
    """Decides the asked nodes. ``seed`` turns where the search starts, so that equal nodes are chosen fairly.

    Nodes refused go under ``unresolvable`` even where taking pods away would help: the scheduler answers a plain
    refusal with preemption attempts that cannot see our rules, and with a hot loop of retries.
    """
    question = view.question(args.pod.shape)
    asked = ask(args, view)
    filters = catalog.prepare_filters(question, asked.frame)
    failure = filters.failure
    if failure is not None and failure.code is Code.ERROR:
        return FilterResult((), error=failure.reason)
    passed = _shortlist(question, filters, asked, view, settings, seed)
    if passed or not asked.names:
        return FilterResult(passed)
    return FilterResult((), unresolvable=_refusals(filters, asked, failure.reason if failure else ""))


def _refusals(filters: PreparedFilters, asked: Asked, failure: str) -> dict[str, str]:
    """The text for each node, when none passed."""
    if failure:
        return dict.fromkeys(asked.names, failure)
    texts = {}
    for name, position in zip(asked.names, asked.positions, strict=True):
        reason = Reason.UNKNOWN_NODE if position < 0 else filters.refusal(position)
        texts[name] = reason.text if reason else ""
    return texts


def _shortlist(
    question: Question, filters: PreparedFilters, asked: Asked, view: ClusterView, settings: Settings, seed: int
) -> Sequence[str]:
    """All names that pass, or the best ``settings.answers.shortlist`` of them."""
    most = settings.answers.shortlist
    known = asked.known()
    if not most or len(known) <= most:
        return _names(asked, filters.passing(known))
    turn = seed % len(known)
    turned = known[turn:] + known[:turn]
    if not _has_preferences(question):
        return _names(asked, _first_passing(filters, turned, most))
    passing = list(filters.passing(turned))
    if len(passing) > most:
        score_of = points(question, view, settings, asked.frame, passing).of
        passing = heapq.nlargest(most, passing, key=lambda node: score_of.get(node, 0))
    return _names(asked, passing)


def _has_preferences(question: Question) -> bool:
    return bool(question.preferences or question.inverse_preferences or question.inverse_required or question.soft)


def _first_passing(filters: PreparedFilters, nodes: list[int], most: int) -> Sequence[int]:
    """The first ``most`` nodes that pass, looking at no more nodes than that takes."""
    found: list[int] = []
    at, step = 0, most
    while at < len(nodes) and len(found) < most:
        found.extend(filters.passing(nodes[at : at + step]))
        at, step = at + step, step * _SLICE
    return found[:most]


def _names(asked: Asked, nodes: Sequence[int]) -> Sequence[str]:
    """The names of positions, in their order."""
    if len(nodes) == len(asked.names) and nodes == asked.positions:
        return asked.names
    name_of = asked.names_of()
    return [name_of[node] for node in nodes]
