"""The filter verb: which of the asked nodes the pod may stand on.

Answers are short on purpose, as the length of an answer costs the scheduler more than our decision does: at most a
shortlist of the passing nodes, and texts only when nothing passes.
"""

from __future__ import annotations

from collections.abc import Sequence

from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.model.rejections import Code, Reason
from extender.rules import catalog
from extender.rules.catalog import PreparedFilters
from extender.rules.frames import WorstCaseFrame
from extender.settings import Settings
from extender.verbs.ranking import Search, best_passing
from extender.verbs.requested_nodes import RequestedNodes, ask
from extender.verbs.select_host import answers_one, select_host
from extender.wire.extender_v1 import ExtenderArgs, FilterResult


def filter_nodes(args: ExtenderArgs, view: ClusterView, settings: Settings, seed: int, avoid: str = "") -> FilterResult:
    """Decides the asked nodes. ``seed`` turns where the search starts, so that equal nodes are chosen fairly.

    ``avoid`` is a node that the pod was sent to without arriving (decisive placement only). Where the answer hangs on
    a pod whose node is not known yet, that pod is taken to stand wherever it is worst.

    Nodes refused go under ``unresolvable`` even where taking pods away would help: the scheduler answers a plain
    refusal with preemption attempts that cannot see our rules, and with a hot loop of retries.
    """
    compiled = view.compiled(args.pod.signature)
    asked = ask(args, view)
    frame = WorstCaseFrame(asked.frame, view) if view.is_pending(compiled) else asked.frame
    filters = catalog.prepare_filters(compiled, frame)
    failure = filters.failure
    if failure is not None and failure.code is Code.ERROR:
        return FilterResult((), error=failure.reason)
    if not filters.rejects_every_node:
        passed = _passed(Search(compiled, filters, asked, view, settings), args.pod, seed, avoid)
        if passed or not asked.names:
            return FilterResult(passed)
    everywhere = failure.reason if failure else filters.rejects_all.text if filters.rejects_all else ""
    if everywhere and (failure or asked.knows_all):
        return FilterResult((), unresolvable=dict.fromkeys(asked.names, everywhere), told=frozenset((everywhere,)))
    return FilterResult((), unresolvable=_rejections(filters, asked))


def _passed(search: Search, pod: Pod, seed: int, avoid: str) -> Sequence[str]:
    """One name where the place must be known at once, else the best ``answers.shortlist`` names or all that pass."""
    asked, settings = search.asked, search.settings
    most = settings.answers.shortlist
    if len(asked) > 1 and answers_one(search.compiled, search.view, settings):
        return asked.names_at(select_host(search, pod, seed % len(asked), avoid))
    if most and len(asked) > most:
        return asked.names_at([node for _, node in best_passing(search, most, seed % len(asked))])
    nodes = asked.positions()
    if search.filters.passes_all and len(nodes) == len(asked):
        return asked.names
    return asked.names_at(search.filters.passing(nodes))


def _rejections(filters: PreparedFilters, asked: RequestedNodes) -> dict[str, str]:
    """The text for each node, when none passed."""
    texts: dict[str, str] = {}
    nodes = asked.positions()
    for reason, rejected in filters.rejected(nodes):
        texts |= dict.fromkeys(asked.names_at(rejected), reason.text)
    if len(nodes) < len(asked):
        known = set(asked.names_at(nodes))
        texts |= {name: Reason.UNKNOWN_NODE.text for name in asked.names if name not in known}
    return texts
