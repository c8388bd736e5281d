"""The answer where no node passes: a text for each requested node, and on which of them preemption may help.

Rejected nodes go under ``unresolvable`` even where removing pods would help: kube-scheduler answers a plain rejection
with preemption attempts that cannot see our rules, and retries them in a hot loop (measured).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from extender.index.view import ClusterView
from extender.model.rejections import Code, Reason
from extender.rules import catalog
from extender.rules.catalog import PreparedFilters
from extender.rules.frames import IndexFrame
from extender.verbs.search.ranking import Search
from extender.verbs.search.requested_nodes import RequestedNodes
from extender.wire.extender_v1 import ExtenderArgs, FilterResult


def rejection(search: Search) -> FilterResult:
    """Why none of the requested nodes passes, or the error that the rules report. O(nodes × clauses)."""
    filters, requested = search.filters, search.requested
    failure = filters.failure
    if failure is not None and failure.code is Code.ERROR:
        return FilterResult((), error=failure.reason)
    everywhere = failure.reason if failure else filters.rejects_all.text if filters.rejects_all else ""
    if everywhere and (failure or requested.knows_all):
        texts = dict.fromkeys(requested.names, everywhere)
        return FilterResult((), unresolvable=texts, told=frozenset((everywhere,)))
    return FilterResult((), unresolvable=_texts(filters, requested))


def rejection_with_nominations(
    result: FilterResult, args: ExtenderArgs, kept: AbstractSet[str], awaited: str, view: ClusterView
) -> FilterResult:
    """The rejection with its own texts for nodes ``kept`` for nominated pods and for the ``awaited`` node of a plan.

    While a plan runs, the awaited node alone goes under ``failed``, all others stay unresolvable. Anything else makes
    kube-scheduler clear the nomination, or try preemption over and over (measured). O(nodes × clauses).
    """
    names = args.node_names or []
    if not kept and awaited not in names:
        return result
    texts = dict(result.unresolvable)
    if not texts:  # a cached rejection holds its encoded form only
        filters = catalog.prepare_filters(view.compiled(args.pod.signature), view, IndexFrame())
        texts.update(_texts(filters, RequestedNodes(names, IndexFrame(), view)))
    texts |= dict.fromkeys(kept, Reason.NOMINATED.text)
    failed = {awaited: Reason.PREEMPTING.text} if awaited and texts.pop(awaited, None) is not None else {}
    return FilterResult((), failed, texts)


def _texts(filters: PreparedFilters, requested: RequestedNodes) -> Mapping[str, str]:
    """The text for each node."""
    texts: dict[str, str] = {}
    nodes = requested.positions()
    for reason, rejected in filters.rejected(nodes):
        texts |= dict.fromkeys(requested.names_at(rejected), reason.text)
    if len(nodes) < len(requested):
        known = set(requested.names_at(nodes))
        texts |= {name: Reason.UNKNOWN_NODE.text for name in requested.names if name not in known}
    return texts
