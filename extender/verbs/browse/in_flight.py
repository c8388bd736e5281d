"""What is under way: preemptions whose preemptor is not bound, and groups of gated pods that are not all bound."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from extender.index.view import ClusterView
from extender.model.answers.pages import GroupRow, PreemptionRow, VictimRow
from extender.model.group_placements import GroupPlacement, PlacementStatus
from extender.model.objects import Pod
from extender.model.preemption import PreemptionPlan
from extender.model.release import GroupKey
from extender.verbs.release.overview import group_overview
from extender.verbs.release.progress import GroupState

_MOST_VICTIMS: Final = 50
_LONGEST_TEXT: Final = 500


def preemption_row(plan: PreemptionPlan, state: str, seconds: float, now: datetime, view: ClusterView) -> PreemptionRow:
    """One preemption, ``seconds`` after its plan was accepted. O(victims)."""
    shown = plan.victims[:_MOST_VICTIMS]
    return PreemptionRow(
        pod=plan.preemptor.full_name,
        node=plan.node,
        state=state,
        since=_text_of(now - timedelta(seconds=seconds)),
        priority=plan.preemptor.priority,
        victims=tuple(VictimRow(pod=each.full_name, state=_victim_state(view.pod(each.uid))) for each in shown),
        more_victims=len(plan.victims) - len(shown),
        pdb_violations=plan.pdb_violations,
    )


def _victim_state(pod: Pod | None) -> str:
    if pod is None:
        return "gone"
    return "terminating" if pod.terminating else "running"


def group_row(group: GroupState, placement: GroupPlacement | None) -> GroupRow:
    """One group. O(its pods)."""
    found = group_overview(group, placement)
    return GroupRow(
        policy=found.key.policy,
        namespace=found.key.namespace,
        key=found.key.value,
        state=found.phase,
        pods=found.pods,
        needed=found.size,
        gated=found.pods - found.released,
        released=found.released,
        bound=found.bound,
        domain=",".join(map(str, found.levels)),
        reason=found.reason,
        text=found.message[:_LONGEST_TEXT],
        since="" if found.since is None else _text_of(found.since),
    )


def large_group_row(
    key: GroupKey, size: int, pods: int, released: int, bound: int, placement: GroupPlacement | None
) -> GroupRow:
    """A group of thousands of pods, as the leader describes it: to find the next step would take milliseconds. O(1)."""
    status = PlacementStatus() if placement is None else placement.status
    return GroupRow(
        policy=key.policy,
        namespace=key.namespace,
        key=key.value,
        state=status.phase,
        pods=pods,
        needed=size,
        gated=pods - released,
        released=released,
        bound=bound,
        domain="" if placement is None else ",".join(map(str, placement.levels)),
        reason=status.reason,
        text=status.message[:_LONGEST_TEXT] or "the leader has said nothing about this group yet",
    )


def _text_of(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
