"""The report of a played scenario: figures, and violations found by the oracle. As text and as data.

Created by `scenario/play.py` after the scheduling loop has stopped; printed by the command line.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from extender.settings.configuration import API_VERSION, KIND, parse_settings
from extender.simulator.apiserver.kinds import NAMESPACES
from extender.simulator.json_objects import (
    JsonObject,
    is_finished,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)
from extender.simulator.oracle.gangs import GangViolation, Shares, gang_violations
from extender.simulator.oracle.journal import JournalDecision
from extender.simulator.oracle.moves import MovesOfNamespace
from extender.simulator.oracle.policies import PolicyOracle, Tally
from extender.simulator.oracle.quotas import quota_violations
from extender.simulator.oracle.turns import Turn, overtakings, overtakings_at_gates
from extender.simulator.oracle.violations import Violation, violations
from extender.simulator.scenario.language import Amount, ArriveGroups
from extender.simulator.scenario.overview import PolicyMoments, PolicyTimeline
from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from extender.simulator.scenario.synthetic import chosen


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a run for the pods that are compared: durations of filter calls in seconds, memory in megabytes.

    ``processor``: the 99th percentile of the processor time from request to answer. It includes all work of the extender
    meanwhile, also for other pods. It excludes the API server and other processes, so that two runs are comparable.
    ``waited``: the 90th percentile of the seconds from the creation of a pod to its binding.
    ``overtaken``: the 99th percentile of the turns that other pods had before a pod that came earlier. It does not depend on
    the speed of the machine.
    """

    answers: int
    median: float
    p99: float
    processor: float
    resident: float
    waited: float
    overtaken: int

    def __str__(self) -> str:
        """The line that the command prints."""
        times = f"p50 {self.median * 1000:.1f} ms, p99 {self.p99 * 1000:.1f} ms"
        more = f"p99 of processor time {self.processor * 1000:.1f} ms, {self.resident:.0f} MB resident at most"
        return f"{self.answers} answers, {times}, {more}"


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a run. `waiting` has the name and the last message of each pending pod."""

    name: str
    seed: int
    seconds: float
    placed: int
    waiting: tuple[tuple[str, str], ...]
    violations: tuple[Violation, ...]
    gang_violations: tuple[GangViolation, ...]
    policies: Tally
    policy_rows: tuple[PolicyTimeline, ...]
    moves: dict[str, MovesOfNamespace]
    failures: tuple[str, ...]
    decisions: int
    decisions_per_second: float
    bound_per_second: float
    calls: int
    nodes_used: int
    cost: Cost

    @property
    def last_line(self) -> str:
        """The last line of the output."""
        return f"placed {self.placed}, pending {len(self.waiting)}, violations {self.broken}"

    @property
    def broken(self) -> int:
        """How many violations there are, of placements and of groups."""
        return len(self.violations) + len(self.gang_violations)

    @property
    def is_good(self) -> bool:
        """Whether no constraint was violated and all expectations were met."""
        return not self.broken and not self.failures

    def document(self) -> JsonObject:
        """The report as data."""
        return {
            "scenario": self.name,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "placed": self.placed,
            "pending": len(self.waiting),
            "violations": [_violation(violation) for violation in self.violations],
            "groupViolations": [
                {"group": violation.gang, "reason": violation.reason} for violation in self.gang_violations
            ],
            "policies": {
                "judged": self.policies.pods,
                "missed": self.policies.missed,
                "acts": [_policy(row) for row in self.policy_rows],
            },
            "moves": {namespace: moves._asdict() for namespace, moves in self.moves.items()},
            "failures": list(self.failures),
            "waiting": [{"pod": pod, "message": message} for pod, message in self.waiting],
            "decisions": self.decisions,
            "decisionsPerSecond": round(self.decisions_per_second, 1),
            "boundPerSecond": round(self.bound_per_second, 1),
            "extenderCalls": self.calls,
            "nodesUsed": self.nodes_used,
            "answers": {
                "count": self.cost.answers,
                "p50Seconds": round(self.cost.median, 6),
                "p99Seconds": round(self.cost.p99, 6),
                "p99ProcessorSeconds": round(self.cost.processor, 6),
            },
            "p90WaitSeconds": round(self.cost.waited, 4),
            "p99Overtaken": self.cost.overtaken,
            "residentMegabytes": round(self.cost.resident, 1),
        }


def make_report(
    simulated: SimulatedCluster,
    failures: list[str],
    seconds: float,
    resident: float,
    narrate: Callable[[str], None] = lambda _: None,
) -> Report:
    """Computes the figures and finds the violations. O(nodes) per decision.

    ``narrate`` is called with the progress, because this may take minutes.
    """
    loop, missed = simulated.loop, simulated.api.admission.missed_pods
    moves = simulated.moves()
    decisions = loop.journal.decisions
    return Report(
        name=simulated.play.scenario.name,
        seed=simulated.seed,
        seconds=seconds,
        placed=len(loop.bound),
        waiting=tuple(simulated.waiting()),
        violations=(
            *violations(
                loop.journal,
                lag=simulated.play.scenario.lag,
                doubt=_doubt_of(simulated),
                missed=missed,
                several=simulated.play.scenario.scheduler.count > 1,
                progress=lambda judged: narrate(f"{judged} of {decisions} decisions judged"),
            ),
            *quota_violations(loop.journal, _default_of(simulated), lag=simulated.play.scenario.lag),
        ),
        gang_violations=tuple(gang_violations(loop.journal, _shares_of(simulated))),
        policies=judged_by_policies(simulated),
        policy_rows=tuple(PolicyMoments(simulated).rows(stored.read() for stored in simulated.pods())),
        moves=moves,
        failures=(*failures, *miscounted(simulated), *_failed_moves(moves)),
        decisions=loop.journal.decisions,
        decisions_per_second=loop.journal.rate(),
        bound_per_second=loop.journal.bound_per_second(),
        calls=simulated.extender_calls,
        nodes_used=len(Counter(loop.bound.values())),
        cost=_cost(simulated, resident),
    )


def _failed_moves(moves: Mapping[str, MovesOfNamespace]) -> Iterator[str]:
    """The evictions in vain, and the broken pods that a move could mend."""
    for namespace, found in moves.items():
        yield from (f"in vain: {namespace}/{text}" for text in found.in_vain)
        yield from (f"not mended: {namespace}/{name}" for name in found.mendable)


def miscounted(simulated: SimulatedCluster) -> Iterator[str]:
    """The pods that count as both placed and pending, or as neither. Then a figure of the report is wrong, perhaps more."""
    to_place, placed = simulated.loop.journal.to_place(), simulated.loop.bound
    pending = {uid_of(pod) for pod in simulated.pending()}
    differences: dict[str, list[str]] = {}
    for pod in (stored.read() for stored in simulated.pods()):
        uid = uid_of(pod)
        # A pod to place is either placed or pending.
        if uid not in to_place or is_finished(pod) or is_terminating(pod) or (uid in placed) != (uid in pending):
            continue
        differences.setdefault("both placed and" if uid in placed else "neither placed nor", []).append(
            f"{namespace_of(pod)}/{name_of(pod)}"
        )
    for what, names in differences.items():
        yield f"{len(names)} pods are {what} pending, such as {names[0]}"


def _doubt_of(simulated: SimulatedCluster) -> float:
    """The field `assumedPods.doubt` of the extender's settings, in seconds."""
    # Read by the extender's own parser, so that its default counts where the scenario sets nothing.
    section = simulated.play.scenario.extender.get("assumedPods") or {}
    return parse_settings({"apiVersion": API_VERSION, "kind": KIND, "assumedPods": section}).assumed_pods.doubt


def _shares_of(simulated: SimulatedCluster) -> Shares:
    """What `release` of the extender's settings allows a namespace."""
    section = simulated.play.scenario.extender.get("release") or {}
    release = parse_settings({"apiVersion": API_VERSION, "kind": KIND, "release": section}).release
    return Shares(
        release.groups_per_namespace,
        release.pods_per_namespace,
        release.share_per_namespace,
        release.reservation,
        release.unasked,
    )


def _default_of(simulated: SimulatedCluster) -> JsonObject:
    """The section `quota.default` of the extender's settings."""
    quota: JsonObject = simulated.play.scenario.extender.get("quota") or {}
    default: JsonObject = quota.get("default") or {}
    return default


def judged_by_policies(simulated: SimulatedCluster) -> Tally:
    """The bound pods that policies select, by the present labels of the namespaces."""
    oracle = PolicyOracle(simulated.loop.journal.policies, simulated.api.admission.missed_pods)
    if not simulated.loop.journal.policies:
        return Tally(0, 0)
    bound = [pod for pod in (stored.read() for stored in simulated.pods()) if uid_of(pod) in simulated.loop.bound]
    namespaces = {
        namespace.key: labels_of(namespace.read()) for namespace in simulated.api.store.table(NAMESPACES).latest()
    }
    return oracle.tally(bound, namespaces)


def _cost(simulated: SimulatedCluster, resident: float) -> Cost:
    """The cost for the pods that both runs of a comparison have; for all pods without a comparison."""
    comparison = simulated.play.scenario.comparison
    answers = simulated.loop.answers
    waits = list(simulated.loop.journal.waits())
    # From the run and not from the cluster, because a namespace may have been deleted meanwhile.
    homes = sorted({answer.namespace for answer in answers} | {namespace for namespace, _ in waits})
    left_out = set(chosen(comparison.without, homes)) if comparison else set()
    counted = [answer for answer in answers if answer.namespace not in left_out]
    times = sorted(answer.seconds for answer in counted)
    processor = sorted(answer.processor for answer in counted)
    waited = sorted(seconds for namespace, seconds in waits if namespace not in left_out)
    overtaken = int(_share(sorted(_overtaken(simulated, left_out).values()), 99))
    p50, p99, p99_of_processor = _share(times, 50), _share(times, 99), _share(processor, 99)
    return Cost(len(times), p50, p99, p99_of_processor, resident, _share(waited, 90), overtaken)


def _overtaken(simulated: SimulatedCluster, others: set[str]) -> Counter[str]:
    """By pod: how many turns of these namespaces came later and were served earlier, at the gate and in the queue."""
    actions = [step.action for step in simulated.play.steps]
    labels = {action.label for action in actions if isinstance(action, ArriveGroups)}
    queued = [
        Turn(answer.namespace, answer.uid, answer.queued, answer.requested + answer.seconds)
        for answer in simulated.loop.answers
    ]
    counts = overtakings_at_gates(simulated.loop.journal, labels, others)
    counts.update(overtakings(queued, others))
    return counts


def _share(ordered: Sequence[float], percent: int) -> float:
    """The percentile of ordered values; 0 if there are none."""
    # Without interpolation: the 99th percentile of 50 values is the largest.
    return ordered[len(ordered) * percent // 100] if ordered else 0.0


def is_within(count: int, wanted: Amount) -> bool:
    """Whether a count is the number wanted, or lies in the range."""
    least, most = wanted if isinstance(wanted, tuple) else (wanted, wanted)
    return least <= count <= most


def _policy(row: PolicyTimeline) -> dict[str, Any]:
    moments = {moment.lower(): count for moment, count in row.pods.items()}
    return {"policy": row.policy, "injected": list(row.fields), **moments}


def _violation(violation: Violation) -> dict[str, Any]:
    decision = violation.decision
    taken = decision if isinstance(decision, JournalDecision) else None
    return {
        "decision": taken.number if taken else None,
        "pod": decision.name,
        "node": taken.node if taken else "",
        "reason": violation.status.reason,
    }
