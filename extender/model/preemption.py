"""Victims of a preemption on one node, which candidate node the scheduler prefers, and the plan that is executed.

https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
The criteria and their order are the same as in kube-scheduler's ``pickOneNodeForPreemption``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from extender.model.objects import Pod

_PRIORITY_OFFSET = 2**31
_LATEST = datetime.max.replace(tzinfo=UTC)

# PDB violations; highest priority; sum of priorities; number of victims; minus the earliest start time.
RemovalRank = tuple[int, int, int, int, float]


class Weighed(Protocol):
    """What a victim is compared by: a pod, or the request's data about a pod."""

    @property
    def priority(self) -> int:
        """Higher is more important."""

    @property
    def start_time(self) -> datetime | None:
        """None for a pod that has not started: it counts as started now."""


def removal_rank(victims: Sequence[Weighed], pdb_violations: int) -> RemovalRank:
    """The order of nodes for preemption; smaller is better. ``victims``: at least one, the most important first."""
    highest = max(victim.priority for victim in victims)
    # Among victims of the highest priority only, as in kube-scheduler.
    earliest = min(victim.start_time or _LATEST for victim in victims if victim.priority == highest)
    # The offset makes every priority positive, so that fewer victims of negative priority are not worse.
    total = sum(victim.priority for victim in victims) + _PRIORITY_OFFSET * len(victims)
    return (pdb_violations, victims[0].priority, total, len(victims), -earliest.timestamp())


class Victim(msgspec.Struct, frozen=True, gc=False):
    """A pod to remove. ``start_time`` None means that it has not started: it counts as started now."""

    uid: str
    priority: int = 0
    start_time: datetime | None = None


class Candidate(msgspec.Struct, frozen=True):
    """A node and the pods to remove there, the most important first: the scheduler relies on that order."""

    node: str
    victims: tuple[Victim, ...]
    pdb_violations: int = 0

    def rank(self) -> RemovalRank:
        """The order of candidates; smaller is better. Only for candidates with victims."""
        return removal_rank(self.victims, self.pdb_violations)


def best_candidates(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates with the lowest rank: several only if all five criteria are equal; empty for no candidates."""
    ranked = [(candidate.rank(), candidate) for candidate in candidates if candidate.victims]
    least = min((rank for rank, _ in ranked), default=None)
    return [candidate for rank, candidate in ranked if rank == least]


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """A plan, complete before any write: the preemptor gets ``node`` once the victims are deleted."""

    preemptor: Pod
    node: str
    # Most important first, never empty; with ``preemption.crossNode`` some may be on other nodes.
    victims: tuple[Pod, ...]
    # Pods of lower priority whose nomination to the node ends.
    displaced: tuple[Pod, ...] = ()
    # How many victims are taken in spite of a disruption budget.
    pdb_violations: int = 0
