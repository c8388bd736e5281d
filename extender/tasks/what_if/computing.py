"""Computes a what-if on an index of its own, in steps, so that a budget can be checked between them.

Each pod is decided by `verbs/what_if.py` and then put on its node in the index, so that the next one counts it:
as in kube-scheduler, which assumes each pod before the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final
from zlib import crc32

from msgspec import structs

from extender.features.execution.answers import NO_POLICY, MovesAnswer
from extender.features.execution.plan import answer_of, plan_moves
from extender.features.execution.schema import Movable
from extender.index.cluster import ClusterIndex
from extender.model.answers.explanations import Obstacle
from extender.model.answers.what_if import Placement, WhatIf, WhatIfAnswer, WhatIfSummary
from extender.model.bounded import Steps
from extender.settings.configuration import Settings
from extender.tasks.what_if.changes import PodToPlace, prepare
from extender.verbs.explain.explaining import UNSEEN, explain
from extender.verbs.what_if import Placing
from extender.wire.manifests import decode_what_if

MOST_EXPLAINED: Final = 20
MOST_MOVES: Final = 1000
NOT_READ: Final = "annotations of pods, local storage, ages and disruption budgets are not read for moves"


def answer_body(body: bytes, index: ClusterIndex, settings: Settings) -> Steps[WhatIfAnswer]:
    """The answer for the body of a request. Raises WireError. The index is changed."""
    what_if = decode_what_if(body, settings)
    yield
    return (yield from compute(what_if, index, settings))


def compute(what_if: WhatIf, index: ClusterIndex, settings: Settings) -> Steps[WhatIfAnswer]:
    """The answer. O(objects given + pods to place × (names × clauses)). Raises WireError. The index is changed."""
    prepared = yield from prepare(what_if, index)
    placing = Placing(index.view, settings)
    explained = _Explained(index, settings, placing)
    placements = prepared.decided
    for waiting in prepared.queue:
        placement = _place(waiting, index, placing)
        if placement.state == "rejected":
            obstacles = yield from explained.obstacles(waiting)
            placement = structs.replace(placement, obstacles=obstacles)
        placements.append(placement)
        yield
    summary, moves = _summary(placements, prepared.not_tried), None
    if what_if.moves:
        moves = yield from _moves(index, settings)
    return WhatIfAnswer(summary=summary, placements=tuple(placements), notes=tuple(prepared.notes), moves=moves)


def _moves(index: ClusterIndex, settings: Settings) -> Steps[MovesAnswer]:
    """The first `MOST_MOVES` moves that follow one another, as if each pod were old enough and its replacement ready."""
    plan = yield from plan_moves(index, settings, Movable(), MOST_MOVES)
    notes = [NOT_READ] if any(policy.execution is not None for policy in index.policies) else [NO_POLICY]
    if len(plan.moves) == MOST_MOVES:
        notes.append(f"more moves may follow: a what-if plans at most {MOST_MOVES}")
    answer = answer_of(plan, tuple(notes))
    return structs.replace(answer, stuck=answer.stuck[:MOST_MOVES])


def _place(waiting: PodToPlace, index: ClusterIndex, placing: Placing) -> Placement:
    pod = waiting.pod
    # The seed comes from the UID, so that the same what-if has the same answer.
    decision = placing.decide(pod, crc32(pod.uid.encode()))
    if decision.node:
        # Read first: once the pod is placed, its nomination and its plan keep no room on these nodes.
        released = (pod.nominated_node, index.view.plan_node(pod.uid))
        index.upsert(structs.replace(pod, node=decision.node, rejection=""))
        placing.placed((decision.node, *released))
    return Placement(
        pod=pod.full_name,
        state="placed" if decision.node else "rejected",
        origin=waiting.origin,
        node=decision.node,
        was=waiting.was,
        reason=decision.reason,
        unchecked=UNSEEN if pod.has_unseen_needs else "",
    )


class _Explained:
    """The obstacles of rejected pods, for the first `MOST_EXPLAINED`.

    An equal pod gets the same obstacles without a computation, if no pod was placed in between.
    """

    def __init__(self, index: ClusterIndex, settings: Settings, placing: Placing) -> None:
        self._view = index.view
        self._settings = settings
        self._placing = placing
        self._known: dict[Hashable, tuple[int, tuple[Obstacle, ...]]] = {}
        self._explained = 0

    def obstacles(self, waiting: PodToPlace) -> Steps[tuple[Obstacle, ...]]:
        """The obstacles of a pod; empty once enough pods are explained. O(nodes × clauses), O(1) for an equal pod."""
        kind, version = self._placing.kind(waiting.pod), self._placing.version
        known = self._known.get(kind)
        # Replicas of a workload are mostly rejected one after the other, and cost one explanation together.
        if known is not None and known[0] == version:
            return known[1]
        if self._explained >= MOST_EXPLAINED:
            return ()
        self._explained += 1
        explanation = yield from explain(waiting.pod, self._view, self._settings, offers_changes=False)
        self._known[kind] = (version, explanation.obstacles)
        return explanation.obstacles


def _summary(placements: list[Placement], not_tried: int) -> WhatIfSummary:
    states = Counter(placement.state for placement in placements)
    return WhatIfSummary(
        placed=states["placed"],
        rejected=states["rejected"],
        displaced=sum(placement.origin == "displaced" for placement in placements),
        gone=states["gone"],
        gated=states["gated"],
        not_tried=not_tried,
    )
