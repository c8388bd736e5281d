"""Declares the Prometheus metrics of the service: names, help texts, buckets.

Callers use methods, not the client library. Label values are bounded: verbs, status codes, kinds and closed sets of
reasons, never the name of a pod or node. Each `Metrics` has its own registry, so that two services in one process, as
in tests, do not share counts.
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

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

from extender.telemetry.admission import AdmissionMetrics
from extender.telemetry.preemption import PreemptionMetrics
from extender.telemetry.release import ReleaseMetrics
from extender.telemetry.scraped import ScrapedCollector, ScrapedMetric

T = TypeVar("T", float, Mapping[str, float], Mapping[tuple[str, str], float])

VERBS: Final = ("filter", "prioritize", "preempt", "bind")
OK: Final = 200
EXPOSITION_TYPE: Final = CONTENT_TYPE_LATEST


def _exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Bucket bounds, as `ExponentialBuckets` of Kubernetes components."""
    return tuple(start * factor**power for power in range(count))


_SECONDS = _exponential(0.0001, 2, 15)  # 0.1 ms to 1.6 s; kube-scheduler's histograms of the same calls start at 1 ms
_BYTES = _exponential(256, 4, 10)  # 256 B to 64 MiB: from an answer with one name to a request with 5,000 whole nodes
_NODES = (0, 1, 5, 10, 50, 100, 200, 500, 1000, 2000, 5000, 10000)


class VerbMetrics:
    """The metrics of one verb. Looks the labelled series up once, because it is called for every request."""

    def __init__(self, metrics: "Metrics", verb: str) -> None:
        self._verb = verb
        self._requests = metrics.requests
        self._succeeded = metrics.requests.labels(verb, "200")
        self._failures = metrics.failures
        self._duration = metrics.duration.labels(verb)
        self._request_bytes = metrics.request_bytes.labels(verb)
        self._response_bytes = metrics.response_bytes.labels(verb)
        self._nodes = metrics.nodes.labels(verb)
        self._by_names, self._by_objects = (metrics.by_form.labels(verb, form) for form in ("names", "nodes"))
        self._last = metrics.last.labels(verb)
        self._last_decision = metrics.last_decision.labels(verb)
        self._last_failure = metrics.last_failure

    def record_answer(self, status: int, seconds: float, received: int, sent: int) -> None:
        """Records an answer: HTTP status, duration, bytes of the request's and of the answer's body."""
        (self._succeeded if status == OK else self._requests.labels(self._verb, str(status))).inc()
        self._duration.observe(seconds)
        self._request_bytes.observe(received)
        self._response_bytes.observe(sent)
        self._last.set_to_current_time()

    def record_decision(self) -> None:
        """Records that a request was decided without an error."""
        self._last_decision.set_to_current_time()

    def record_failure(self, reason: str) -> None:
        """Records that a request was answered with an error, of any HTTP status."""
        self._failures.labels(self._verb, reason).inc()
        self._last_failure.labels(self._verb, reason).set_to_current_time()

    def record_request(self, nodes: int, *, by_names: bool = True) -> None:
        """Records how many nodes a decoded request had, and whether as names or as whole nodes."""
        self._nodes.observe(nodes)
        (self._by_names if by_names else self._by_objects).inc()


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
        self._declare_requests(registry)
        self._declare_filter(registry)
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
            buckets=_SECONDS,
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
        self.verbs = {verb: VerbMetrics(self, verb) for verb in VERBS}

    def _declare_requests(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "extender_requests", "Requests answered, by HTTP status.", ["verb", "code"], registry=registry
        )
        self.failures = Counter(
            "extender_request_failures",
            "Requests answered with an error, by reason; errors of filter have HTTP status 200.",
            ["verb", "reason"],
            registry=registry,
        )
        self.duration = Histogram(
            "extender_request_duration_seconds",
            "Time from the request's header until the answer is ready to be sent.",
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
            "Nodes in a request; for preempt, candidate nodes.",
            ["verb"],
            buckets=_NODES,
            registry=registry,
        )
        self.by_form = Counter(
            "extender_requests_by_form",
            "Decoded requests by the form of their nodes: names, or whole nodes (nodeCacheCapable false).",
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
            "Unix time of the last request decided without an error, 0 before the first.",
            ["verb"],
            registry=registry,
        )
        self.last_failure = Gauge(
            "extender_last_failure_timestamp_seconds",
            "Unix time of the last request answered with an error, by reason.",
            ["verb", "reason"],
            registry=registry,
        )

    def _declare_filter(self, registry: CollectorRegistry) -> None:
        self._passed = Histogram(
            "extender_filter_passed_nodes", "Nodes named in a filter answer.", buckets=_NODES, registry=registry
        )
        self._rejections = Counter(
            "extender_filter_rejections",
            "Filter answers in which no node passed, counted once for each reason in the answer.",
            ["reason"],
            registry=registry,
        )

    def record_passed(self, nodes: int) -> None:
        """Records how many nodes a filter answer named."""
        self._passed.observe(nodes)

    def record_rejections(self, reasons: Iterable[str]) -> None:
        """Records the reasons of a filter answer in which no node passed."""
        for reason in reasons:
            self._rejections.labels(reason).inc()

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

    def report(self, metric: ScrapedMetric[T], read: Callable[[], T]) -> None:
        """Reads the metric from the part that counts it, at each scrape. Call it once for each metric."""
        self._registry.register(ScrapedCollector(metric.family, read))

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
