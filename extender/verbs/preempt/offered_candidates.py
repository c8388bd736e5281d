"""The best of the nodes that the scheduler offers for a preemption, and whether the extender or the scheduler carries it out.

No victim is believed: a request may be forged. On the node that seems best the victims are computed, from what the index
holds: node fit, our rules, nominated pods and disruption budgets, in kube-scheduler's own order. The extender removes what it
has computed, and only where that explains each victim of the offer. An offer that it cannot explain is left to the
scheduler, which carries it out itself: one with more victims than are needed, with victims for needs that the index
does not hold (volumes, devices, the scheduler's other plugins), or with a victim that the watch shows on no node.

kube-scheduler cancels such a victim, which waits at Permit or runs its PreBind, and deletes nothing.
https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/4832-async-preemption
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from extender.index.nodes.columns import NodeNumber
from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.model.preemption import Candidate, RemovalRank, removal_rank
from extender.rules import catalog
from extender.rules.free_resources import conflicting_nominated_pods
from extender.verbs.dry_run.victims import DryRun, Removal, importance, is_bound


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


Outcome: TypeAlias = Removal | Left


@dataclass(frozen=True, slots=True)
class _Offer:
    """A node with those of its victims that exist as far as the watch shows. ``outcome``: None before it is examined.

    ``is_whole``: the index has all victims that were not deleted.
    """

    number: NodeNumber
    candidate: Candidate
    victims: tuple[Pod, ...]
    is_whole: bool
    outcome: Outcome | None = None

    def rank(self) -> RemovalRank:
        """What it is compared by: the computed victims, before that those that were offered."""
        if isinstance(self.outcome, Removal):
            return removal_rank(self.outcome.victims, self.outcome.pdb_violations)
        return removal_rank(self.victims or self.candidate.victims, self.candidate.pdb_violations)


# Better offers first, examined ones before others that seem as good, and in a random order besides.
_Entry: TypeAlias = tuple[RemovalRank, bool, int, _Offer]


@dataclass(frozen=True, slots=True)
class Examination:
    """How offers are examined. ``because``: set where every offer is to be left, as no preemption is needed at all.

    ``sees_everything``: no plugin of the scheduler decides by what the index does not hold.
    """

    run: DryRun
    sees_everything: bool
    because: LeftBecause | None = None

    def best(self, candidates: Sequence[Candidate], seed: int) -> Outcome | None:
        """What becomes of the best offer, None where no offer helps. One with victims unknown to us only if no other helps.

        O(victims of all offers), and for each offer that is examined one dry run by everything, where that does not explain
        its victims one by node fit, and where it has unseen needs a third. Mostly one offer is examined. All dry runs
        take their cost from the budget of one preemptor (`MOST_WORK`), whatever the request holds.
        """
        found = list(self._offers(candidates))
        for is_whole in (True, False):
            best = self._best([each for each in found if each.is_whole is is_whole], seed)
            if best is not None:
                return best
        return None

    def _best(self, offers: Sequence[_Offer], seed: int) -> Outcome | None:
        open_ = [_entry(each, (at - seed) % len(offers)) for at, each in enumerate(offers)]
        heapify(open_)
        while open_ and not self.run.is_spent():
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
            there = [each for each in candidate.victims if each.uid not in view.deleted]
            victims = [
                pod for each in there if (pod := view.pod(each.uid)) is not None and pod.node in ("", candidate.node)
            ]
            if any(each.priority >= self.run.pod.priority for each in victims):
                continue
            pods = tuple(sorted(victims, key=importance))
            offer = _Offer(number, candidate, pods, is_whole=len(victims) == len(there))
            if there:
                yield offer
            elif (examined := self._examined(offer)) is not None:
                yield examined  # without victims an offer has no place in the order before its dry run

    def _examined(self, offer: _Offer) -> _Offer | None:
        """The offer with its outcome; None where it does not help, or nothing is to be removed."""
        outcome = self._outcome(offer)
        if outcome is None or (isinstance(outcome, Left) and not self._may_be_left(offer)):
            return None
        return _Offer(offer.number, offer.candidate, offer.victims, offer.is_whole, outcome)

    def _outcome(self, offer: _Offer) -> Outcome | None:
        run, number, uids = self.run, offer.number, {each.uid for each in offer.victims}
        if self.because is not None:
            return Left(offer.candidate, self.because)
        if not (offer.is_whole and all(is_bound(each, run.view) for each in offer.victims)):
            return Left(offer.candidate, LeftBecause.UNBOUND)
        found = run.on(number, checks_fit=True, first=uids)
        if found is None and (run.is_spent() or conflicting_nominated_pods(run.pod, offer.candidate.node, run.view)):
            return None  # the scheduler may not know of the pods that are nominated to the node
        if found is not None and uids <= {each.uid for each in found.victims}:
            return found if found.victims else None
        if found is not None and found.victims and self._needs_for_fit(number, uids):
            return found if self.sees_everything else run.on(number, offer.victims, checks_fit=True)
        is_needless = found is not None and not found.victims
        return Left(offer.candidate, LeftBecause.NEEDLESS if is_needless else LeftBecause.UNEXPLAINED)

    def _needs_for_fit(self, number: NodeNumber, uids: set[str]) -> bool:
        """Whether node fit alone needs these victims: our rules may need others, without which some of these can stay."""
        if not self.run.has_constraints:
            return False
        with self.run.of_fit_alone() as alone:
            found = alone.on(number, checks_fit=True, first=uids)
        return found is not None and uids <= {each.uid for each in found.victims}

    def _may_be_left(self, offer: _Offer) -> bool:
        """Whether the victims are all that our rules need, and any is left: the scheduler learns of deletions by itself."""
        if not self.run.has_constraints:
            return bool(offer.victims) or not offer.is_whole
        for _ in offer.victims:
            self.run.charge_change()
        is_empty = offer.is_whole and not offer.victims
        return not is_empty and helps(offer.candidate, offer.number, self.run)


def _entry(offer: _Offer, order: int) -> _Entry:
    return offer.rank(), offer.outcome is None, order, offer


def helps(candidate: Candidate, number: NodeNumber, run: DryRun) -> bool:
    """Whether our rules let the pod pass on the node without the victims of a candidate. O(victims × groups)."""
    victims = known_victims(candidate, run.view)
    for trial in catalog.node_trials(run.pod, run.view, number, (), checks_fit=False):
        for victim in victims:
            if victim.node == candidate.node:
                trial.count(victim, -1)
        if not trial.passes():
            return False
    with run.view.without(victims):
        return run.passes(number)


def known_victims(candidate: Candidate, view: ClusterView) -> list[Pod]:
    """The victims that the index has; a victim that was deleted counts no more anyway."""
    return [pod for victim in candidate.victims if (pod := view.pod(victim.uid)) is not None]
