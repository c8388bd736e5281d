"""What a group of gated pods looks like from outside: how far it is, where it goes, and why it waits.

For commands that read a cluster once. The leader writes what it knows into the status of the GroupPlacement: which
domains have no room, that a timeout has passed. Where the status is about fewer or more pods than there are now, or
there is none, the next step of the group says why it waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from extender.model.group_placements import GroupPlacement, PlacementStatus
from extender.model.objects import Pod
from extender.model.policies import GROUP
from extender.model.release import GroupKey, Level, Phase
from extender.verbs.release.progress import Do, GroupState, next_step

UNDECIDED: Final = "Undecided"
"""The reason of a group that is complete while no leader has said anything about it."""

_OWN_GATES: Final = f"{GROUP}/"


@dataclass(frozen=True, slots=True)
class GroupOverview:
    """One group. ``pods`` exist, ``released`` of them have no gate of ours any more, and ``bound`` of these have a node.

    ``size`` is 0 where the pods tell none. ``since``: when its oldest pod was created. ``timeout``: the policy's, in seconds.
    """

    key: GroupKey
    phase: Phase
    levels: tuple[Level, ...]
    size: int
    pods: int
    released: int
    bound: int
    since: datetime | None
    timeout: float
    reason: str
    message: str

    @property
    def is_waiting(self) -> bool:
        """Whether a pod of it is held at the gate."""
        return self.released < self.pods

    def age(self, now: datetime) -> float:
        """Seconds since its oldest pod was created; 0 where that is not known."""
        return max((now - self.since).total_seconds(), 0.0) if self.since is not None else 0.0

    def is_overdue(self, now: datetime) -> bool:
        """Whether pods of it are held for longer than the policy lets a decision take."""
        return self.is_waiting and self.age(now) > self.timeout


@dataclass(frozen=True, slots=True)
class StrayPod:
    """A pod with a gate of ours that no policy releases."""

    pod: str
    gate: str
    since: datetime | None


def group_overview(group: GroupState, placement: GroupPlacement | None, *, is_partial: bool = False) -> GroupOverview:
    """The group as its pods and its object show it. ``is_partial``: its bound pods are not known. O(pods of the group)."""
    decision = None if placement is None else placement.decision
    released = len(group.released) + len(group.bound)
    step = next_step(group, decision, ())
    reason, message = str(step.reason), step.message
    if step.do is Do.DECIDE:
        reason, message = UNDECIDED, "all pods exist, and the leader has not decided yet"
    status = PlacementStatus(step.phase, group.ready, released, len(group.bound), reason, message)
    told = None if placement is None else placement.status
    if told is not None and told.reason and (is_partial or _counts(told) == _counts(status)):
        status = told
    pods = (*group.waiting, *(pod for pod, _ in group.blocked), *group.released, *group.bound)
    created = [pod.gating.created for pod in pods if pod.gating is not None and pod.gating.created is not None]
    return GroupOverview(
        group.key,
        status.phase,
        () if decision is None else decision.levels,
        group.size,
        group.ready,
        released,
        len(group.bound),
        min(created, default=None),
        group.spec.decision_timeout,
        status.reason,
        status.message,
    )


def _counts(status: PlacementStatus) -> tuple[int, int, int]:
    return status.ready, status.released, status.bound


def stray_pods(pods: Iterable[Pod], grouped: set[str]) -> Iterator[StrayPod]:
    """The pods that wait at a gate of ours and are in no group; ``grouped`` are the UIDs of those that are."""
    for pod in pods:
        if pod.gating is None or pod.terminating or pod.uid in grouped:
            continue
        gate = next((each for each in pod.gating.gates if each.startswith(_OWN_GATES)), "")
        if gate:
            yield StrayPod(pod.full_name, gate, pod.gating.created)
