"""The preempt verb: what becomes of the scheduler's candidate nodes.

``advise``: the scheduler acts; we drop the candidates on which our own rules would still refuse the pod once the
victims are gone. ``execute``: we choose the node, by the scheduler's own criteria, and hand out a plan for a task to
carry out; the answer is then empty, so the scheduler does nothing itself. Facts this rests on:

1. A victim that the scheduler does not know on that node fails the whole call, and so does a candidate answered without
   victims. From 1.38 on (kubernetes#135486) candidates *arrive* without victims too: nodes that only we refuse.
2. The scheduler chose victims by what it knows. They stay; what our constraints, or pods that we have promised the
   node to, need beyond them is added.
3. Its candidates are a sample. Where none of them helps, the other nodes are tried before the preemptor is given up:
   the scheduler would not ask again until something changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.model.plans import PreemptionPlan
from extender.model.victims import Candidate
from extender.settings import Settings
from extender.verbs.candidates import NodeSearch, awaited_node, best_removal, plan_of
from extender.verbs.victims import DryRun, Removal, importance
from extender.wire.extender_v1 import PreemptionArgs


@dataclass(frozen=True, slots=True)
class PreemptionDecision:
    """The candidates to answer, and what is to be done besides, if anything.

    ``ask_again``: nothing helped among the nodes that we may judge, but the scheduler's next sample may hold one that
    does; without a nudge it would not ask.
    """

    candidates: Sequence[Candidate] = ()
    plan: PreemptionPlan | None = None
    ask_again: bool = False


def decide_preemption(args: PreemptionArgs, view: ClusterView, settings: Settings, seed: int) -> PreemptionDecision:
    """What to answer and what to do, by ``preemption.mode``. ``seed`` breaks ties between equal nodes."""
    match settings.preemption.mode:
        case "off":
            return PreemptionDecision([each for each in args.candidates if each.victims])
        case "advise":
            return PreemptionDecision(advise_preemption(args, view, settings))
        case "execute":
            return plan_preemption(args, view, settings, seed)


def advise_preemption(args: PreemptionArgs, view: ClusterView, _settings: Settings) -> list[Candidate]:
    """The candidates that help, with the victims that the scheduler chose; to one that came without any ours are added.

    A candidate for which there are none to add is dropped: answered back, it would fail the whole call.
    """
    run = DryRun(args.pod, view)
    if run.is_hopeless:
        return []
    return [found for each in args.candidates if (found := _advised(each, run)) is not None and found.victims]


def _advised(candidate: Candidate, run: DryRun) -> Candidate | None:
    number = run.view.known.get(candidate.node)
    if number is None:
        return None
    if not candidate.victims:
        removal = run.on(number)
        return None if removal is None else removal.candidate()
    with run.view.without(_known_victims(candidate, run.view)):
        return candidate if run.passes(number) else None


def _known_victims(candidate: Candidate, view: ClusterView) -> list[Pod]:
    """The victims as the index knows them; one that is not there any more does not count already."""
    return [pod for victim in candidate.victims if (pod := view.pod(victim.uid)) is not None]


def plan_preemption(args: PreemptionArgs, view: ClusterView, settings: Settings, seed: int) -> PreemptionDecision:
    """A plan for the best node, or none: while one is running, for a pod that never preempts, and where nothing helps.

    O(candidates × what `DryRun.on` costs); without constraints of ours O(victims). The search of other nodes looks at
    `NodeSearch.most_visited` of them.
    """
    pod = args.pod
    if pod.never_preempts or not args.candidates or awaited_node(pod, view):
        return PreemptionDecision()
    run = DryRun(pod, view, across=settings.preemption.cross_node)
    if run.is_hopeless:
        return PreemptionDecision()
    whole, partial = _removals(args, run)
    removal = best_removal(whole or partial, seed)
    offered = {each.node for each in args.candidates}
    others = [number for name, number in view.known.items() if name not in offered]
    may_judge = _sees_everything(pod, settings)
    if removal is None and may_judge:
        removal = NodeSearch(run, seed, checks_room=True).among(others)
    if removal is None:
        return PreemptionDecision(ask_again=bool(others) and not may_judge)
    return PreemptionDecision(plan=plan_of(pod, removal, view))


def _sees_everything(pod: Pod, settings: Settings) -> bool:
    """Whether a node that the scheduler has not offered can be judged here: else pods might be evicted for nothing."""
    rules = settings.rules
    return rules.inter_pod_affinity.enabled and rules.topology_spread.enabled and not pod.has_unseen_needs


def _removals(args: PreemptionArgs, run: DryRun) -> tuple[list[Removal], list[Removal]]:
    """What to remove for each candidate that helps: where we know every victim, and where some are unknown to us."""
    whole: list[Removal] = []
    partial: list[Removal] = []
    for candidate in args.candidates:
        removal, is_whole = _removal(candidate, args, run)
        if removal is not None and removal.victims:
            (whole if is_whole else partial).append(removal)
    return whole, partial


def _removal(candidate: Candidate, args: PreemptionArgs, run: DryRun) -> tuple[Removal | None, bool]:
    number = run.view.known.get(candidate.node)
    if number is None:
        return None, False
    # A victim that the index does not hold is gone already, or its binding has not reached us: nobody can tell.
    victims = [pod for pod in _known_victims(candidate, run.view) if pod.node == candidate.node]
    is_whole = len(victims) == len(candidate.victims)
    if any(each.priority >= args.pod.priority for each in victims):
        return None, False
    if not run.has_constraints and candidate.node not in run.view.nominated:
        return Removal(candidate.node, tuple(sorted(victims, key=importance)), candidate.pdb_violations), is_whole
    removal = run.on(number, victims)
    if removal is None:
        return None, False
    return replace(removal, pdb_violations=removal.pdb_violations + candidate.pdb_violations), is_whole
