"""Plans all moves that would follow one another, until nothing is broken or no move is allowed; and says it of one pod.

A plan works on an index of its own, for example of a snapshot: each move is carried out in the index, as if the controller and
the scheduler had done their parts. So the next move is found in the cluster as it would be then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from msgspec import structs

from extender.features.execution.answers import MoveRow, MovesAnswer
from extender.features.execution.broken import (
    BrokenConstraints,
    WatchedPods,
    broken_constraints,
    measure,
    watching_policy,
)
from extender.features.execution.moves import Move, Neighbours, Planner, Stuck
from extender.features.execution.schema import Movable
from extender.index.cluster import ClusterIndex
from extender.index.view import ClusterView
from extender.model.bounded import Steps
from extender.model.objects import Pod
from extender.settings.configuration import Settings

MOST_PLANNED: Final = 20_000
_FEW: Final = 20


@dataclass(frozen=True, slots=True)
class MovePlan:
    """The moves in order, what is left without an allowed move, and the measure before and after."""

    moves: tuple[Move, ...]
    stuck: tuple[Stuck, ...]
    before: int
    after: int


def plan_moves(index: ClusterIndex, settings: Settings, movable: Movable, most: int = MOST_PLANNED) -> Steps[MovePlan]:
    """The plan, in steps. The index is changed.

    Up to `_FEW` signatures with broken constraints: after each move all are planned again, and the best move of all is next.
    With more, each signature gets its best move in turn. O(moves × (signatures + nodes × clauses)), or O(moves × nodes ×
    clauses + signatures × moves of one signature).
    """
    broken = BrokenConstraints(index.view, settings)
    yield from broken.round(0.0)
    before, moves, stuck = broken.measure, list[Move](), list[Stuck]()
    while len(moves) < most:
        neighbours = Neighbours(index.view, settings)
        yield from neighbours.collect()
        planner, is_few = Planner(index.view, settings, neighbours), len(broken.found) <= _FEW
        found, stuck = list[Move](), []
        for watched in sorted(broken.found.values(), key=lambda pods: -measure(pods.found)):
            move, left = yield from planner.find(watched, movable)
            stuck += left
            if move is not None:
                found.append(move)
                if not is_few:
                    _carry_out(move, index)
        if not found:
            break
        chosen = [min(found, key=lambda move: move.order)] if is_few else found
        if is_few:
            _carry_out(chosen[0], index)
        moves += chosen
        yield from broken.round(0.0)
    return MovePlan(tuple(moves[:most]), tuple(stuck), before, broken.measure)


def _carry_out(move: Move, index: ClusterIndex) -> None:
    index.delete(move.pod)
    index.upsert(move.replacement)


def answer_of(plan: MovePlan, notes: tuple[str, ...] = ()) -> MovesAnswer:
    """The plan as an answer."""
    moves = tuple(map(_row, plan.moves))
    return MovesAnswer(moves, tuple(map(_row, plan.stuck)), plan.before, plan.after, notes)


def _row(found: Move | Stuck) -> MoveRow:
    row = MoveRow(
        pod=found.pod.full_name,
        constraint=str(found.place.kind),
        broken=found.broken,
        source=found.pod.node,
        policy=str(found.policy),
        state="stuck",
    )
    if isinstance(found, Stuck):
        return structs.replace(row, why=found.why)
    return structs.replace(row, state="planned", target=found.target, lowers=found.lowers)


def state_of_running(pod: Pod, view: ClusterView, settings: Settings) -> Steps[tuple[tuple[str, ...], str]]:
    """What is broken of a pod on a node, and the move that mends it or why there is none; nothing if no policy watches it.

    O(signatures + nodes × clauses).
    """
    policy, number = watching_policy(pod.signature, view, settings), view.known.get(pod.node)
    if policy is None or policy.execution is None or number is None:
        return (), ""
    findings = yield from broken_constraints({number: 1}, pod, view, settings, policy.execution.constraints)
    if not findings:
        return (), f"no constraint is broken that {policy.key} watches"
    neighbours = Neighbours(view, settings)
    yield from neighbours.collect()
    watched = WatchedPods(pod.signature, policy, policy.execution, findings)
    found = Planner(view, settings, neighbours).try_pod(pod, watched, Movable())
    text = f"a move to {found.target} would mend it" if isinstance(found, Move) else found or ""
    return tuple(finding.text for finding in findings), text
