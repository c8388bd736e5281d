"""The metrics of the reviews of the admission webhook; those of its certificates are in `scraped`.

`Metrics` creates one `AdmissionMetrics`. Results and kinds are closed sets; no policy and no object is named.
"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

# The first three are answers of the webhook. After the others the API server follows the failure policy.
RESULTS: Final = ("allowed", "patched", "denied", "malformed", "not_ready", "overloaded", "deadline", "failed")
POLICY_KINDS: Final = ("PodSchedulingPolicy", "ClusterPodSchedulingPolicy")
POLICY_RESULTS: Final = ("applied", "unchanged", "conflict", "failed")
KINDS: Final = frozenset(
    {
        *("Pod", "ReplicationController", "ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"),
        *POLICY_KINDS,
    }
)
# 0.1 ms to 6.6 s; the API server waits 10 s. 10 ms and 50 ms are the aims for a usual and for the worst review.
_SECONDS: Final = tuple(sorted({0.01, 0.05, *(0.0001 * 2**power for power in range(17))}))


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
            buckets=_SECONDS,
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
            for result in RESULTS:
                self._reviews.labels(webhook, kind, result)  # rate() needs a value from before the first error

    def record_policy(self, kind: str, result: str) -> None:
        """Records what became of one policy that selects a reviewed object."""
        self._policies.labels(kind, result).inc()

    def record_review(self, webhook: str, kind: str, result: str, seconds: float) -> None:
        """Records an answered review."""
        self._reviews.labels(webhook, kind if kind in KINDS else "other", result).inc()
        self._duration.labels(webhook).observe(seconds)
