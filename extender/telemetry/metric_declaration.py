"""What is declared of a metric. `catalogue.py` is the table of all of them.

No part depends on Prometheus for a declaration: `metrics.py` makes the families of the scrape from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class MetricKind(StrEnum):
    """As Prometheus calls them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Source(StrEnum):
    """How a scrape gets the value."""

    STATE = "state"
    """It reads a state of the part that has it, by the function that the part's set-up gives to `Metrics.report`."""
    REQUEST = "requests"
    """It reads what each request of a verb adds to `verb_metrics.py`."""
    ACTION = "actions"
    """It reads what a part adds by a `record_...` method of `metrics.py` when it has done something."""


_SAMPLES_OF_HISTOGRAM: Final = ("_bucket", "_sum", "_count")


@dataclass(frozen=True, slots=True)
class MetricDeclaration:
    """One metric by its series, as in a query: a counter's name ends in "_total", and its labels stand in braces."""

    series: str
    kind: MetricKind
    text: str
    source: Source
    buckets: tuple[float, ...]
    """The upper bounds of a histogram."""

    @property
    def name(self) -> str:
        """Without labels."""
        return self.series.partition("{")[0]

    @property
    def labels(self) -> tuple[str, ...]:
        """Their names."""
        # Example: extender_requests_total{verb, code} has the labels verb and code.
        inner = self.series.partition("{")[2].removesuffix("}")
        return tuple(inner.split(", ")) if inner else ()

    @property
    def samples(self) -> tuple[str, ...]:
        """The names that queries use."""
        if self.kind is MetricKind.HISTOGRAM:
            return tuple(self.name + suffix for suffix in _SAMPLES_OF_HISTOGRAM)
        return (self.name,)


def counter(series: str, text: str, source: Source = Source.STATE) -> MetricDeclaration:
    """A number that only grows."""
    return MetricDeclaration(series, MetricKind.COUNTER, text, source, ())


def gauge(series: str, text: str, source: Source = Source.STATE) -> MetricDeclaration:
    """A number that grows and falls, or a constant 1 with labels that describe the service."""
    return MetricDeclaration(series, MetricKind.GAUGE, text, source, ())


def histogram(series: str, text: str, buckets: Sequence[float], source: Source) -> MetricDeclaration:
    """Observed values by bucket, and their sum."""
    return MetricDeclaration(series, MetricKind.HISTOGRAM, text, source, tuple(buckets))


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Bucket bounds, as `ExponentialBuckets` of Kubernetes components."""
    return tuple(start * factor**power for power in range(count))
