"""The preempt verb: what becomes of the scheduler's candidate nodes.

- Mode ``advise``: the scheduler preempts. The answer leaves out each candidate on which our rules would still reject the pod
  after its victims have left.
- Mode ``execute``: the verb chooses the node by the scheduler's own criteria and returns a plan, which a task carries out. The
  answer is empty then, so the scheduler does nothing itself. The candidate goes back to the scheduler in the answer where the
  index does not explain the preemption (`Examination`), or where the pod fits on a node without one. So a forged request
  deletes no pod that the preemptor would not preempt.

Facts about kube-scheduler that this depends on:

1. The whole call fails for an answer with a victim that the scheduler does not know on that node, or with a candidate without
   victims. From 1.38 on (kubernetes#135486) candidates *arrive* without victims too: nodes that only the extender rejects.
2. The scheduler chooses victims by what it knows. The extender computes its own: it adds victims that our constraints need, or
   that nominated pods need. And it may drop a victim of the scheduler whose removal another victim makes needless.
3. The scheduler counts a nominated pod on its nominated node only. The extender counts it everywhere: else several preemptors that
   must be spread are sent to one zone, and preempt each other there.
4. The scheduler's candidates are a sample. Where none of them helps, the other nodes are tried before the verb gives up, because
   the scheduler would not try the pod again until something changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from extender.index.nodes.columns import NodeNumber
from extender.index.view import ClusterView
from extender.model.bounded import Steps
from extender.model.objects import Pod
from extender.model.preemption import Candidate, PreemptionPlan, RemovalRank, removal_rank
from extender.rules import catalog
from extender.rules.free_resources import conflicting_nominated_pods
from extender.rules.meter import POST_FILTER, RuleMeter
from extender.settings.configuration import Settings
from extender.verbs.dry_run import (
    MOST_WORK,
    DryRun,
    DryRunBudget,
    NodeVictims,
    best_among,
    found_beside_nominated,
    importance,
    is_bound,
    node_of_running_plan,
    plan_of,
    violating_budgets,
)
from extender.verbs.effective_pod import effective_pod
from extender.verbs.kept_nodes import fits_somewhere
from extender.wire.extender_v1 import PreemptionArgs


@dataclass(frozen=True, slots=True)
class PreemptionDecision:
    """The candidates to answer, and a plan to carry out, if any.

    - ``left``: why the scheduler preempts itself in mode execute.
    - ``requeue``: nothing helps now, but a node of the scheduler's next sample may help, or a nominated pod may never be bound.
      Without a requeue the scheduler would not try the pod again.
    """

    candidates: Sequence[Candidate] = ()
    plan: PreemptionPlan | None = None
    requeue: bool = False
    left: LeftBecause | None = None


def decide_preemption(
    args: PreemptionArgs, view: ClusterView, settings: Settings, seed: int, meter: RuleMeter | None = None
) -> PreemptionDecision:
    """The answer and the plan by ``preemption.mode``. ``seed`` chooses among equal nodes, ``meter`` counts and times rules."""
    if meter is None:
        return _decide(args, view, settings, seed, RuleMeter())
    meter.left -= 1
    if not meter.left:
        with meter.sampled(POST_FILTER):
            return _decide(args, view, settings, seed, meter)
    return _decide(args, view, settings, seed, meter)


def _decide(
    args: PreemptionArgs, view: ClusterView, settings: Settings, seed: int, meter: RuleMeter
) -> PreemptionDecision:
    if settings.preemption.mode == "off":
        return PreemptionDecision([candidate for candidate in args.candidates if candidate.victims])
    pod = effective_pod(args.pod, view, settings)
    if settings.preemption.mode == "advise":
        return PreemptionDecision(_advise(pod, args.candidates, view, meter))
    decision = _plan(pod, args.candidates, view, settings, seed, meter)
    if decision.plan is None:
        return decision
    return replace(decision, plan=replace(decision.plan, preemptor=args.pod))


def _advise(pod: Pod, candidates: Sequence[Candidate], view: ClusterView, meter: RuleMeter) -> list[Candidate]:
    """The candidates that help, with the scheduler's victims.

    A candidate that arrived without victims gets the victims of our dry run. If that finds none, the candidate is left out: in the
    answer it would fail the whole call.
    """
    run = DryRun(pod, view, meter=(meter, "preempt"))
    if run.fits_nowhere:
        return []
    advised: list[Candidate] = []
    for candidate in candidates:
        number = view.known.get(candidate.node)
        if number is None:
            continue
        if not candidate.victims:
            removal = run.on(number)
            advised += [removal.candidate()] if removal is not None and removal.victims else []
        elif helps(candidate, number, run):
            advised.append(candidate)
    return advised


def _plan(
    pod: Pod, candidates: Sequence[Candidate], view: ClusterView, settings: Settings, seed: int, meter: RuleMeter
) -> PreemptionDecision:
    """A plan for the best node. None while a preemption runs, for a pod that never preempts, and where nothing helps.

    O(victims), plus the dry runs of `Examination.best`, plus up to `MOST_VISITED` dry runs on other nodes, all within one budget
    (`MOST_WORK`); then `fits_somewhere`, once. So no request can cost more than a preemption plan of filter.
    """
    if pod.never_preempts or not candidates or node_of_running_plan(pod, view):
        return PreemptionDecision()
    run = DryRun(pod, view, across=settings.preemption.cross_node, meter=(meter, "preempt"))
    if run.fits_nowhere:
        return PreemptionDecision()
    # Whether the extender can check everything that the scheduler checks. If not, it chooses only nodes that the scheduler has
    # offered: on other nodes pods might be evicted for nothing.
    every_rule = all(rule.is_enabled(settings.rules) for _, rule in catalog.replaced_plugins())
    sees_everything = every_rule and not pod.has_unseen_needs
    names = {candidate.node for candidate in candidates}
    left: Left | None = None

    # 1. The offered nodes. 2. Nodes that were not offered, if the index sees everything that decides about this pod. It is called
    #    again without a node whose removal does not help beside nominated pods, so `left` comes from the last call.
    def search(beside: DryRun, excluded: Collection[str]) -> NodeVictims | None:
        nonlocal left
        offered = [candidate for candidate in candidates if candidate.node not in excluded]
        outcome = Examination(beside, sees_everything).best(offered, seed)
        if isinstance(outcome, Left):
            left = outcome
            return None
        if outcome is not None or not sees_everything:
            return outcome
        others = [number for name, number in view.known.items() if name not in names and name not in excluded]
        return best_among(others, beside, seed, checks_fit=True)

    removal = found_beside_nominated(run, search)
    # 3. No victims for a pod that fits on a node now. Checked last, because it is O(nodes) and mostly False: the scheduler has just
    #    rejected the pod everywhere. The scheduler gets its own offer back and decides itself.
    if removal is not None and fits_somewhere(pod, view, settings):
        outcome = Examination(run, sees_everything, LeftBecause.NEEDLESS).best(candidates, seed)
        removal, left = None, outcome if isinstance(outcome, Left) else None
    if removal is not None:
        return PreemptionDecision(plan=plan_of(pod, removal, view))
    if left is not None:
        return PreemptionDecision((left.candidate,), left=left.because)
    # Requeue: a node of the next sample may help, or one of these nodes after the nominated pods were bound or deleted.
    has_others = not sees_everything and not view.known.keys() <= names
    return PreemptionDecision(requeue=has_others or run.depends_on_nominated)


_NODES_A_STEP = 25
_WORK_FOR_VICTIMS = 5 * MOST_WORK


def node_with_victims(pod: Pod, view: ClusterView, settings: Settings, seed: int) -> Steps[str]:
    """A node that would take a pending pod after pods of lower priority have left it; "" if none is found.

    The caller uses it to find out whether a new attempt of the pod is worth it; the scheduler and the preempt verb decide. The node
    may be wrong where the pod has needs that the index does not hold. Steps of some milliseconds, each with the index of that
    moment. All dry runs share the budget of five preemptors.
    """
    if pod.never_preempts or not view.has_below(pod.priority) or node_of_running_plan(pod, view):
        return ""
    budget, names = DryRunBudget(_WORK_FOR_VICTIMS), list(view.known)
    start = seed % max(len(names), 1)
    names = names[start:] + names[:start]
    for at in range(0, len(names), _NODES_A_STEP):
        run = DryRun(effective_pod(pod, view, settings), view, across=settings.preemption.cross_node, budget=budget)
        if run.fits_nowhere or budget.is_spent():
            break
        for name in names[at : at + _NODES_A_STEP]:
            number = view.known.get(name)
            removal = None if number is None else run.on(number, checks_fit=True)
            if removal is not None and removal.victims:
                return name
        yield
    return ""


# -- offered candidates -----------------------------------------------------------------------------------------------

# The best of the nodes that the scheduler offers for a preemption, and whether the extender or the scheduler carries it out.
#
# 1. No victim of a request is trusted, because a request may be forged. On the node that seems best the extender computes the
#    victims itself: by node fit, our rules, nominated pods and disruption budgets, in kube-scheduler's order.
# 2. The extender carries out its own computation, and only if that explains every victim of the offer.
# 3. It leaves an offer to the scheduler that it cannot explain: the offer has more victims than are needed; or victims for needs
#    that the index does not hold (volumes, devices, other plugins of the scheduler); or a victim that the watch shows on no node.
# 4. A victim that the watch shows on no node waits at Permit or runs its PreBind. kube-scheduler cancels it and deletes nothing.
# https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/4832-async-preemption


class LeftBecause(Enum):
    """Why the extender leaves a preemption to the scheduler."""

    UNBOUND = "unbound"
    UNEXPLAINED = "unexplained"
    NEEDLESS = "needless"


@dataclass(frozen=True, slots=True)
class Left:
    """A candidate that goes back to the scheduler unchanged."""

    candidate: Candidate
    because: LeftBecause


Outcome: TypeAlias = NodeVictims | Left


@dataclass(frozen=True, slots=True)
class _Offer:
    """An offered node.

    - ``victims``: the victims of the offer that the index knows.
    - ``is_whole``: the index knows all victims that were not deleted meanwhile.
    - ``outcome``: None until the offer is examined.
    - ``least_violations``: how many violated budgets the victims have at least. The request or the index may be out of date.
    """

    number: NodeNumber
    candidate: Candidate
    victims: tuple[Pod, ...]
    is_whole: bool
    least_violations: int
    outcome: Outcome | None = None

    def rank(self) -> RemovalRank:
        """The rank for comparisons: by the computed victims, or by the offered victims until the offer is examined.

        The rank before the examination is the lower bound of the rank after it.
        """
        if isinstance(self.outcome, NodeVictims):
            return removal_rank(self.outcome.victims, self.outcome.pdb_violations)
        violations = self.least_violations if self.outcome is None else self.candidate.pdb_violations
        return removal_rank(self.victims or self.candidate.victims, violations)


# The order of the heap: better offers first; of equal ranks examined offers first; then a random order.
_Entry: TypeAlias = tuple[RemovalRank, bool, int, _Offer]


@dataclass(frozen=True, slots=True)
class Examination:
    """The examination of offers.

    - ``sees_everything``: the index holds everything by which the scheduler's plugins decide about this pod.
    - ``because``: set where every offer is left to the scheduler, because the pod needs no preemption at all.
    """

    run: DryRun
    sees_everything: bool
    because: LeftBecause | None = None

    def best(self, candidates: Sequence[Candidate], seed: int) -> Outcome | None:
        """The outcome of the best offer, None where no offer helps. Offers with unknown victims come after all others.

        O(victims of all offers), plus up to three dry runs for each offer that is examined: one with all rules; one by node fit
        alone, where the first does not explain the victims; one with the offered victims, where the pod has unseen needs. Mostly
        one offer is examined. All dry runs share the budget of one preemptor (`MOST_WORK`), however large the request is.
        """
        offers = list(self._offers(candidates))
        for is_whole in (True, False):
            best = self._best([offer for offer in offers if offer.is_whole is is_whole], seed)
            if best is not None:
                return best
        return None

    def _best(self, offers: Sequence[_Offer], seed: int) -> Outcome | None:
        # The best offer by its own victims is examined first, which changes its rank. It goes back into the heap with the new rank, and
        # wins only if it is still the first: so mostly one dry run is enough, and no better offer is missed.
        open_ = [_entry(offer, (at - seed) % len(offers)) for at, offer in enumerate(offers)]
        heapify(open_)
        while open_ and not self.run.budget.is_spent():
            _, _, order, offer = heappop(open_)
            if offer.outcome is not None:
                return offer.outcome
            examined = self._examined(offer)
            if examined is not None:
                heappush(open_, _entry(examined, order))
        return open_[0][3].outcome if open_ else None

    def _offers(self, candidates: Sequence[Candidate]) -> Iterator[_Offer]:
        view = self.run.view
        for candidate in candidates:
            number = view.known.get(candidate.node)
            if number is None:
                continue
            there = [victim for victim in candidate.victims if victim.uid not in view.deleted]
            victims = [
                pod
                for victim in there
                if (pod := view.pod(victim.uid)) is not None and pod.node in ("", candidate.node)
            ]
            if any(victim.priority >= self.run.pod.priority for victim in victims):
                continue  # a forged or outdated offer: the preemptor must not remove such a pod
            pods = tuple(sorted(victims, key=importance))
            # Computed only where the request names violations, as there is nothing less than none.
            least = candidate.pdb_violations
            if least:
                least = min(least, len(violating_budgets(pods, view, self.run.budget)))
            offer = _Offer(number, candidate, pods, len(victims) == len(there), least)
            if there:
                yield offer
            elif (examined := self._examined(offer)) is not None:
                yield examined  # without victims it has no rank before its dry run

    def _examined(self, offer: _Offer) -> _Offer | None:
        """The offer with its outcome; None where it does not help, or where no pod has to be removed."""
        outcome = self._outcome(offer)
        if outcome is None or (isinstance(outcome, Left) and not self._may_be_left(offer)):
            return None
        return replace(offer, outcome=outcome)

    def _outcome(self, offer: _Offer) -> Outcome | None:
        run, number, uids = self.run, offer.number, {victim.uid for victim in offer.victims}
        # 1. The scheduler preempts: by the caller's decision, or because it knows a victim better than the watch does.
        if self.because is not None:
            return Left(offer.candidate, self.because)
        if not (offer.is_whole and all(is_bound(victim, run.view) for victim in offer.victims)):
            return Left(offer.candidate, LeftBecause.UNBOUND)
        # 2. Our own victims. Among equals the offered ones come first, so that an offer by another order of equals is explained too.
        removal = run.on(number, checks_fit=True, first=uids)
        if removal is None and (
            run.budget.is_spent() or conflicting_nominated_pods(run.pod, offer.candidate.node, run.view)
        ):
            return None  # not left to the scheduler: it may not know the pods that are nominated to the node
        # 3. Each offered victim is one of ours: the removal is explained. Ours may have more, for our rules.
        if removal is not None and uids <= {victim.uid for victim in removal.victims}:
            return removal if removal.victims else None
        # 4. The offer is right for node fit, and our rules need other victims that make some of the offered ones needless. If the pod
        #    has needs that the index does not hold, the offered victims stay in the removal: they may be needed for these.
        if removal is not None and removal.victims and self._needs_for_fit(number, uids):
            return removal if self.sees_everything else run.on(number, offer.victims, checks_fit=True)
        # 5. Not explained.
        is_needless = removal is not None and not removal.victims
        return Left(offer.candidate, LeftBecause.NEEDLESS if is_needless else LeftBecause.UNEXPLAINED)

    def _needs_for_fit(self, number: NodeNumber, uids: set[str]) -> bool:
        """Whether these victims are what node fit alone needs. Our rules may need other victims, so that some of these can stay."""
        if not self.run.has_constraints:
            return False
        alone = DryRun(self.run.pod, self.run.view, has_rules=False, budget=self.run.budget)
        removal = alone.on(number, checks_fit=True, first=uids)
        return removal is not None and uids <= {victim.uid for victim in removal.victims}

    def _may_be_left(self, offer: _Offer) -> bool:
        """Whether the scheduler may carry out the offer: its victims are enough for our rules, and not all of them are deleted.

        The scheduler learns of deleted victims by itself.
        """
        if not self.run.has_constraints:
            return bool(offer.victims) or not offer.is_whole
        for _ in offer.victims:
            self.run.charge_change()
        is_empty = offer.is_whole and not offer.victims
        return not is_empty and helps(offer.candidate, offer.number, self.run)


def _entry(offer: _Offer, order: int) -> _Entry:
    return offer.rank(), offer.outcome is None, order, offer


def helps(candidate: Candidate, number: NodeNumber, run: DryRun) -> bool:
    """Whether the pod passes our rules on the node after the victims of a candidate have left. O(victims × groups)."""
    # A deleted victim is not in the counts any more.
    victims = [pod for victim in candidate.victims if (pod := run.view.pod(victim.uid)) is not None]
    for trial in run.node_trials(number, (), checks_fit=False):
        for victim in victims:
            if victim.node == candidate.node:
                trial.count(victim, -1)
        if not trial.passes():
            return False
    return run.passes_without(victims, number)
