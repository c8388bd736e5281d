"""The answer where no node passes: a text for each requested node, and on which of them preemption may help.

Rejected nodes go under ``unresolvable`` even where removing pods would help: kube-scheduler answers a plain rejection
with preemption attempts that cannot see our rules, and retries them in a hot loop (measured).
"""

from __future__ import annotations

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
    failed, certain = filters.failed, filters.rejects_all
    if failed is not None and failed.status.code is Code.ERROR:
        return FilterResult((), error=failed.status.reason)
    if certain is not None and (failed is not None or requested.knows_all):
        texts = dict.fromkeys(requested.names, certain.text)
        return FilterResult((), unresolvable=texts, reasons=frozenset((certain.reason,)))
    return _by_node(filters, requested)


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
    if not result.unresolvable:  # a cached rejection holds its encoded form only
        filters = catalog.prepare_filters(args.pod, view.compiled(args.pod.signature), view, IndexFrame())
        left = [name for name in names if name not in kept]
        result = _by_node(filters, RequestedNodes(left, IndexFrame(), view))
    texts, reasons = dict(result.unresolvable), set(result.reasons)
    failed: dict[str, str] = {}
    if kept:
        texts |= dict.fromkeys(kept, Reason.NOMINATED.text)
        reasons.add(Reason.NOMINATED)
    if awaited and texts.pop(awaited, None) is not None:
        failed[awaited] = Reason.PREEMPTING.text
        reasons.add(Reason.PREEMPTING)
    return FilterResult((), failed, texts, reasons=frozenset(reasons))


def _by_node(filters: PreparedFilters, requested: RequestedNodes) -> FilterResult:
    """The text for each node by its own reason."""
    texts: dict[str, str] = {}
    reasons: set[Reason] = set()
    nodes = requested.positions()
    for reason, rejected in filters.rejected(nodes):
        if rejected:
            texts |= dict.fromkeys(requested.names_at(rejected), reason.text)
            reasons.add(reason)
    if len(nodes) < len(requested):
        known = set(requested.names_at(nodes))
        texts |= {name: Reason.UNKNOWN_NODE.text for name in requested.names if name not in known}
        reasons.add(Reason.UNKNOWN_NODE)
    return FilterResult((), unresolvable=texts, reasons=frozenset(reasons))
