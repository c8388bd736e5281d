"""What nominated pods change in an answer: the request without the nodes that they keep, and the texts of a rejection."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from extender.index.view import ClusterView
from extender.model.rejections import Reason
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.verbs.filter.rejections import rejection_by_node
from extender.verbs.request import RequestedNodes
from extender.wire.extender_v1 import ExtenderArgs, FilterResult


def without_nodes(args: ExtenderArgs, names: AbstractSet[str]) -> ExtenderArgs:
    """The request for the other nodes. It has no body, so that no rejection is cached for it."""
    return replace(args, node_names=[name for name in args.node_names or () if name not in names], body=b"")


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
        result = rejection_by_node(filters, RequestedNodes(left, IndexFrame(), view))
    texts, reasons = dict(result.unresolvable), set(result.reasons)
    failed: dict[str, str] = {}
    if kept:
        texts |= dict.fromkeys(kept, Reason.NOMINATED.text)
        reasons.add(Reason.NOMINATED)
    if awaited and texts.pop(awaited, None) is not None:
        failed[awaited] = Reason.PREEMPTING.text
        reasons.add(Reason.PREEMPTING)
    return FilterResult((), failed, texts, reasons=frozenset(reasons))
