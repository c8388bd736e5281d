"""Victims of a preemption on one node, and which candidate node the scheduler prefers.

https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
The order of the criteria is that of kube-scheduler's ``pickOneNodeForPreemption``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

_PRIORITY_OFFSET = 2**31
_LATEST = datetime.max.replace(tzinfo=UTC)

# PDB violations, highest priority, sum of priorities, how many, and the negative of the time of the earliest start.
Standing = tuple[int, int, int, int, float]


@dataclass(frozen=True, slots=True)
class Victim:
    """A pod to remove. ``start_time`` None means that it has not started: it counts as started now."""

    uid: str
    priority: int = 0
    start_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node and the pods to remove there, most important first (the scheduler trusts that order, and so do we)."""

    node: str
    victims: tuple[Victim, ...]
    pdb_violations: int = 0

    def standing(self) -> Standing:
        """What candidates are compared by; smaller is better. Only for one with victims."""
        return (
            self.pdb_violations,
            self.victims[0].priority,
            sum(victim.priority + _PRIORITY_OFFSET for victim in self.victims),
            len(self.victims),
            -self._earliest_start().timestamp(),
        )

    def _earliest_start(self) -> datetime:
        """The earliest start among the victims of the highest priority."""
        highest = max(victim.priority for victim in self.victims)
        return min(victim.start_time or _LATEST for victim in self.victims if victim.priority == highest)


def best_candidates(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates that no other one beats (several only where all five criteria tie); empty for none."""
    ranked = [(candidate.standing(), candidate) for candidate in candidates if candidate.victims]
    least = min((standing for standing, _ in ranked), default=None)
    return [candidate for standing, candidate in ranked if standing == least]
