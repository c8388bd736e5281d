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

    def standing(self) -> tuple[int, int, int, int]:
        """The first four criteria, smaller is better: PDB violations, highest priority, their sum, how many."""
        return (
            self.pdb_violations,
            self.victims[0].priority,
            sum(victim.priority + _PRIORITY_OFFSET for victim in self.victims),
            len(self.victims),
        )

    def earliest_start(self) -> datetime:
        """The earliest start among the victims of the highest priority; the last criterion, later is better."""
        highest = max(victim.priority for victim in self.victims)
        return min(victim.start_time or _LATEST for victim in self.victims if victim.priority == highest)


def best_candidates(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates that no other one beats (several only where all five criteria tie); empty for none."""
    able = [candidate for candidate in candidates if candidate.victims]
    if not able:
        return []
    least = min(candidate.standing() for candidate in able)
    tied = [candidate for candidate in able if candidate.standing() == least]
    latest = max(candidate.earliest_start() for candidate in tied)
    return [candidate for candidate in tied if candidate.earliest_start() == latest]
