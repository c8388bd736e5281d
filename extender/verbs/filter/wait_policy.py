"""Whether a question is better answered later: once it is known where pods are that were let through just now.

Nobody is waited for who cannot make the answer better. It is given at once where as many nodes pass in the worst case,
and as good ones by our own score, as could pass in the best, or where none could. The filter verb answers by the worst
case, so what passes is right wherever those pods come to stand. Called before it, and again whenever one has settled.
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
    """Whether waiting may make the answer better. O(groups) where nobody is pending, else two searches.

    Where pods to come may take nodes out of the answer, or a refusal would make us look for pods to remove, everybody
    is waited for on whom the question may hang: that rests on more than the names that pass.
    """
    compiled = view.compiled(args.pod.signature)
    if not view.is_pending(compiled):
        return False
    if view.nominated and settings.preemption.mode != "off":
        return True
    asked = requested_nodes(args, view)
    at_best = _ranks(args, asked, BestCaseFrame(asked.frame, view), view, settings)
    if not at_best:
        return may_plan(args.pod, view, settings)
    return _ranks(args, asked, WorstCaseFrame(asked.frame, view), view, settings) != at_best


def _ranks(
    args: ExtenderArgs, asked: RequestedNodes, frame: Frame, view: ClusterView, settings: Settings
) -> list[float]:
    """How the nodes of the answer rank under our own score, best first. One that is chosen is chosen among all."""
    compiled = view.compiled(args.pod.signature)
    most = len(asked)
    if settings.answers.shortlist and not answers_one(compiled, view, settings):
        most = min(most, settings.answers.shortlist)
    filters = catalog.prepare_filters(compiled, view, frame)
    if filters.rejects_every_node:
        return []
    return [rank for rank, _ in best_passing(Search(compiled, filters, asked, view, settings), most, 0)]
