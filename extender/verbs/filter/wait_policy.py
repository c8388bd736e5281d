"""Whether to wait for assumed pods before a question is decided.

Wait only for assumed pods that can change the result. The question is decided at once where as many nodes pass in the
worst case, and as good ones by our own score, as could pass in the best case, or where none could. The filter verb
decides by the worst case, so a node that passes is right wherever the assumed pods are bound. Called before the verb,
and again whenever an assumed pod has settled.
"""

from __future__ import annotations

from extender.index.view import ClusterView
from extender.rules import catalog
from extender.rules.frames import BestCaseFrame, Frame, WorstCaseFrame
from extender.settings import Settings
from extender.verbs.dry_run.candidates import may_plan
from extender.verbs.filter.select_host import answers_one
from extender.verbs.search.ranking import Search, best_passing
from extender.verbs.search.requested_nodes import RequestedNodes, requested_nodes
from extender.wire.extender_v1 import ExtenderArgs


def should_wait(args: ExtenderArgs, view: ClusterView, settings: Settings) -> bool:
    """Whether waiting may make the answer better. O(groups) without undetermined pods, else two searches.

    Where nominated pods may take nodes out of the answer, or a rejection would start a preemption, the question waits for
    every assumed pod that it may depend on: both depend on more than the names that pass.
    """
    compiled = view.compiled(args.pod.signature)
    if not view.is_pending(compiled):
        return False
    if view.nominated and settings.preemption.mode != "off":
        return True
    requested = requested_nodes(args, view)
    at_best = _ranks(args, requested, BestCaseFrame(requested.frame, view), view, settings)
    if not at_best:
        return may_plan(args.pod, view, settings)
    return _ranks(args, requested, WorstCaseFrame(requested.frame, view), view, settings) != at_best


def _ranks(
    args: ExtenderArgs, requested: RequestedNodes, frame: Frame, view: ClusterView, settings: Settings
) -> list[float]:
    """How the nodes of the answer rank under our own score, best first. One that is chosen is chosen among all."""
    compiled = view.compiled(args.pod.signature)
    most = len(requested)
    if settings.answers.shortlist and not answers_one(compiled, view, settings):
        most = min(most, settings.answers.shortlist)
    filters = catalog.prepare_filters(args.pod, compiled, view, frame)
    if filters.rejects_every_node:
        return []
    return [rank for rank, _ in best_passing(Search(compiled, filters, requested, view, settings), most, 0)]
