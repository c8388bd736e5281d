"""Counts what is recorded for every request of a verb, in plain numbers that are read at each scrape.

An observation of `prometheus_client` takes two locks and costs 3 µs, and a request has a dozen. All of these are recorded by
one thread, the event loop's, so here one costs 0.3 µs. Names and buckets stand in `catalogue.py`.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import inf
from time import monotonic, time
from typing import Any, Final

from extender.model.answers.pages import VerbRate
from extender.telemetry import catalogue
from extender.telemetry.metric_declaration import MetricDeclaration

VERBS: Final = ("filter", "prioritize", "preempt", "bind")
OK: Final = 200


_PLUGINS: Final = ("InterPodAffinity", "PodTopologySpread")
_POINTS: Final = ("Filter", "Score", "PostFilter")


class Distribution:
    """How many values fell into each bucket, and their sum. A value on a bound belongs to the bucket below it."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Counts a value. O(log buckets)."""
        # `bisect_left`: Prometheus' `le` includes the bound.
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    @property
    def total(self) -> float:
        """The sum of all values."""
        return self._sum

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Each bound with the number of values up to it, the last one infinite, as Prometheus wants the buckets."""
        return zip((*self._bounds, inf), accumulate(self._counts), strict=True)


Value = float | Distribution
Values = Value | Mapping[str, Value] | Mapping[tuple[str, str], Value] | Mapping[tuple[str, str, str], Value]
"""What a scrape reads of a metric: one value where it has no labels, else a mapping from their values."""
Readings = Mapping[MetricDeclaration, Callable[[], Values]]


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
        # The slot of a minute ago is used again: its number shows that its counts are old.
        found = self._slots[number % _SLOTS]
        if found.number != number:
            found.begin(number)
        return found

    def record(self, seconds: float) -> None:
        """An answer that took so long. O(1)."""
        slot = self._slot()
        slot.answers += 1
        # `hi`: answers beyond the last bound count in the last slot of the histogram.
        slot.counts[bisect_left(_BOUNDS, seconds, hi=_LAST)] += 1

    def record_error(self) -> None:
        """An answer was an error; it is recorded by its duration as well. O(1)."""
        self._slot().errors += 1

    def rate(self, verb: str) -> VerbRate:
        """The last minute, or the time since the beginning where that is shorter."""
        now = self._now()
        first = int(now / _SLOT_SECONDS) - _SLOTS + 1
        # A verb that is not called leaves old slots in place: they are left out by their number.
        slots = [slot for slot in self._slots if slot.number >= first]
        seconds = min(now - first * _SLOT_SECONDS, now - self._begun)
        answers = sum(slot.answers for slot in slots)
        counts = [sum(column) for column in zip(*(slot.counts for slot in slots), strict=True)]
        return VerbRate(
            verb=verb,
            answers=answers,
            errors=sum(slot.errors for slot in slots),
            # At least a second, so that a single answer just after the start is no rate of thousands.
            per_second=answers / max(seconds, 1.0),
            p50_milliseconds=_percentile(counts, 0.5 * answers),
            p99_milliseconds=_percentile(counts, 0.99 * answers),
        )


def _percentile(counts: list[int], wanted: float) -> float:
    """The upper bound of the answer of this rank in milliseconds; 0 where there is none."""
    passed = 0
    for bound, count in zip(_BOUNDS, counts, strict=False):
        passed += count
        # `and passed`: without any answer the wanted rank is 0, and the first bound would be returned.
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
        # 200 from the start: rate() needs a value from before the first answer.
        self.answers = {OK: 0}  # by HTTP status
        self.failures: dict[str, int] = {}  # by reason
        self.last_failures: dict[str, float] = {}  # the same, in Unix seconds
        self.by_form = {"names": 0, "nodes": 0}
        self.durations = Distribution(catalogue.REQUEST_SECONDS.buckets)
        self.request_bytes = Distribution(catalogue.REQUEST_BYTES.buckets)
        self.response_bytes = Distribution(catalogue.RESPONSE_BYTES.buckets)
        self.nodes = Distribution(catalogue.REQUEST_NODES.buckets)
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


class RequestMetrics:
    """All verbs, and what filter answers. Reading it costs O(series)."""

    def __init__(self) -> None:
        self.verbs = {verb: VerbMetrics() for verb in VERBS}
        self._passed = Distribution(catalogue.FILTER_PASSED_NODES.buckets)
        self._rejections: dict[str, int] = {}
        # rate() needs a value from before the first decision of the sample
        self._rules = {
            (rule, point): Distribution(catalogue.RULE_SECONDS.buckets) for rule in _PLUGINS for point in _POINTS
        }
        self._scheduling = Distribution(catalogue.SCHEDULING_SECONDS.buckets)
        self._attempts = Distribution(catalogue.SCHEDULING_ATTEMPTS.buckets)

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
            found = self._rules[rule, point] = Distribution(catalogue.RULE_SECONDS.buckets)
        found.observe(seconds)

    def record_scheduled(self, seconds: float, attempts: int) -> None:
        """Records a pod that was bound: the time since its creation, and its attempts."""
        self._scheduling.observe(seconds)
        self._attempts.observe(attempts)

    def readings(self) -> Readings:
        """The metrics whose source is `Source.REQUEST`."""
        verbs = self.verbs

        def by_verb(value: Callable[[VerbMetrics], Value]) -> Callable[[], Mapping[str, Value]]:
            return lambda: {verb: value(counted) for verb, counted in verbs.items()}

        def by_verb_and(values: Callable[[VerbMetrics], Mapping[Any, float]]) -> Callable[[], Values]:
            return lambda: {
                (verb, str(label)): number
                for verb, counted in verbs.items()
                for label, number in values(counted).items()
            }

        return {
            catalogue.REQUESTS: by_verb_and(lambda verb: verb.answers),
            catalogue.REQUEST_FAILURES: by_verb_and(lambda verb: verb.failures),
            catalogue.REQUESTS_BY_FORM: by_verb_and(lambda verb: verb.by_form),
            catalogue.FILTER_REJECTIONS: lambda: self._rejections,
            catalogue.REQUEST_SECONDS: by_verb(lambda verb: verb.durations),
            catalogue.REQUEST_BYTES: by_verb(lambda verb: verb.request_bytes),
            catalogue.RESPONSE_BYTES: by_verb(lambda verb: verb.response_bytes),
            catalogue.REQUEST_NODES: by_verb(lambda verb: verb.nodes),
            catalogue.FILTER_PASSED_NODES: lambda: self._passed,
            catalogue.RULE_SECONDS: lambda: self._rules,
            catalogue.SCHEDULING_SECONDS: lambda: self._scheduling,
            catalogue.SCHEDULING_ATTEMPTS: lambda: self._attempts,
            catalogue.LAST_REQUEST: by_verb(lambda verb: verb.last),
            catalogue.LAST_DECISION: by_verb(lambda verb: verb.last_decision),
            catalogue.LAST_FAILURE: by_verb_and(lambda verb: verb.last_failures),
        }
