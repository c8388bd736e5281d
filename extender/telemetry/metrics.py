"""Every Prometheus metric of the service, named, helped and bucketed in one place.

The floors above call the methods here by name and never see the client library. Labels are bounded: verbs, status
codes, kinds and closed sets of reasons, never a pod's or a node's name. A `Metrics` has a registry of its own, so
that two services in one process, as in tests, do not share counts.
"""

import platform
from collections.abc import Callable, Iterable, Mapping
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
from prometheus_client.core import CounterMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from extender.telemetry.preemption import PreemptionMetrics
from extender.telemetry.statistics import (
    CountCollector,
    PairsCollector,
    ReflectorCollector,
    ReflectorFigures,
    StatisticsCollector,
)

VERBS: Final = ("filter", "prioritize", "preempt", "bind")
OK: Final = 200
EXPOSITION_TYPE: Final = CONTENT_TYPE_LATEST


def _exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Bucket bounds as Kubernetes components cut them."""
    return tuple(start * factor**power for power in range(count))


_SECONDS = _exponential(0.0001, 2, 15)  # 0.1 ms to 1.6 s: kube-scheduler's own histograms continue from 1 ms upwards
_BYTES = _exponential(256, 4, 10)  # 256 B to 64 MiB: an answer with one name up to a request with 5,000 whole nodes
_NODES = (0, 1, 5, 10, 50, 100, 200, 500, 1000, 2000, 5000, 10000)


class VerbMetrics:
    """What is counted for one verb, its labels bound once: this is called for every request."""

    def __init__(self, metrics: "Metrics", verb: str) -> None:
        self._verb = verb
        self._requests = metrics.requests
        self._succeeded = metrics.requests.labels(verb, "200")
        self._failures = metrics.failures
        self._duration = metrics.duration.labels(verb)
        self._request_bytes = metrics.request_bytes.labels(verb)
        self._response_bytes = metrics.response_bytes.labels(verb)
        self._nodes = metrics.nodes.labels(verb)
        self._by_names, self._by_objects = (metrics.questions.labels(verb, form) for form in ("names", "nodes"))
        self._last = metrics.last.labels(verb)
        self._last_decision = metrics.last_decision.labels(verb)
        self._last_failure = metrics.last_failure

    def record_answer(self, status: int, seconds: float, received: int, sent: int) -> None:
        """One request has been answered: its status, how long it took, and the bytes of both bodies."""
        (self._succeeded if status == OK else self._requests.labels(self._verb, str(status))).inc()
        self._duration.observe(seconds)
        self._request_bytes.observe(received)
        self._response_bytes.observe(sent)
        self._last.set_to_current_time()

    def record_decision(self) -> None:
        """A request was decided without an error."""
        self._last_decision.set_to_current_time()

    def record_failure(self, reason: str) -> None:
        """A request was answered with an error, of any status."""
        self._failures.labels(self._verb, reason).inc()
        self._last_failure.labels(self._verb, reason).set_to_current_time()

    def record_request(self, nodes: int, *, by_names: bool = True) -> None:
        """How many nodes a readable request had, and whether as names or as whole nodes."""
        self._nodes.observe(nodes)
        (self._by_names if by_names else self._by_objects).inc()


class Metrics:
    """The service's metrics. `render` gives the page that Prometheus reads."""

    def __init__(self, version: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # else each counter has a second series of no use
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        self._declare_requests(registry)
        self._declare_filter(registry)
        self._fallbacks = Counter(
            "extender_fallbacks",
            "Answers without a decision, as the picture of the cluster was too old or the time was over.",
            ["verb", "reason", "answer"],
            registry=registry,
        )
        self._writes = Histogram(
            "extender_api_write_duration_seconds",
            "Time that writes to the apiserver took, by call and result.",
            ["call", "result"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._last_write = Gauge(
            "extender_last_api_write_timestamp_seconds",
            "Unix time at which the last write to the apiserver ended, by call and result.",
            ["call", "result"],
            registry=registry,
        )
        self._config = Info(
            "extender_config", "Settings that the meaning of other figures hangs on.", registry=registry
        )
        build = Info("extender_build", "Version of the extender and of the interpreter it runs on.", registry=registry)
        build.info({"version": version, "python_version": platform.python_version()})
        self.verbs = {verb: VerbMetrics(self, verb) for verb in VERBS}

    def _declare_requests(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "extender_requests", "Requests answered, by HTTP status.", ["verb", "code"], registry=registry
        )
        self.failures = Counter(
            "extender_request_failures",
            "Requests that got an error for an answer; filter tells its errors with status 200.",
            ["verb", "reason"],
            registry=registry,
        )
        self.duration = Histogram(
            "extender_request_duration_seconds",
            "Time from the request's header to the finished answer.",
            ["verb"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.request_bytes = Histogram(
            "extender_request_bytes", "Size of request bodies.", ["verb"], buckets=_BYTES, registry=registry
        )
        self.response_bytes = Histogram(
            "extender_response_bytes", "Size of answers.", ["verb"], buckets=_BYTES, registry=registry
        )
        self.nodes = Histogram(
            "extender_request_nodes",
            "Nodes that a request asked about; for preempt, candidate nodes.",
            ["verb"],
            buckets=_NODES,
            registry=registry,
        )
        self.questions = Counter(
            "extender_requests_by_form",
            "Requests that could be read, by the form of their nodes: names, or whole nodes (nodeCacheCapable false).",
            ["verb", "form"],
            registry=registry,
        )
        self.last = Gauge(
            "extender_last_request_timestamp_seconds",
            "Unix time of the last answer, 0 before the first.",
            ["verb"],
            registry=registry,
        )
        self.last_decision = Gauge(
            "extender_last_decision_timestamp_seconds",
            "Unix time of the last request that was decided without an error, 0 before the first.",
            ["verb"],
            registry=registry,
        )
        self.last_failure = Gauge(
            "extender_last_failure_timestamp_seconds",
            "Unix time of the last request that got an error for an answer, by reason.",
            ["verb", "reason"],
            registry=registry,
        )
        self._in_flight = Gauge(
            "extender_requests_in_flight", "Verb requests being read or answered now.", registry=registry
        )

    def _declare_filter(self, registry: CollectorRegistry) -> None:
        self._passed = Histogram(
            "extender_filter_passed_nodes", "Nodes named in a filter answer.", buckets=_NODES, registry=registry
        )
        self._rejections = Counter(
            "extender_filter_rejections",
            "Filter answers in which no node passed, once for each reason that stood in the answer.",
            ["reason"],
            registry=registry,
        )

    def record_passed(self, nodes: int) -> None:
        """How many nodes a filter answer named."""
        self._passed.observe(nodes)

    def record_rejections(self, reasons: Iterable[str]) -> None:
        """A filter answer let no node pass, for these reasons."""
        for reason in reasons:
            self._rejections.labels(reason).inc()

    def record_fallback(self, verb: str, reason: str, answer: str) -> None:
        """A request was answered without a decision: "stale" or "deadline", by "error" or "pass"."""
        self._fallbacks.labels(verb, reason, answer).inc()

    def record_write(self, call: str, result: str, seconds: float) -> None:
        """One write to the apiserver has ended: "ok", "forbidden", or the error's class in lower case."""
        self._writes.labels(call, result).observe(seconds)
        self._last_write.labels(call, result).set_to_current_time()

    def report_settings(self, mode: str, placement: str) -> None:
        """Reports the mode and the placement, which do not change."""
        self._config.info({"mode": mode, "placement": placement})

    def report_in_flight(self, count: Callable[[], int]) -> None:
        """Read at each scrape how many requests are in flight."""
        self._in_flight.set_function(count)

    def report_index(self, statistics: Callable[[], Mapping[str, float]]) -> None:
        """Read the index's own statistics at each scrape."""
        text = "Entries in the index: objects by kind, and what is counted for them."
        self._registry.register(StatisticsCollector("extender_index_entries", text, "kind", statistics))

    def report_limits(self, pods: Callable[[], Mapping[str, float]]) -> None:
        """Read at each scrape how many pods are above a limit of the configuration, by its name."""
        text = (
            "Pods that ask for more than a limit allows, placed or not, by limit; offload mode rejects those that ask."
        )
        self._registry.register(StatisticsCollector("extender_pods_over_limit", text, "limit", pods))

    def report_rejection_cache(self, hits: Callable[[], int], held: Callable[[], int]) -> None:
        """Read at each scrape how many rejections came from the cache, and its bytes."""
        text = "Rejections answered from the cache, since nothing they depend on had changed."
        self._registry.register(CountCollector("extender_rejection_cache_hits", text, hits))
        size = Gauge("extender_rejection_cache_bytes", "Size of the rejection cache.", registry=self._registry)
        size.set_function(held)

    def report_readiness(self, checks: Callable[[], Mapping[str, str]]) -> None:
        """Read at each scrape which readiness checks pass; an empty text is a pass."""
        text = "1 where a readiness check passes, 0 where it does not."

        def passing() -> dict[str, float]:
            return {name: float(not problem) for name, problem in checks().items()}

        self._registry.register(StatisticsCollector("extender_ready", text, "check", passing))

    def report_lag(self, seconds: Callable[[], Mapping[str, float]]) -> None:
        """Read at each scrape how long ago the last event of each resource was."""
        text = "Seconds since the last event, bookmark or page of a resource; a quiet one is heard of once a minute."
        self._registry.register(StatisticsCollector("extender_cache_lag_seconds", text, "resource", seconds))

    def report_reflectors(self, reflectors: Callable[[], Iterable[ReflectorFigures]]) -> None:
        """Read at each scrape how every reflector is doing."""
        self._registry.register(ReflectorCollector(reflectors))

    def report_relist_changes(self, changes: Callable[[], Mapping[str, float]]) -> None:
        """Read at each scrape the changes that later lists brought and the watches missed."""
        text = "Objects that a later list changed: what the watch had not told, so 0 in a well-behaved cluster."
        self._registry.register(
            StatisticsCollector("extender_relist_changes", text, "resource", changes, CounterMetricFamily)
        )

    def report_assumed(
        self, pods: Callable[[], Mapping[str, float]], endings: Callable[[], Mapping[str, float]]
    ) -> None:
        """Read at each scrape the assumed pods by place (one, several), and the assumptions that no binding ended."""
        text = "Pods let through and not yet seen on a node: given one node, given several, or doubted (assumedPods.doubt)."
        self._registry.register(StatisticsCollector("extender_assumed_pods", text, "place", pods))
        text = "Assumptions that ended without a binding: expired, or failed by the scheduler's report."
        self._registry.register(
            StatisticsCollector("extender_assumed_endings", text, "how", endings, CounterMetricFamily)
        )

    def report_waits(self, begun: Callable[[], int], given_up: Callable[[], int]) -> None:
        """Read at each scrape how many requests waited for assumed pods, and how many of them in vain."""
        text = "Requests that waited for an assumed pod's node."
        self._registry.register(CountCollector("extender_assumed_pod_waits", text, begun))
        text = "Requests that waited until assumedPods.wait was over, and counted the pod wherever it is worst."
        self._registry.register(CountCollector("extender_assumed_pod_waits_given_up", text, given_up))

    def report_watched_pods(self, waits: Callable[[], int], rejections: Callable[[], Mapping[str, float]]) -> None:
        """Read at each scrape how many requests waited for the watch to show their pod, and how many it did not confirm."""
        text = "Requests that waited for the watch to show their pod, or to show it as the request does."
        self._registry.register(CountCollector("extender_pod_waits", text, waits))
        text = "Filter and preempt requests refused for the moment because of what the watch shows of their pod."
        self._registry.register(
            StatisticsCollector("extender_pods_refused", text, "reason", rejections, CounterMetricFamily)
        )

    def report_audit(self, rounds: Callable[[], int], differences: Callable[[], int]) -> None:
        """Read at each scrape how often everything was recounted, and how many counts were found wrong."""
        text = "Rounds in which every running count was recounted while the service ran."
        self._registry.register(CountCollector("extender_audit_rounds", text, rounds))
        text = "Running counts that a recount found wrong; each time everything is counted anew."
        self._registry.register(CountCollector("extender_audit_differences", text, differences))

    def report_rejected_pod_actions(self, results: Callable[[], Mapping[tuple[str, str], float]]) -> None:
        """Read at each scrape what came of nominating and requeueing rejected pods."""
        text = "Rejected pods to nominate elsewhere or to requeue, by result; nowhere: no other node passes either."
        self._registry.register(PairsCollector("extender_rejected_pod_actions", text, ("action", "result"), results))

    def report_restarts(self, restarts: Callable[[], Mapping[str, float]]) -> None:
        """Read at each scrape how often each long-lived task died and was started again."""
        text = "Long-lived tasks that failed and were started again."
        self._registry.register(
            StatisticsCollector("extender_task_restarts", text, "task", restarts, CounterMetricFamily)
        )

    def preemption(self) -> PreemptionMetrics:
        """The metrics of preemption, declared on this call; to be called once."""
        return PreemptionMetrics(self._registry)

    def report_leadership(self, leads: Callable[[], bool], terms: Callable[[], int], gap: Callable[[], float]) -> None:
        """Read at each scrape whether this replica leads, how often it has begun to, and the gap before that (seconds)."""
        leader = Gauge("extender_leader", "1 in the replica that leads, 0 in a standby.", registry=self._registry)
        leader.set_function(leads)
        text = "Seconds from the last sign of life of the leader before to this replica's first answer; 0 without one."
        Gauge("extender_leader_gap_seconds", text, registry=self._registry).set_function(gap)
        text = "Terms of leadership that this replica has begun."
        self._registry.register(CountCollector("extender_leader_terms", text, terms))

    def report_certificates(
        self,
        ends: Callable[[], Mapping[str, float]],
        reloads: Callable[[], Mapping[str, float]],
        unusable: Callable[[], Mapping[str, float]],
    ) -> None:
        """Read at each scrape when the certificates in use expire, how often changed files were taken in, and why not."""
        expiry = "Unix time at which a certificate expires; of the client CAs that are valid the first."
        self._registry.register(
            StatisticsCollector("extender_certificate_expiry_timestamp_seconds", expiry, "name", ends)
        )
        read = "Changes of the certificate files, taken in or, where they were of no use, not."
        self._registry.register(
            StatisticsCollector("extender_certificate_reloads", read, "result", reloads, CounterMetricFamily)
        )
        text = "1 while the certificate files on disk cannot be used, by cause; the ones before stay in use."
        self._registry.register(StatisticsCollector("extender_certificate_files_unusable", text, "cause", unusable))

    def render(self) -> bytes:
        """The metrics page; its content type is `EXPOSITION_TYPE`."""
        return generate_latest(self._registry)
