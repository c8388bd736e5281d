"""The metrics of preemption: those of KEP-4832 under the prefix `extender_`, and the outcome of each preemption.

`Metrics` creates one `PreemptionMetrics`; `tasks.preemption.manager` calls it through a Protocol and does not depend on
Prometheus. Results and outcomes are closed sets.
"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

RESULTS: Final = ("success", "error", "forbidden", "abandoned", "cancelled")
_VICTIMS: Final = (0, 1, 2, 4, 8, 16, 32, 64)
_SECONDS: Final = tuple(0.01 * 2**power for power in range(15))  # 10 ms to 164 s: from one write to a long grace period


class PreemptionMetrics:
    """Records the start, the writes and the end of each preemption."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempts = Counter("extender_preemption_attempts", "Preemptions started.", registry=registry)
        self._victims = Histogram(
            "extender_preemption_victims",
            "Victims of one preemption, without pods that were terminating already.",
            buckets=_VICTIMS,
            registry=registry,
        )
        self._violations = Counter(
            "extender_preemption_pdb_violations",
            "Victims whose deletion violated a PodDisruptionBudget.",
            registry=registry,
        )
        self._execution = Histogram(
            "extender_preemption_execution_seconds",
            "Time from the decision to the end of the writes of a preemption, by result.",
            ["result"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._executions = Counter(
            "extender_preemption_executions", "Preemptions whose writes have ended.", ["result"], registry=registry
        )
        self._ended = Histogram(
            "extender_preemption_duration_seconds",
            "Time from the decision to the end of a preemption, by outcome; bound is a success.",
            ["outcome"],
            buckets=_SECONDS,
            registry=registry,
        )
        for result in RESULTS:
            self._executions.labels(result)  # rate() needs a value from before the first error

    def record_start(self, victims: int) -> None:
        """Records an accepted plan and its victims."""
        self._attempts.inc()
        self._victims.observe(victims)

    def record_violation(self) -> None:
        """Records the deletion of a victim that a PodDisruptionBudget protects."""
        self._violations.inc()

    def record_execution(self, result: str, seconds: float) -> None:
        """Records the end of the writes of a plan."""
        self._executions.labels(result).inc()
        self._execution.labels(result).observe(seconds)

    def record_end(self, outcome: str, seconds: float) -> None:
        """Records the end of a preemption: bound, deleted, failed, forbidden, stuck, replaced, abandoned or cancelled."""
        self._ended.labels(outcome).observe(seconds)
