"""Declares the Prometheus metrics of the service: names, help texts, buckets.

Callers use methods, not the client library. Label values are bounded: verbs, status codes, kinds and closed sets of
reasons, never the name of a pod, node, group or policy. Each `Metrics` has its own registry, so that two services in one
process, as in tests, do not share counts. Metrics of preemption are those of KEP-4832 under the prefix `extender_`, and the
outcome of each preemption.
"""

import platform
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.parser import text_string_to_metric_families

from extender.telemetry.scraped import ScrapedCollector, ScrapedMetric, Values
from extender.telemetry.verb_metrics import SECONDS, RequestCollector

# The first three are answers of the webhook. After the others the API server follows the failure policy; `refused`: no known client.
REVIEW_RESULTS: Final = (
    *("allowed", "patched", "denied", "malformed", "not_ready", "overloaded", "deadline", "failed", "refused"),
)
POLICY_KINDS: Final = ("PodSchedulingPolicy", "ClusterPodSchedulingPolicy")
POLICY_RESULTS: Final = ("applied", "unchanged", "conflict", "failed")
KINDS: Final = frozenset(
    {
        *("Pod", "ReplicationController", "ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"),
        *POLICY_KINDS,
    }
)
# 0.1 ms to 6.6 s; the API server waits 10 s. 10 ms and 50 ms are the aims for a usual and for the worst review.
_REVIEW_SECONDS: Final = tuple(sorted({0.01, 0.05, *(0.0001 * 2**power for power in range(17))}))


class AdmissionMetrics:
    """Records each review."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._reviews = Counter(
            "extender_admission_reviews",
            "Admission reviews by webhook, kind of object and result; other stands for kinds of custom resources.",
            ["webhook", "kind", "result"],
            registry=registry,
        )
        self._duration = Histogram(
            "extender_admission_duration_seconds",
            "Time from the head of an admission review to its answer.",
            ["webhook"],
            buckets=_REVIEW_SECONDS,
            registry=registry,
        )
        self._policies = Counter(
            "extender_policy_applications",
            "Policies that selected an object at admission, by kind of policy and result: applied, unchanged (the "
            "object had it all), conflict, failed.",
            ["kind", "result"],
            registry=registry,
        )
        for kind in POLICY_KINDS:
            for result in POLICY_RESULTS:
                self._policies.labels(kind, result)
        for webhook, kind in (("mutate", "Pod"), ("validate", "PodSchedulingPolicy")):
            for result in REVIEW_RESULTS:
                self._reviews.labels(webhook, kind, result)  # rate() needs a value from before the first error

    def record_policies(self, kind: str, result: str, count: int) -> None:
        """Records what became of so many policies that select a reviewed object."""
        self._policies.labels(kind, result).inc(count)

    def record_review(self, webhook: str, kind: str, result: str, seconds: float) -> None:
        """Records an answered review."""
        self._reviews.labels(webhook, kind if kind in KINDS else "other", result).inc()
        self._duration.labels(webhook).observe(seconds)


PREEMPTION_RESULTS: Final = ("success", "error", "forbidden", "abandoned", "cancelled")
_VICTIMS: Final = (0, 1, 2, 4, 8, 16, 32, 64)
_PREEMPTION_SECONDS: Final = tuple(
    0.01 * 2**power for power in range(15)
)  # 10 ms to 164 s: from one write to a long grace period


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
            buckets=_PREEMPTION_SECONDS,
            registry=registry,
        )
        self._executions = Counter(
            "extender_preemption_executions", "Preemptions whose writes have ended.", ["result"], registry=registry
        )
        self._ended = Histogram(
            "extender_preemption_duration_seconds",
            "Time from the decision to the end of a preemption, by outcome; bound is a success.",
            ["outcome"],
            buckets=_PREEMPTION_SECONDS,
            registry=registry,
        )
        for result in PREEMPTION_RESULTS:
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
        """Records the end of a preemption: bound, deleted, failed, forbidden, lost, stuck, replaced, abandoned or cancelled."""
        self._ended.labels(outcome).observe(seconds)


DECISIONS: Final = ("room", "no_room")
PATCHES: Final = ("released", "already", "gone", "refused", "forbidden", "conflict", "unknown")
TIMEOUTS: Final = ("KeepGated", "Ungate", "UngateAtCoarserLevel")
_DECISION_SECONDS: Final = tuple(0.0005 * 2**power for power in range(12))  # 0.5 ms to 1 s
_WAIT_SECONDS: Final = tuple(0.1 * 2**power for power in range(16))  # 0.1 s to an hour


class ReleaseMetrics:
    """Records decisions, patches and the ends of groups."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._decisions = Histogram(
            "extender_release_decision_seconds",
            "Time to find a domain for a group of gated pods, by result.",
            ["result"],
            buckets=_DECISION_SECONDS,
            registry=registry,
        )
        self._patches = Counter(
            "extender_release_patches",
            "Releases of gated pods, by result. refused: the API server would refuse it again (422); unknown: no usable answer.",
            ["result"],
            registry=registry,
        )
        self._timeouts = Counter(
            "extender_release_timeouts",
            "Groups of gated pods whose decisionTimeout was over, by what the policy says happens then.",
            ["action"],
            registry=registry,
        )
        self._waits = Histogram(
            "extender_release_wait_seconds",
            "Time from the first sight of a group of gated pods until all of its pods were released.",
            buckets=_WAIT_SECONDS,
            registry=registry,
        )
        for result in DECISIONS:
            self._decisions.labels(result)
        for result in PATCHES:
            self._patches.labels(result)  # rate() needs a value from before the first error
        for action in TIMEOUTS:
            self._timeouts.labels(action)

    def record_decision(self, result: str, seconds: float) -> None:
        """Records that a domain was searched: room or no_room."""
        self._decisions.labels(result).observe(seconds)

    def record_patch(self, result: str) -> None:
        """Records the end of the release of one pod."""
        self._patches.labels(result).inc()

    def record_timeout(self, action: str) -> None:
        """Records that the time of a group was over."""
        self._timeouts.labels(action).inc()

    def record_wait(self, seconds: float) -> None:
        """Records that all pods of a group were released."""
        self._waits.observe(seconds)


EXPOSITION_TYPE: Final = CONTENT_TYPE_LATEST


class Metrics:
    """The service's metrics. `render` returns the page that Prometheus scrapes.

    What is counted elsewhere is read at each scrape (`report`); the table of those metrics is `scraped.py`.
    """

    def __init__(self, version: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # else each counter has a second, useless series
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        self._requests = RequestCollector()
        registry.register(self._requests)
        self.verbs = self._requests.verbs
        self.record_passed = self._requests.record_passed
        self.record_rejections = self._requests.record_rejections
        self.record_rule = self._requests.record_rule
        self.record_scheduled = self._requests.record_scheduled
        self._fallbacks = Counter(
            "extender_fallbacks",
            "Answers without a decision: the watched data was stale, or server.requestTimeout was over.",
            ["verb", "reason", "answer"],
            registry=registry,
        )
        self._writes = Histogram(
            "extender_api_write_duration_seconds",
            "Duration of writes to the API server, by call and result.",
            ["call", "result"],
            buckets=SECONDS,
            registry=registry,
        )
        self._last_write = Gauge(
            "extender_last_api_write_timestamp_seconds",
            "Unix time at which the last write to the API server ended, by call and result.",
            ["call", "result"],
            registry=registry,
        )
        self._config = Info("extender_config", "Mode and placement, which other metrics depend on.", registry=registry)
        build = Info("extender_build", "Version of the extender and of its Python interpreter.", registry=registry)
        build.info({"version": version, "python_version": platform.python_version()})

    def record_fallback(self, verb: str, reason: str, answer: str) -> None:
        """Records an answer without a decision; reason: "stale" or "deadline", answer: "error" or "pass"."""
        self._fallbacks.labels(verb, reason, answer).inc()

    def record_write(self, call: str, result: str, seconds: float) -> None:
        """Records the end of a write; result: "ok", "forbidden", or the error's class in lower case."""
        self._writes.labels(call, result).observe(seconds)
        self._last_write.labels(call, result).set_to_current_time()

    def report_settings(self, mode: str, placement: str) -> None:
        """Sets the mode and the placement, which do not change."""
        self._config.info({"mode": mode, "placement": placement})

    def report(self, metric: ScrapedMetric, read: Callable[[], Values]) -> None:
        """Reads the metric from the part that counts it, at each scrape. Call it once for each metric."""
        self._registry.register(ScrapedCollector(metric, read))

    def preemption(self) -> PreemptionMetrics:
        """Declares the metrics of preemption and returns them. Call it once."""
        return PreemptionMetrics(self._registry)

    def admission(self) -> AdmissionMetrics:
        """Declares the metrics of the admission webhook and returns them. Call it once."""
        return AdmissionMetrics(self._registry)

    def release(self) -> ReleaseMetrics:
        """Declares the metrics of the release of gated pods and returns them. Call it once."""
        return ReleaseMetrics(self._registry)

    def render(self) -> bytes:
        """The metrics page, of content type `EXPOSITION_TYPE`."""
        return generate_latest(self._registry)


def read_page(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """(name, labels, value) of each series of a page that a service rendered, for `doctor`. Raises ValueError if it is none."""
    for family in text_string_to_metric_families(text):
        yield from ((sample.name, sample.labels, sample.value) for sample in family.samples)
