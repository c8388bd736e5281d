"""Declares the Prometheus metrics of the service: names, help texts, buckets.

Callers use methods, not the client library. Label values are bounded: verbs, status codes, kinds and closed sets of
reasons, never the name of a pod or node. Each `Metrics` has its own registry, so that two services in one process, as
in tests, do not share counts.
"""

import platform
from collections.abc import Callable, Iterator, Mapping
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
from extender.telemetry.verb_metrics import SECONDS, RequestCollector

T = TypeVar("T", float, Mapping[str, float], Mapping[tuple[str, str], float])

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
