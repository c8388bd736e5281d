"""The preempt verb: what becomes of the scheduler's candidate nodes.

``advise``: the scheduler preempts; the answer leaves out the candidates on which our rules would still reject the pod
without the victims. ``execute``: the verb chooses the node, by the scheduler's own criteria, and returns a plan for a
task to carry out; the answer is then empty, so the scheduler does nothing itself. A preemption that the index does not
explain goes back to the scheduler in the answer (`offered_candidates`), and so does every one for a pod that fits on a node
as it is. So a forged request has no pod deleted that the preemptor would not preempt. Facts this rests on:

1. A victim that the scheduler does not know on that node fails the whole call, and so does a candidate answered without
   victims. From 1.38 on (kubernetes#135486) candidates *arrive* without victims too: nodes that only we reject.
2. The scheduler chose victims by what it knows. Ours are computed: those, and what our constraints or pods nominated to
   the node need beyond them. A victim of the scheduler can stay where one of ours makes its removal needless.
3. It counts nominated pods on the node to which they are nominated, and nowhere else. Where we choose, they count
   everywhere: preemptors that must be spread are not sent to one zone, where they would preempt each other.
4. Its candidates are a sample. Where none of them helps, the other nodes are tried before the preemptor is given up:
   the scheduler would not try it again until something changes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.model.preemption import Candidate, PreemptionPlan
from extender.rules import catalog
from extender.settings.configuration import Settings
from extender.verbs.dry_run.candidates import (
    NodeSearch,
    fits_somewhere,
    found_beside_nominated,
    node_of_running_plan,
    plan_of,
)
from extender.verbs.dry_run.victims import DryRun, Removal
from extender.verbs.effective_pod import effective_pod
from extender.verbs.preempt.offered_candidates import Examination, Left, LeftBecause, helps
from extender.wire.extender_v1 import PreemptionArgs


@dataclass(frozen=True, slots=True)
class PreemptionDecision:
    """The candidates to answer, and a plan to carry out, if any. ``left``: why the scheduler is to preempt in mode execute.

    ``requeue``: nothing helps now, but a node of the scheduler's next sample may, or a nominated pod may never be
    bound. Without a requeue the scheduler would not try the pod again.
    """

    candidates: Sequence[Candidate] = ()
    plan: PreemptionPlan | None = None
    requeue: bool = False
    left: LeftBecause | None = None


def decide_preemption(args: PreemptionArgs, view: ClusterView, settings: Settings, seed: int) -> PreemptionDecision:
    """The answer and the plan by ``preemption.mode``. ``seed`` chooses among equal nodes."""
    match settings.preemption.mode:
        case "off":
            return PreemptionDecision([each for each in args.candidates if each.victims])
        case "advise":
            return PreemptionDecision(advise_preemption(_effective(args, view, settings), view, settings))
        case "execute":
            decision = plan_preemption(_effective(args, view, settings), view, settings, seed)
            if decision.plan is None:
                return decision
            return replace(decision, plan=replace(decision.plan, preemptor=args.pod))


def _effective(args: PreemptionArgs, view: ClusterView, settings: Settings) -> PreemptionArgs:
    """The same about the effective pod."""
    pod = effective_pod(args.pod, view, settings)
    return args if pod is args.pod else replace(args, pod=pod)


def advise_preemption(args: PreemptionArgs, view: ClusterView, _settings: Settings) -> list[Candidate]:
    """The candidates that help, with the victims that the scheduler chose; one without any gets those of our dry run.

    A candidate that has none even so is left out: in the answer it would fail the whole call.
    """
    run = DryRun(args.pod, view)
    if run.fits_nowhere:
        return []
    return [found for each in args.candidates if (found := _advised(each, run)) is not None and found.victims]


def _advised(candidate: Candidate, run: DryRun) -> Candidate | None:
    number = run.view.known.get(candidate.node)
    if number is None:
        return None
    if not candidate.victims:
        removal = run.on(number)
        return None if removal is None else removal.candidate()
    return candidate if helps(candidate, number, run) else None


def plan_preemption(args: PreemptionArgs, view: ClusterView, settings: Settings, seed: int) -> PreemptionDecision:
    """A plan for the best node, or none: while one runs, for a pod that never preempts, and where nothing helps.

    O(victims), with the dry runs of `Examination.best`, and `NodeSearch.most_visited` dry runs on other nodes, all within
    the budget of one dry run; then `fits_somewhere`, once. A request cannot make it cost more than a filter's plan does.
    """
    pod = args.pod
    if pod.never_preempts or not args.candidates or node_of_running_plan(pod, view):
        return PreemptionDecision()
    run = DryRun(pod, view, across=settings.preemption.cross_node)
    if run.fits_nowhere:
        return PreemptionDecision()
    sees_everything = _sees_everything(pod, settings)
    left: Left | None = None

    def search(beside: DryRun, excluded: Collection[str]) -> Removal | None:
        nonlocal left
        offered = [each for each in args.candidates if each.node not in excluded]
        outcome = Examination(beside, sees_everything).best(offered, seed)
        if isinstance(outcome, Left):
            left = outcome
            return None
        if outcome is not None or not sees_everything:
            return outcome
        known = {each.node for each in args.candidates} | set(excluded)
        others = [number for name, number in view.known.items() if name not in known]
        return NodeSearch(beside, seed, checks_fit=True).among(others)

    removal = found_beside_nominated(run, search)
    if removal is not None and fits_somewhere(pod, view, settings):
        outcome = Examination(run, sees_everything, LeftBecause.NEEDLESS).best(args.candidates, seed)
        removal, left = None, outcome if isinstance(outcome, Left) else None
    if removal is not None:
        return PreemptionDecision(plan=plan_of(pod, removal, view))
    if left is not None:
        return PreemptionDecision((left.candidate,), left=left.because)
    # A node of the next sample may help, and so may these nodes once the nominated pods are bound or deleted.
    offered = {each.node for each in args.candidates}
    has_others = not sees_everything and any(name not in offered for name in view.known)
    return PreemptionDecision(requeue=has_others or run.depends_on_nominated)


def _sees_everything(pod: Pod, settings: Settings) -> bool:
    """Whether a node that the scheduler has not offered can be checked here: else pods might be evicted for nothing."""
    every_rule = all(rule.is_enabled(settings.rules) for _, rule in catalog.replaced_plugins())
    return every_rule and not pod.has_unseen_needs
