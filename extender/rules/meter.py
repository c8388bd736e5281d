"""How often rules are evaluated, and how much processor time each of them takes in a sample of decisions.

The names equal kube-scheduler's ``plugin_evaluation_total`` and ``plugin_execution_duration_seconds``, because
the objectives of KEP-2249 and KEP-3022 use them. Evaluations are counted in every decision, at one look-up each. In
every `SAMPLE`-th decision the clock is read each time that a rule is entered or left, which costs 10 to 20 µs. The
clock is an argument, because a decision reads none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from extender.model.rejections import Reason, Rejection
from extender.rules.rule import PreparedFilter, Rule

FILTER: Final = "Filter"
SCORE: Final = "Score"
POST_FILTER: Final = "PostFilter"
"""The extension points as kube-scheduler names them. The last one is preemption."""

SAMPLE: Final = 101  # prime, so that templates that alternate are all sampled
FIRST: Final = 10  # the first sample comes early, but after the decisions that compile constraints
_NEVER: Final = -1

_PLACES: Final = (
    ("filter", FILTER),
    ("filter", SCORE),
    ("filter", POST_FILTER),
    ("prioritize", SCORE),
    ("preempt", POST_FILTER),
)

_Section = tuple[str, str]


class Stopwatch:
    """The processor time of each rule in one decision: seconds by rule and extension point.

    A nested rule pauses the outer one.

    ``point``: the extension point at which filters are prepared.
    """

    __slots__ = ("_clock", "_current", "_since", "point", "seconds")

    def __init__(self, clock: Callable[[], float], point: str) -> None:
        self._clock = clock
        self._current: _Section | None = None
        self._since = 0.0
        self.point = point
        self.seconds: dict[_Section, float] = {}

    def switch(self, to: _Section | None) -> _Section | None:
        """From now on time counts for this rule, or for none. Returns the rule before it."""
        now, before = self._clock(), self._current
        if before is not None:
            self.seconds[before] = self.seconds.get(before, 0.0) + now - self._since
        self._current, self._since = to, now
        return before

    @contextmanager
    def inside(self, rule: str, point: str = "") -> Iterator[None]:
        """Counts the time of the block for the rule."""
        before = self.switch((rule, point or self.point))
        try:
            yield
        finally:
            self.switch(before)


class TimedFilter(PreparedFilter):
    """A filter whose time is measured."""

    __slots__ = ("_inner", "_point", "_rule", "_watch", "rejects_all", "status")

    def __init__(self, inner: PreparedFilter, rule: str, watch: Stopwatch) -> None:
        self._inner = inner
        self._rule = rule
        self._watch = watch
        self._point = watch.point
        self.status = inner.status
        self.rejects_all = inner.rejects_all

    def verdict(self, position: int) -> Rejection | None:
        """As the filter."""
        with self._watch.inside(self._rule, self._point):
            return self._inner.verdict(position)

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """As the filter."""
        with self._watch.inside(self._rule, self._point):
            return self._inner.passing(nodes)

    def reason(self, position: int) -> Reason | None:
        """As the filter."""
        with self._watch.inside(self._rule, self._point):
            return self._inner.reason(position)

    def rejected(self, nodes: Sequence[int]) -> Iterator[tuple[Reason, Sequence[int]]]:
        """As the filter, at once."""
        with self._watch.inside(self._rule, self._point):
            # All at once: between two items of a generator the caller's time would count for the rule.
            rejected = list(self._inner.rejected(nodes))
        yield from rejected


class RuleMeter:
    """The counters of the rules of one service. Without `start` nothing is timed."""

    __slots__ = ("_clock", "_evaluations", "_observe", "fields", "filtered", "left", "scored", "watch")

    def __init__(self) -> None:
        self._evaluations: dict[tuple[str, str], defaultdict[str, int]] = {place: defaultdict(int) for place in _PLACES}
        # Evaluations by the filter verb, which adds to them itself.
        self.filtered, self.scored = self._evaluations["filter", FILTER], self._evaluations["filter", SCORE]
        # Evaluated constraints by the optional field that they use.
        self.fields: dict[str, int] = {"minDomains": 0, "namespaceSelector": 0}
        # Decisions until the next timed one; verbs count it down.
        self.left = _NEVER
        # Times the current decision; None in untimed decisions.
        self.watch: Stopwatch | None = None

    def start(self, clock: Callable[[], float], observe: Callable[[str, str, float], None]) -> None:
        """From now on a sample is timed.

        ``clock`` returns processor time; ``observe(rule, extension point, seconds)``.
        """
        self._clock, self._observe, self.left = clock, observe, FIRST

    def count(self, verb: str, point: str, rules: Sequence[Rule]) -> None:
        """Adds an evaluation of each rule."""
        counts = self._evaluations[verb, point]
        for rule in rules:
            counts[rule.name] += 1

    def totals(self) -> Mapping[tuple[str, str, str], float]:
        """Evaluations by rule, extension point and verb."""
        return {
            (rule, point, verb): number
            for (verb, point), counts in self._evaluations.items()
            for rule, number in counts.items()
        }

    @contextmanager
    def sampled(self, point: str) -> Iterator[None]:
        """Times a decision. A nested decision is part of the outer one."""
        # Set before the decision, so that a nested decision is not sampled again.
        self.left = SAMPLE
        watch = self.watch = Stopwatch(self._clock, point)
        try:
            yield
        finally:
            self.watch = None
            watch.switch(None)
            for (rule, at), seconds in watch.seconds.items():
                self._observe(rule, at, seconds)
