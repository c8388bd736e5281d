"""What came of a played scenario, counted and judged; its last line, and its form as data.

Pure, once the stage has stopped scheduling. Called by `play.py`; printed by the command line.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from extender.simulate.json_objects import JsonObject, name_of, namespace_of, uid_of
from extender.simulate.scenario import Amount
from extender.simulate.stage import Stage
from extender.simulate.verdict import Violation, violations


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a run. `waiting` holds, for each pending pod, its name and why it was refused last."""

    name: str
    seed: int
    seconds: float
    placed: int
    waiting: tuple[tuple[str, str], ...]
    violations: tuple[Violation, ...]
    failures: tuple[str, ...]
    decisions: int
    decisions_per_second: float
    bound_per_second: float
    calls: int
    nodes_used: int

    @property
    def last_line(self) -> str:
        """The line that a run ends with."""
        return f"placed {self.placed}, pending {len(self.waiting)}, violations {len(self.violations)}"

    @property
    def is_good(self) -> bool:
        """No constraint was broken and everything came out as expected."""
        return not self.violations and not self.failures

    def document(self) -> JsonObject:
        """The report as data."""
        return {
            "scenario": self.name,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "placed": self.placed,
            "pending": len(self.waiting),
            "violations": [_violation(violation) for violation in self.violations],
            "failures": list(self.failures),
            "waiting": [{"pod": pod, "message": message} for pod, message in self.waiting],
            "decisions": self.decisions,
            "decisionsPerSecond": round(self.decisions_per_second, 1),
            "boundPerSecond": round(self.bound_per_second, 1),
            "extenderCalls": self.calls,
            "nodesUsed": self.nodes_used,
        }


def make_report(stage: Stage, failures: list[str], seconds: float) -> Report:
    """Count and judge. The judging takes time: O(pods) for each decision."""
    loop = stage.loop
    waiting = [(f"{namespace_of(pod)}/{name_of(pod)}", loop.messages.get(uid_of(pod), "")) for pod in stage.pending()]
    return Report(
        name=stage.play.scenario.name,
        seed=stage.seed,
        seconds=seconds,
        placed=len(loop.bound),
        waiting=tuple(waiting),
        violations=tuple(violations(loop.journal, lag=stage.play.scenario.lag)),
        failures=tuple(failures),
        decisions=loop.journal.decisions,
        decisions_per_second=loop.journal.rate(),
        bound_per_second=loop.journal.bound_per_second(),
        calls=loop.extender_calls,
        nodes_used=len(Counter(loop.bound.values())),
    )


def is_within(count: int, wanted: Amount) -> bool:
    """Whether a count is the number wanted, or lies in the range."""
    least, most = wanted if isinstance(wanted, tuple) else (wanted, wanted)
    return least <= count <= most


def _violation(violation: Violation) -> dict[str, Any]:
    decision = violation.decision
    return {
        "decision": decision.number,
        "pod": decision.name,
        "node": decision.node,
        "reason": violation.finding.reason,
    }
