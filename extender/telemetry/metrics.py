"""Renders the metrics page. The one module that knows the client library of Prometheus.

`catalogue.py` declares the metrics. Every value is a plain number of the part that counts it, and is read at each scrape. So a count
costs no lock, and the parts do not depend on Prometheus: one thread, the event loop's, counts and reads.
"""

import platform
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import time
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from extender.telemetry import catalogue
from extender.telemetry.metric_declaration import MetricDeclaration, MetricKind
from extender.telemetry.verb_metrics import Distribution, RequestMetrics, Value, Values

Report = Callable[[MetricDeclaration, Callable[[], Values]], None]

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


class AdmissionMetrics:
    """Records each review."""

    def __init__(self, report: Report) -> None:
        # rate() needs a value from before the first error
        self._reviews: Counter[tuple[str, str, str]] = Counter(
            {
                (webhook, kind, result): 0
                for webhook, kind in (("mutate", "Pod"), ("validate", "PodSchedulingPolicy"))
                for result in REVIEW_RESULTS
            }
        )
        self._durations = _distributions(catalogue.REVIEW_SECONDS)
        self._policies: Counter[tuple[str, str]] = Counter(
            {(kind, result): 0 for kind in POLICY_KINDS for result in POLICY_RESULTS}
        )
        report(catalogue.REVIEWS, lambda: self._reviews)
        report(catalogue.REVIEW_SECONDS, lambda: self._durations)
        report(catalogue.POLICY_APPLICATIONS, lambda: self._policies)

    def record_policies(self, kind: str, result: str, count: int) -> None:
        """Records what became of so many policies that select a reviewed object."""
        self._policies[kind, result] += count

    def record_review(self, webhook: str, kind: str, result: str, seconds: float) -> None:
        """Records an answered review."""
        # A custom resource may have any kind, and each value of a label is a series for ever.
        self._reviews[webhook, kind if kind in KINDS else "other", result] += 1
        self._durations[webhook].observe(seconds)


PREEMPTION_RESULTS: Final = ("success", "error", "forbidden", "abandoned", "cancelled")


class PreemptionMetrics:
    """Records the start, the writes and the end of each preemption."""

    def __init__(self, report: Report) -> None:
        self._attempts = 0
        self._violations = 0
        self._victims = Distribution(catalogue.PREEMPTION_VICTIMS.buckets)
        self._execution = _distributions(catalogue.PREEMPTION_EXECUTION_SECONDS)
        self._executions = Counter(
            dict.fromkeys(PREEMPTION_RESULTS, 0)
        )  # a value from before the first error, for rate()
        self._ended = _distributions(catalogue.PREEMPTION_SECONDS)
        report(catalogue.PREEMPTION_ATTEMPTS, lambda: self._attempts)
        report(catalogue.PREEMPTION_VICTIMS, lambda: self._victims)
        report(catalogue.PREEMPTION_VIOLATIONS, lambda: self._violations)
        report(catalogue.PREEMPTION_EXECUTION_SECONDS, lambda: self._execution)
        report(catalogue.PREEMPTION_EXECUTIONS, lambda: self._executions)
        report(catalogue.PREEMPTION_SECONDS, lambda: self._ended)

    def record_start(self, victims: int) -> None:
        """Records an accepted plan and its victims."""
        self._attempts += 1
        self._victims.observe(victims)

    def record_violation(self) -> None:
        """Records the deletion of a victim that a PodDisruptionBudget protects."""
        self._violations += 1

    def record_execution(self, result: str, seconds: float) -> None:
        """Records the end of the writes of a plan."""
        self._executions[result] += 1
        self._execution[result].observe(seconds)

    def record_end(self, outcome: str, seconds: float) -> None:
        """Records the end of a preemption: bound, deleted, failed, forbidden, lost, stuck, replaced, abandoned or cancelled."""
        self._ended[outcome].observe(seconds)


DECISIONS: Final = ("room", "no_room")
PATCHES: Final = ("released", "already", "gone", "refused", "forbidden", "conflict", "unknown")
TIMEOUTS: Final = ("Wait", "Anywhere", "CoarserDomain")


class ReleaseMetrics:
    """Records decisions, patches and the ends of groups."""

    def __init__(self, report: Report) -> None:
        # rate() needs a value from before the first error
        self._decisions = _distributions(catalogue.RELEASE_DECISION_SECONDS, DECISIONS)
        self._patches = Counter(dict.fromkeys(PATCHES, 0))
        self._timeouts = Counter(dict.fromkeys(TIMEOUTS, 0))
        self._waits = Distribution(catalogue.RELEASE_WAIT_SECONDS.buckets)
        report(catalogue.RELEASE_DECISION_SECONDS, lambda: self._decisions)
        report(catalogue.RELEASE_PATCHES, lambda: self._patches)
        report(catalogue.RELEASE_TIMEOUTS, lambda: self._timeouts)
        report(catalogue.RELEASE_WAIT_SECONDS, lambda: self._waits)

    def record_decision(self, result: str, seconds: float) -> None:
        """Records that a domain was searched: room or no_room."""
        self._decisions[result].observe(seconds)

    def record_patch(self, result: str) -> None:
        """Records the end of the release of one pod."""
        self._patches[result] += 1

    def record_timeout(self, action: str) -> None:
        """Records that the time of a group was over."""
        self._timeouts[action] += 1

    def record_wait(self, seconds: float) -> None:
        """Records that all pods of a group were released."""
        self._waits.observe(seconds)


def _distributions(declaration: MetricDeclaration, labels: tuple[str, ...] = ()) -> defaultdict[str, Distribution]:
    """Histograms by the one label of the metric; each label value gets its series when it is first seen, these ``labels`` at once."""
    # Labels that are known beforehand get a series at once: rate() needs a value from before the first event.
    made = defaultdict(lambda: Distribution(declaration.buckets))
    for label in labels:
        made[label] = Distribution(declaration.buckets)
    return made


EXPOSITION_TYPE: Final = CONTENT_TYPE_LATEST


class Metrics:
    """The service's metrics. `render` returns the page that Prometheus scrapes.

    Each `Metrics` has its own registry, so that two services in one process, as in tests, do not share counts.
    """

    def __init__(self, version: str) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        requests = RequestMetrics()
        for declaration, read in requests.readings().items():
            self.report(declaration, read)
        self.verbs = requests.verbs
        self.record_passed = requests.record_passed
        self.record_rejections = requests.record_rejections
        self.record_rule = requests.record_rule
        self.record_scheduled = requests.record_scheduled
        self._fallbacks: Counter[tuple[str, str, str]] = Counter()
        self._writes: defaultdict[tuple[str, str], Distribution] = defaultdict(
            lambda: Distribution(catalogue.API_WRITE_SECONDS.buckets)
        )
        self._last_write: dict[tuple[str, str], float] = {}
        self.report(catalogue.FALLBACKS, lambda: self._fallbacks)
        self.report(catalogue.API_WRITE_SECONDS, lambda: self._writes)
        self.report(catalogue.LAST_API_WRITE, lambda: self._last_write)
        self.report(catalogue.BUILD, lambda: {(platform.python_version(), version): 1})

    def record_fallback(self, verb: str, reason: str, answer: str) -> None:
        """Records an answer without a decision; reason: "stale" or "deadline", answer: "error" or "pass"."""
        self._fallbacks[verb, reason, answer] += 1

    def record_write(self, call: str, result: str, seconds: float) -> None:
        """Records the end of a write; result: "ok", "forbidden", or the error's class in lower case."""
        self._writes[call, result].observe(seconds)
        self._last_write[call, result] = time()

    def report(self, metric: MetricDeclaration, read: Callable[[], Values]) -> None:
        """Reads the metric from the part that counts it, at each scrape. Call it once for each metric."""
        self._registry.register(_Reader(metric, read))

    def preemption(self) -> PreemptionMetrics:
        """Reports the metrics of preemption and returns what records them. Call it once."""
        return PreemptionMetrics(self.report)

    def admission(self) -> AdmissionMetrics:
        """Reports the metrics of the admission webhook and returns what records them. Call it once."""
        return AdmissionMetrics(self.report)

    def release(self) -> ReleaseMetrics:
        """Reports the metrics of the release of gated pods and returns what records them. Call it once."""
        return ReleaseMetrics(self.report)

    def render(self) -> bytes:
        """The metrics page, of content type `EXPOSITION_TYPE`."""
        return generate_latest(self._registry)


_Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
_FAMILIES: Final[Mapping[MetricKind, type[_Family]]] = {
    MetricKind.COUNTER: CounterMetricFamily,
    MetricKind.GAUGE: GaugeMetricFamily,
    MetricKind.HISTOGRAM: HistogramMetricFamily,
}


class _Reader(Collector):
    """Reads one metric at each scrape. Cost: one call of ``read``, O(its items)."""

    def __init__(self, metric: MetricDeclaration, read: Callable[[], Values]) -> None:
        self._metric = metric
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape."""
        # A family is made anew for each scrape, because it collects the samples of that scrape.
        family, read = self._family(), self._read()
        for key, value in read.items() if isinstance(read, Mapping) else (((), read),):
            # A metric with one label has plain strings as keys.
            labels = (key,) if isinstance(key, str) else key
            # The client library pairs names and values without a check: a missing value would drop its label.
            if len(labels) != len(self._metric.labels):
                raise ValueError(f"{self._metric.series}: got {labels}")
            _add(family, labels, value)
        yield family

    def describe(self) -> list[Metric]:
        """Called at registration, so that two metrics of one name are rejected without reading figures."""
        return [self._family()]

    def _family(self) -> _Family:
        return _FAMILIES[self._metric.kind](self._metric.name, self._metric.text, labels=self._metric.labels)


def _add(family: _Family, labels: Sequence[str], value: Value) -> None:
    """Adds one series."""
    if isinstance(family, HistogramMetricFamily) and isinstance(value, Distribution):
        buckets = [(floatToGoString(bound), float(count)) for bound, count in value.cumulative()]  # type: ignore[no-untyped-call]
        family.add_metric(labels, buckets, value.total)
    elif not isinstance(family, HistogramMetricFamily) and not isinstance(value, Distribution):
        family.add_metric(labels, value)
    else:
        raise TypeError(
            f"{family.name}: a histogram reads a Distribution, and nothing else does; got {type(value).__name__}"
        )


def read_page(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """(name, labels, value) of each series of a page that a service rendered, for `doctor`. Raises ValueError if it is none."""
    for family in text_string_to_metric_families(text):
        yield from ((sample.name, sample.labels, sample.value) for sample in family.samples)
