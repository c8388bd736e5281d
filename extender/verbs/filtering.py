"""The filter verb: which of the asked nodes the pod may stand on.

Answers are short on purpose, as the length of an answer costs the scheduler more than our decision does: at most a
shortlist of the passing nodes, and texts only when nothing passes.
"""

from __future__ import annotations

from collections.abc import Sequence

from extender.index.view import ClusterView, Question
from extender.model.verdicts import Code, Reason
from extender.rules import catalog
from extender.rules.catalog import PreparedFilters
from extender.settings import Settings
from extender.verbs.asking import Asked, ask
from extender.verbs.ranking import best_passing
from extender.wire.extender_v1 import ExtenderArgs, FilterResult


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
    passed = _passed(question, filters, asked, view, settings, seed)
    if passed or not asked.names:
        return FilterResult(passed)
    return FilterResult((), unresolvable=_refusals(filters, asked, failure.reason if failure else ""))


def _passed(
    question: Question, filters: PreparedFilters, asked: Asked, view: ClusterView, settings: Settings, seed: int
) -> Sequence[str]:
    """All names that pass, in the request's order, or the best ``answers.shortlist`` of them."""
    most = settings.answers.shortlist
    if most and len(asked) > most:
        nodes = best_passing(question, filters, asked, view, settings, most=most, turn=seed % len(asked))
        return asked.names_at(nodes)
    nodes = asked.positions()
    if filters.passes_all and len(nodes) == len(asked):
        return asked.names
    return asked.names_at(filters.passing(nodes))


def _refusals(filters: PreparedFilters, asked: Asked, failure: str) -> dict[str, str]:
    """The text for each node, when none passed."""
    if failure:
        return dict.fromkeys(asked.names, failure)
    texts = {}
    for name in asked.names:
        position = asked.position(name)
        reason = Reason.UNKNOWN_NODE if position is None else filters.refusal(position)
        texts[name] = reason.text if reason else ""
    return texts
