"""Counts what is recorded for every request of a verb, in plain numbers that are read at each scrape.

An observation of `prometheus_client` takes two locks and costs 3 µs, and a request has a dozen. All of these are recorded by
one thread, the event loop's, so here one costs 0.3 µs. Names and buckets are those of `prometheus_client`'s own metrics.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from time import monotonic, time
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from extender.model.answers.pages import VerbRate

VERBS: Final = ("filter", "prioritize", "preempt", "bind")
OK: Final = 200


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Bucket bounds, as `ExponentialBuckets` of Kubernetes components."""
    return tuple(start * factor**power for power in range(count))


SECONDS: Final = exponential(
    0.0001, 2, 15
)  # 0.1 ms to 1.6 s; kube-scheduler's histograms of the same calls start at 1 ms
_BYTES: Final = exponential(
    256, 4, 10
)  # 256 B to 64 MiB: from an answer with one name to a request with 5,000 whole nodes
# 10 us to 0.3 s, with the objective of KEP-3022 as a bound; kube-scheduler's of the same name ends at 22 ms
_RULE_SECONDS: Final = tuple(sorted({0.1, *exponential(0.00001, 2, 16)}))
_PLUGINS: Final = ("InterPodAffinity", "PodTopologySpread")
_POINTS: Final = ("Filter", "Score", "PostFilter")
_SCHEDULING_SECONDS: Final = exponential(0.01, 2, 20)  # both as kube-scheduler's
_ATTEMPTS: Final = exponential(1, 2, 5)
_NODES: Final = (0, 1, 5, 10, 50, 100, 200, 500, 1000, 2000, 5000, 10000)


class Distribution:
    """How many values fell into each bucket, and their sum. A value on a bound belongs to the bucket below it."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Counts a value. O(log buckets)."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        """Adds the series to a family, with the buckets summed up as Prometheus wants them."""
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        family.add_metric(labels, list(zip(bounds, map(float, accumulate(self._counts)), strict=True)), self._sum)


_SLOT_SECONDS: Final = 5.0
_SLOTS: Final = 12
_LEAST_SECONDS: Final = 5e-5
_A_DOUBLING: Final = 4  # bounds for each doubling, so that each is 19 % above the one before
_BOUNDS: Final = [_LEAST_SECONDS * 2 ** (place / _A_DOUBLING) for place in range(72)]  # up to 11 s
_LAST: Final = len(_BOUNDS) - 1


class _Slot:
    __slots__ = ("answers", "counts", "errors", "number")

    def __init__(self) -> None:
        self.begin(-1)

    def begin(self, number: int) -> None:
        self.number = number
        self.answers = self.errors = 0
        self.counts = [0] * len(_BOUNDS)


class RecentAnswers:
    """How many answers of one verb there were in the last minute, and how long they took: for a page without Prometheus.

    A minute is twelve slots of five seconds, each a histogram of fixed size. An answer costs 0.5 µs. ``now`` is in seconds,
    from any moment on.
    """

    __slots__ = ("_begun", "_now", "_slots")

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._begun = now()
        self._slots = [_Slot() for _ in range(_SLOTS)]

    def _slot(self) -> _Slot:
        number = int(self._now() / _SLOT_SECONDS)
        found = self._slots[number % _SLOTS]
        if found.number != number:
            found.begin(number)
        return found

    def record(self, seconds: float) -> None:
        """An answer that took so long. O(1)."""
        slot = self._slot()
        slot.answers += 1
        slot.counts[bisect_left(_BOUNDS, seconds, hi=_LAST)] += 1

    def record_error(self) -> None:
        """An answer was an error; it is recorded by its duration as well. O(1)."""
        self._slot().errors += 1

    def rate(self, verb: str) -> VerbRate:
        """The last minute, or the time since the beginning where that is shorter."""
        now = self._now()
        first = int(now / _SLOT_SECONDS) - _SLOTS + 1
        slots = [slot for slot in self._slots if slot.number >= first]
        seconds = min(now - first * _SLOT_SECONDS, now - self._begun)
        answers = sum(slot.answers for slot in slots)
        counts = [sum(column) for column in zip(*(slot.counts for slot in slots), strict=True)]
        return VerbRate(
            verb=verb,
            answers=answers,
            errors=sum(slot.errors for slot in slots),
            per_second=answers / max(seconds, 1.0),
            p50_milliseconds=_percentile(counts, 0.5 * answers),
            p99_milliseconds=_percentile(counts, 0.99 * answers),
        )


def _percentile(counts: list[int], wanted: float) -> float:
    """The upper bound of the answer of this rank in milliseconds; 0 where there is none."""
    passed = 0
    for bound, count in zip(_BOUNDS, counts, strict=False):
        passed += count
        if passed >= wanted and passed:
            return bound * 1000
    return 0.0


class VerbMetrics:
    """What is counted of one verb."""

    __slots__ = (
        "answers",
        "by_form",
        "durations",
        "failures",
        "last",
        "last_decision",
        "last_failures",
        "nodes",
        "recent",
        "request_bytes",
        "response_bytes",
    )

    def __init__(self) -> None:
        self.answers = {OK: 0}  # by HTTP status
        self.failures: dict[str, int] = {}  # by reason
        self.last_failures: dict[str, float] = {}  # the same, in Unix seconds
        self.by_form = {"names": 0, "nodes": 0}
        self.durations = Distribution(SECONDS)
        self.request_bytes = Distribution(_BYTES)
        self.response_bytes = Distribution(_BYTES)
        self.nodes = Distribution(_NODES)
        self.last = 0.0  # Unix seconds
        self.last_decision = 0.0
        self.recent = RecentAnswers()

    def record_answer(self, status: int, seconds: float, received: int, sent: int) -> None:
        """Records an answer: HTTP status, duration, bytes of the request's and of the answer's body."""
        self.answers[status] = self.answers.get(status, 0) + 1
        self.durations.observe(seconds)
        self.request_bytes.observe(received)
        self.response_bytes.observe(sent)
        self.last = time()
        self.recent.record(seconds)

    def record_decision(self) -> None:
        """Records that a request was decided without an error."""
        self.last_decision = time()

    def record_failure(self, reason: str) -> None:
        """Records that a request was answered with an error, of any HTTP status."""
        self.failures[reason] = self.failures.get(reason, 0) + 1
        self.last_failures[reason] = time()
        self.recent.record_error()

    def record_request(self, nodes: int, *, by_names: bool = True) -> None:
        """Records how many nodes a decoded request had, and whether as names or as whole nodes."""
        self.nodes.observe(nodes)
        self.by_form["names" if by_names else "nodes"] += 1


class RequestCollector(Collector):
    """All verbs, and what filter answers. Reading it costs O(series)."""

    def __init__(self) -> None:
        self.verbs = {verb: VerbMetrics() for verb in VERBS}
        self._passed = Distribution(_NODES)
        self._rejections: dict[str, int] = {}
        # rate() needs a value from before the first decision of the sample
        self._rules = {(rule, point): Distribution(_RULE_SECONDS) for rule in _PLUGINS for point in _POINTS}
        self._scheduling = Distribution(_SCHEDULING_SECONDS)
        self._attempts = Distribution(_ATTEMPTS)

    def record_passed(self, nodes: int) -> None:
        """Records how many nodes a filter answer named."""
        self._passed.observe(nodes)

    def record_rejections(self, reasons: Iterable[str]) -> None:
        """Records the reasons of a filter answer in which no node passed."""
        for reason in reasons:
            self._rejections[reason] = self._rejections.get(reason, 0) + 1

    def record_rule(self, rule: str, point: str, seconds: float) -> None:
        """Records the processor time of a rule at an extension point, in one decision of the sample."""
        found = self._rules.get((rule, point))
        if found is None:
            found = self._rules[rule, point] = Distribution(_RULE_SECONDS)
        found.observe(seconds)

    def record_scheduled(self, seconds: float, attempts: int) -> None:
        """Records a pod that was bound: the time since its creation, and its attempts."""
        self._scheduling.observe(seconds)
        self._attempts.observe(attempts)

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape."""
        yield from self._counters()
        yield from self._scheduled()
        yield from self._distributions()
        yield from self._times()

    def describe(self) -> list[Metric]:
        """Called at registration, so that two metrics of one name are rejected."""
        return list(self.collect())

    def _counters(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "extender_requests", "Requests answered, by HTTP status.", labels=["verb", "code"]
        )
        failures = CounterMetricFamily(
            "extender_request_failures",
            "Requests answered with an error, by reason; errors of filter have HTTP status 200.",
            labels=["verb", "reason"],
        )
        by_form = CounterMetricFamily(
            "extender_requests_by_form",
            "Decoded requests by the form of their nodes: names, or whole nodes (nodeCacheCapable false).",
            labels=["verb", "form"],
        )
        rejections = CounterMetricFamily(
            "extender_filter_rejections",
            "Filter answers in which no node passed, counted once for each reason in the answer.",
            labels=["reason"],
        )
        for verb, counted in self.verbs.items():
            for status, number in counted.answers.items():
                requests.add_metric((verb, str(status)), number)
            for reason, number in counted.failures.items():
                failures.add_metric((verb, reason), number)
            for form, number in counted.by_form.items():
                by_form.add_metric((verb, form), number)
        for reason, number in self._rejections.items():
            rejections.add_metric((reason,), number)
        yield from (requests, failures, by_form, rejections)

    def _distributions(self) -> Iterator[Metric]:
        durations = HistogramMetricFamily(
            "extender_request_duration_seconds",
            "Time from the request's header until the answer is ready to be sent.",
            labels=["verb"],
        )
        received = HistogramMetricFamily("extender_request_bytes", "Size of request bodies.", labels=["verb"])
        sent = HistogramMetricFamily("extender_response_bytes", "Size of answers.", labels=["verb"])
        nodes = HistogramMetricFamily(
            "extender_request_nodes", "Nodes in a request; for preempt, candidate nodes.", labels=["verb"]
        )
        passed = HistogramMetricFamily("extender_filter_passed_nodes", "Nodes named in a filter answer.", labels=[])
        for verb, counted in self.verbs.items():
            counted.durations.add_to(durations, (verb,))
            counted.request_bytes.add_to(received, (verb,))
            counted.response_bytes.add_to(sent, (verb,))
            counted.nodes.add_to(nodes, (verb,))
        self._passed.add_to(passed, ())
        yield from (durations, received, sent, nodes, passed)

    def _scheduled(self) -> Iterator[Metric]:
        rules = HistogramMetricFamily(
            "extender_plugin_execution_duration_seconds",
            "Processor time of a rule in one decision, by rule and extension point (Filter, Score, PostFilter: preemption); one "
            "decision in 101 is timed.",
            labels=["plugin", "extension_point"],
        )
        scheduling = HistogramMetricFamily(
            "extender_pod_scheduling_duration_seconds",
            "Time from the creation of a pod to its binding, of pods that this replica let pass. Creation times have no fractions "
            "of a second.",
            labels=[],
        )
        attempts = HistogramMetricFamily(
            "extender_pod_scheduling_attempts", "Filter requests about a pod until it was bound.", labels=[]
        )
        for labels, distribution in self._rules.items():
            distribution.add_to(rules, labels)
        self._scheduling.add_to(scheduling, ())
        self._attempts.add_to(attempts, ())
        yield from (rules, scheduling, attempts)

    def _times(self) -> Iterator[Metric]:
        last = GaugeMetricFamily(
            "extender_last_request_timestamp_seconds",
            "Unix time of the last answer, 0 before the first.",
            labels=["verb"],
        )
        decided = GaugeMetricFamily(
            "extender_last_decision_timestamp_seconds",
            "Unix time of the last request decided without an error, 0 before the first.",
            labels=["verb"],
        )
        failed = GaugeMetricFamily(
            "extender_last_failure_timestamp_seconds",
            "Unix time of the last request answered with an error, by reason.",
            labels=["verb", "reason"],
        )
        for verb, counted in self.verbs.items():
            last.add_metric((verb,), counted.last)
            decided.add_metric((verb,), counted.last_decision)
            for reason, moment in counted.last_failures.items():
                failed.add_metric((verb, reason), moment)
        yield from (last, decided, failed)
