"""The metrics of the admission webhook: its reviews, its certificates, and what the leader had to repair.

`Metrics` creates one `AdmissionMetrics`. Results and kinds are closed sets; no policy and no object is named.
"""

from collections.abc import Callable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily

from extender.telemetry.statistics import StatisticsCollector

WEBHOOKS: Final = ("mutate", "validate")
# The first three are answers of the webhook. After the others the API server follows the failure policy.
RESULTS: Final = ("allowed", "patched", "denied", "malformed", "not_ready", "overloaded", "deadline", "failed")
KINDS: Final = frozenset(
    {
        *("Pod", "ReplicationController", "ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"),
        *("PodSchedulingPolicy", "ClusterPodSchedulingPolicy"),
    }
)
_SECONDS: Final = tuple(0.0001 * 2**power for power in range(17))  # 0.1 ms to 6.6 s; the API server waits 10 s


class AdmissionMetrics:
    """Records each review, and reads the state of certificates and configurations at each scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
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
            buckets=_SECONDS,
            registry=registry,
        )
        for webhook, kind in (("mutate", "Pod"), ("validate", "PodSchedulingPolicy")):
            for result in RESULTS:
                self._reviews.labels(webhook, kind, result)  # rate() needs a value from before the first error

    def record_review(self, webhook: str, kind: str, result: str, seconds: float) -> None:
        """Records an answered review."""
        self._reviews.labels(webhook, kind if kind in KINDS else "other", result).inc()
        self._duration.labels(webhook).observe(seconds)

    def report_certificates(
        self, ends: Callable[[], Mapping[str, float]], rotations: Callable[[], Mapping[str, float]]
    ) -> None:
        """The expiry of the webhook's certificates, and the steps of their rotation."""
        text = "Unix time at which a certificate of the webhook expires: serving, or the newest authority."
        self._registry.register(
            StatisticsCollector("extender_webhook_certificate_expiry_timestamp_seconds", text, "name", ends)
        )
        text = (
            "Steps of the rotation of own certificates: prepared (new authority beside the old one), switched (new "
            "certificate in use), failed."
        )
        self._registry.register(
            StatisticsCollector("extender_webhook_certificate_rotations", text, "step", rotations, CounterMetricFamily)
        )

    def report_repairs(
        self, repairs: Callable[[], Mapping[str, float]], correct: Callable[[], Mapping[str, float]]
    ) -> None:
        """The repairs of each webhook configuration, and whether it is now as it must be."""
        text = "Writes to a webhook configuration because it was not as the settings and the certificates require."
        self._registry.register(
            StatisticsCollector(
                "extender_webhook_configuration_repairs", text, "configuration", repairs, CounterMetricFamily
            )
        )
        text = "1 if the leader last found or made the webhook configuration as required, 0 if it could not; 0 on standbys."
        self._registry.register(
            StatisticsCollector("extender_webhook_configuration_correct", text, "configuration", correct)
        )
