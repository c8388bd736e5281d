"""The best of the nodes that the scheduler offers for a preemption, with all pods that have to leave it.

The victims on an offered node are at least those that the scheduler has chosen. Our constraints and nominated pods can
only add victims, and so only make the node worse. So the offers are tried from the seemingly best one on, and a dry run
is made only for those that are tried: mostly for none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from extender.index.nodes.columns import NodeNumber
from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.model.preemption import Candidate, RemovalRank, removal_rank
from extender.verbs.dry_run.victims import DryRun, Removal, importance
from extender.wire.extender_v1 import PreemptionArgs


@dataclass(frozen=True, slots=True)
class _Offer:
    """A node with the victims known so far. ``is_whole``: the index has all that the scheduler chose.

    ``is_settled``: these are all victims. An offer that is not settled needs a dry run.
    """

    number: NodeNumber
    removal: Removal
    is_whole: bool
    is_settled: bool


# Better offers first, settled ones before others that seem as good, and in a random order besides.
_Entry = tuple[RemovalRank, bool, int, _Offer]


def best_offer(args: PreemptionArgs, run: DryRun, seed: int) -> Removal | None:
    """The removal for the best offer, None where no offer helps. One with victims unknown to us only if no other helps.

    O(victims of all offers), and a dry run for each offer that is tried before it is settled.
    """
    found = list(_offers(args, run))
    for is_whole in (True, False):
        best = _best([each for each in found if each.is_whole is is_whole], run, seed)
        if best is not None:
            return best
    return None


def known_victims(candidate: Candidate, view: ClusterView) -> list[Pod]:
    """The victims that the index has; a victim that was deleted counts no more anyway."""
    return [pod for victim in candidate.victims if (pod := view.pod(victim.uid)) is not None]


def _best(offers: Sequence[_Offer], run: DryRun, seed: int) -> Removal | None:
    open_ = [_entry(each, (at - seed) % len(offers)) for at, each in enumerate(offers)]
    heapify(open_)
    while open_:
        _, _, order, offer = heappop(open_)
        if offer.is_settled:
            return offer.removal
        settled = _settle(offer, run)
        if settled is not None:
            heappush(open_, _entry(settled, order))
    return None


def _entry(offer: _Offer, order: int) -> _Entry:
    return removal_rank(offer.removal.victims, offer.removal.pdb_violations), not offer.is_settled, order, offer


def _offers(args: PreemptionArgs, run: DryRun) -> Iterator[_Offer]:
    view = run.view
    for candidate in args.candidates:
        number = view.known.get(candidate.node)
        if number is None:
            continue
        # A victim that the index does not have was deleted, or its binding has not reached us: it is unknown which.
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
            yield settled  # without victims an offer has no place in the order before its dry run


def _settle(offer: _Offer, run: DryRun) -> _Offer | None:
    """An offer with all victims, by a dry run; None where they do not help, or there are none."""
    removal = run.on(offer.number, offer.removal.victims)
    if removal is None or not removal.victims:
        return None
    violations = removal.pdb_violations + offer.removal.pdb_violations
    return replace(offer, removal=replace(removal, pdb_violations=violations), is_settled=True)
