"""Nominating elsewhere: a node outside of the scheduler's sample that would take the pod.

At 5,000 nodes kube-scheduler asks about 500 of them; a pod that fits elsewhere only is refused and sits until unrelated
events turn the window (measured). A nomination makes the scheduler look at that node first, at once.
"""

from __future__ import annotations

from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.model.rejections import Reason
from extender.rules import catalog
from extender.rules.frames import IndexFrame, WorstCaseFrame
from extender.settings import Settings
from extender.verbs.search.ranking import Search, best_passing
from extender.verbs.search.requested_nodes import RequestedNodes

# How many nodes that pass our rules and have too little room are tried, best first, before giving up.
TRIED = 64


def find_node_elsewhere(pod: Pod, view: ClusterView, settings: Settings, seed: int) -> tuple[str, bool]:
    """The best node of the whole cluster that passes all that we can check, or "" where there is none.

    The second value tells whether any node passes *our* rules at all: where none does, only a change of the dependency
    version can help. A pod with needs that the index does not hold (volumes, host ports, devices) gets no node, as we
    cannot check them. O(nodes) at worst.
    """
    compiled = view.compiled(pod.signature)
    frame = WorstCaseFrame(IndexFrame(), view) if view.is_pending(compiled) else IndexFrame()
    filters = catalog.prepare_filters(pod, compiled, view, frame)
    if filters.rejects_every_node:
        return "", False
    names = list(view.known)
    requested = RequestedNodes(names, IndexFrame(), view)
    ranked = best_passing(Search(compiled, filters, requested, view, settings), len(names), seed % max(len(names), 1))
    if pod.has_unseen_needs:
        return "", bool(ranked)
    fit = catalog.NODE_FIT.prepare_filter(pod, compiled, view, IndexFrame())
    tried = 0
    for _, number in ranked:
        reason = fit.reason(number)
        if reason is None:
            return view.node_names[number], True
        tried += reason is Reason.NO_ROOM
        if tried >= TRIED:
            break
    return "", bool(ranked)
