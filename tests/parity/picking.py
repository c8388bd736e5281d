"""One case of the choice among candidate nodes of a preemption."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from extender.model.preemption import Candidate, Victim, best_candidates

Case = dict[str, Any]


def differences(case: Case) -> list[str]:
    """One line where our choice is not among the scheduler's."""
    candidates = [
        Candidate(node, tuple(_victim(pod) for pod in each["pods"]), each["numPDBViolations"])
        for node, each in case["candidates"].items()
    ]
    got = sorted(candidate.node for candidate in best_candidates(candidates))
    return [] if got == case["picked"] else [f"picked: {got}, expected {case['picked']}"]


def _victim(pod: Case) -> Victim:
    started = datetime.fromisoformat(pod["startTime"]) if pod.get("startTime") else None
    return Victim(pod["uid"], pod.get("priority") or 0, started)
