"""The best of the nodes that the scheduler offers for a preemption, with everything that has to leave it.

What leaves an offered node is at least what the scheduler has chosen there. Our constraints, and pods that are to come
to the node, can only add to that, and so only make the node worse. So the offers are gone through from the seemingly
best one on, and a dry run is made only for those that come up: mostly for none. Called by `preemption`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from extender.index.view import ClusterView, NodeNumber
from extender.model.objects import Pod
from extender.model.victims import Candidate, Standing, standing
from extender.verbs.dry_run.victims import DryRun, Removal, importance
from extender.wire.extender_v1 import PreemptionArgs


@dataclass(frozen=True, slots=True)
class _Offer:
    """What has to leave a node at least; ``is_whole``: we know every victim. All of it is known once it is settled."""

    number: NodeNumber
    removal: Removal
    is_whole: bool
    is_settled: bool


# Better ones first, settled ones before others that seem as good, and in a random order besides.
_Entry = tuple[Standing, bool, int, _Offer]


def best_offer(args: PreemptionArgs, run: DryRun, seed: int) -> Removal | None:
    """What is to be removed, None where no offer helps. A node with victims unknown to us only if there is no other.

    O(victims of all offers), and a dry run for each offer that comes up without being settled.
    """
    found = list(_offers(args, run))
    for is_whole in (True, False):
        best = _best([each for each in found if each.is_whole is is_whole], run, seed)
        if best is not None:
            return best
    return None


def known_victims(candidate: Candidate, view: ClusterView) -> list[Pod]:
    """The victims as the index knows them; one that is not there any more does not count already."""
    return [pod for victim in candidate.victims if (pod := view.pod(victim.uid)) is not None]


def _best(offers: Sequence[_Offer], run: DryRun, seed: int) -> Removal | None:
    open_ = [_entry(each, (at - seed) % len(offers)) for at, each in enumerate(offers)]
    heapify(open_)
    while open_:
        _, _, turn, offer = heappop(open_)
        if offer.is_settled:
            return offer.removal
        settled = _settle(offer, run)
        if settled is not None:
            heappush(open_, _entry(settled, turn))
    return None


def _entry(offer: _Offer, turn: int) -> _Entry:
    return standing(offer.removal.victims, offer.removal.pdb_violations), not offer.is_settled, turn, offer


def _offers(args: PreemptionArgs, run: DryRun) -> Iterator[_Offer]:
    view = run.view
    for candidate in args.candidates:
        number = view.known.get(candidate.node)
        if number is None:
            continue
        # A victim that the index does not hold is gone already, or its binding has not reached us: unknown which.
        victims = [pod for pod in known_victims(candidate, view) if pod.node == candidate.node]
        if any(each.priority >= args.pod.priority for each in victims):
            continue
        removal = Removal(candidate.node, tuple(sorted(victims, key=importance)), candidate.pdb_violations)
        offer = _Offer(
            number,
            removal,
            is_whole=len(victims) == len(candidate.victims),
            is_settled=not run.has_constraints and candidate.node not in view.nominated,
        )
        if victims:
            yield offer
        elif not offer.is_settled and (settled := _settle(offer, run)) is not None:
            yield settled  # nothing is known of one without victims: it has no place in the order before its dry run


def _settle(offer: _Offer, run: DryRun) -> _Offer | None:
    """An open offer with all that has to leave the node; None where that does not help, or no pod has to."""
    removal = run.on(offer.number, offer.removal.victims)
    if removal is None or not removal.victims:
        return None
    violations = removal.pdb_violations + offer.removal.pdb_violations
    return replace(offer, removal=replace(removal, pdb_violations=violations), is_settled=True)
