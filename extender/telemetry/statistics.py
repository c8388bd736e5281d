"""Collectors that read figures at each scrape, so that the code that counts does not depend on Prometheus.

The index, the readiness checks and the reflectors return plain values; no value is kept between two scrapes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

Family = type[GaugeMetricFamily | CounterMetricFamily]


class StatisticsCollector(Collector):
    """One gauge or counter with one label, whose values are the items of a mapping at the time of the scrape."""

    def __init__(
        self,
        name: str,
        text: str,
        label: str,
        statistics: Callable[[], Mapping[str, float]],
        family: Family = GaugeMetricFamily,
    ) -> None:
        self._name = name
        self._text = text
        self._label = label
        self._statistics = statistics
        self._family = family

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape. Cost: one call of the statistics, O(its items)."""
        family = self._family(self._name, self._text, labels=[self._label])
        for key, value in self._statistics().items():
            family.add_metric([key], value)
        yield family

    def describe(self) -> list[Metric]:
        """Called at registration, so that two collectors of one name are rejected without reading figures."""
        return [self._family(self._name, self._text, labels=[self._label])]


class ReflectorFigures(Protocol):
    """The figures of a reflector. `restarts` is by reason, from a closed set; counts only grow."""

    @property
    def kind(self) -> str:
        """The resource, such as "pods"."""

    @property
    def events(self) -> int:
        """Watch events read."""

    @property
    def bytes_read(self) -> int:
        """Bytes read from lists and watches."""

    @property
    def relists(self) -> int:
        """Lists after the first."""

    @property
    def decode_errors(self) -> int:
        """Objects and events that could not be decoded."""

    @property
    def unreadable(self) -> int:
        """Objects that exist and whose last version could not be decoded."""

    @property
    def restarts(self) -> Mapping[str, int]:
        """Restarts of the watch or the list, by reason."""


class ReflectorCollector(Collector):
    """The figures of all reflectors."""

    def __init__(self, reflectors: Callable[[], Iterable[ReflectorFigures]]) -> None:
        self._reflectors = reflectors

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape. Cost: O(reflectors)."""
        events, received, relists, errors, unreadable, restarts = families = self.describe()
        for reflector in self._reflectors():
            events.add_metric([reflector.kind], reflector.events)
            received.add_metric([reflector.kind], reflector.bytes_read)
            relists.add_metric([reflector.kind], reflector.relists)
            errors.add_metric([reflector.kind], reflector.decode_errors)
            unreadable.add_metric([reflector.kind], reflector.unreadable)
            for reason, count in reflector.restarts.items():
                restarts.add_metric([reflector.kind, reason], count)
        yield from families

    def describe(self) -> list[CounterMetricFamily | GaugeMetricFamily]:
        """The families without values; the order is what `collect` fills."""
        return [
            CounterMetricFamily("extender_watch_events", "Watch events read.", labels=["resource"]),
            CounterMetricFamily("extender_watch_bytes", "Bytes of lists and watches read.", labels=["resource"]),
            CounterMetricFamily("extender_relists", "Lists after the first.", labels=["resource"]),
            CounterMetricFamily(
                "extender_decode_errors",
                "Objects and events from the API server that could not be decoded.",
                labels=["resource"],
            ),
            GaugeMetricFamily(
                "extender_unreadable_objects",
                "Objects whose last version cannot be decoded: they count as last decoded, or not at all.",
                labels=["resource"],
            ),
            CounterMetricFamily(
                "extender_watch_restarts", "Restarts of watches and lists, by reason.", labels=["resource", "reason"]
            ),
        ]
