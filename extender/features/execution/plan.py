"""Plans all moves that would follow one another, until nothing is broken or no move is allowed.

Works on an index of its own, for example of a snapshot: each move is carried out in the index, as if the controller and
the scheduler had done their parts. So the next move is found in the cluster as it would be then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from extender.features.execution.broken import BrokenConstraints
from extender.features.execution.moves import Movable, Move, Neighbours, Planner, Stuck
from extender.index.cluster import ClusterIndex
from extender.model.bounded import Steps
from extender.model.objects import PodSignature
from extender.settings.configuration import Settings

MOST_PLANNED: Final = 10_000
_FEW: Final = 20  # signatures: all of them are planned again after each move


@dataclass(frozen=True, slots=True)
class MovePlan:
    """The moves in order, what is left without an allowed move, and the measure before and after."""

    moves: tuple[Move, ...]
    stuck: tuple[Stuck, ...]
    before: int
    after: int


def plan_moves(index: ClusterIndex, settings: Settings, movable: Movable, most: int = MOST_PLANNED) -> Steps[MovePlan]:
    """The plan, in steps. The index is changed.

    O(moves × (signatures + nodes × clauses)). After a move only signatures that are found broken anew, or whose move is the
    best of all, are planned again; all others once more when no move is left.
    """
    broken = BrokenConstraints(index.view, settings)
    yield from broken.round(0.0)
    before = broken.measure
    moves: list[Move] = []
    planned: dict[PodSignature, Move | None] = {}
    stuck: dict[PodSignature, tuple[Stuck, ...]] = {}
    is_fresh = True  # every plan was made since the last move
    while len(moves) < most:
        planner = yield from _planner(index, settings)
        for signature, watched in broken.found.items():
            if signature not in planned:
                planned[signature], stuck[signature] = yield from planner.find(watched, movable)
        best = min((move for move in planned.values() if move is not None), key=lambda move: move.order, default=None)
        if best is None and is_fresh:
            break
        if best is None:
            planned.clear()
            is_fresh = True
            continue
        # Planned again, because earlier moves may have changed it.
        signature = best.pod.signature
        move, stuck[signature] = yield from planner.find(broken.found[signature], movable)
        if move is None or move.order > best.order:
            planned[signature] = move
            continue
        moves.append(move)
        index.delete(move.pod)
        index.upsert(move.replacement)
        yield from broken.round(0.0)
        is_fresh = False
        is_few = len(planned) <= _FEW
        planned = {} if is_few else {kept: found for kept, found in planned.items() if kept in broken.found}
        planned.pop(signature, None)
    left = tuple(found for signature in broken.found for found in stuck.get(signature, ()))
    return MovePlan(tuple(moves), left, before, broken.measure)


def _planner(index: ClusterIndex, settings: Settings) -> Steps[Planner]:
    neighbours = Neighbours(index.view, settings)
    yield from neighbours.collect()
    return Planner(index.view, settings, neighbours)
