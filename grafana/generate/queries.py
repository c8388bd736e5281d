"""Reads queries of panels, rules and alerts: which metrics and which labels they name, and what of it does not exist."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from extender.telemetry.catalogue import METRICS
from extender.telemetry.metric_declaration import MetricKind

OF_THE_SCRAPE: Final = frozenset({"cluster", "namespace", "job", "instance"})
"""Labels that Prometheus adds to each series: `namespace` with its operator, `cluster` where it is an external label."""
FOREIGN: Final[Mapping[str, frozenset[str]]] = {
    "up": frozenset(),
    "process_cpu_seconds_total": frozenset(),
    "process_max_fds": frozenset(),
    "process_open_fds": frozenset(),
    "process_resident_memory_bytes": frozenset(),
    "process_start_time_seconds": frozenset(),
    "python_gc_collections_total": frozenset({"generation"}),
}
"""Series of Prometheus and of its client library that queries may name."""

Series = Mapping[str, frozenset[str]]

_NAME = re.compile(r"(?<![\w:$])(?:\w+:)*(?:extender|process|python)_[\w:]+|\bup\b")
_STRING = re.compile(r'"[^"]*"')
_GROUPING = re.compile(r"\b(?:by|on|ignoring|without|group_left|group_right)\s*\(([^)]*)\)")
_BY = re.compile(r"\bby\s*\(([^)]*)\)\s*\(")


def declared_series() -> dict[str, frozenset[str]]:
    """The series that a scrape of the service may have, with their labels."""
    series = dict(FOREIGN)
    for metric in METRICS:
        labels = frozenset(metric.labels)
        series |= dict.fromkeys(metric.samples, labels)
        if metric.kind is MetricKind.HISTOGRAM:
            series[f"{metric.name}_bucket"] = labels | {"le"}
    return series


def recorded_series(rules: Mapping[str, str], series: Series) -> dict[str, frozenset[str]]:
    """The series of recording rules, by name with their query, and the labels that the queries keep."""
    return {name: Query(query).output(series) - {"le"} for name, query in rules.items()}


@dataclass(frozen=True, slots=True)
class Query:
    """An expression of PromQL."""

    text: str

    @property
    def names(self) -> set[str]:
        """The series that it reads."""
        return set(_NAME.findall(_without_labels(self.text)))

    def output(self, series: Series) -> frozenset[str]:
        """The labels that its result may have: those that it groups by, else those of its series."""
        groups = _BY.findall(_STRING.sub('""', self.text))
        kept = _labels_of(",".join(groups)) if groups else self._labels(self.text, series)
        return frozenset(kept) | OF_THE_SCRAPE

    def problems(self, series: Series, shown: str = "") -> list[str]:
        """What it names that does not exist. ``shown`` is a text with labels of the result, such as a legend."""
        found = [f"no series {name}" for name in sorted(self.names - series.keys())]
        for name, matchers in re.findall(rf"({_NAME.pattern})\s*\{{([^}}]*)\}}", self.text):
            named = set(re.findall(r"(\w+)\s*(?:=|!=|=~|!~)", _STRING.sub("", matchers)))
            found += [
                f"no label {label} of {name}" for label in sorted(named - series.get(name, named) - OF_THE_SCRAPE)
            ]
        for match in _BY.finditer(self.text):
            inner = _parenthesis(self.text, match.end() - 1)
            unknown = _labels_of(match[1]) - self._labels(inner, series) - OF_THE_SCRAPE
            found += [f"no label {label} of {inner}" for label in sorted(unknown)]
        labels = set(re.findall(r"\{\{\s*(?:\$labels\.)?([a-z]\w*)\s*\}\}", shown))
        found += [f"no label {label} in the result" for label in sorted(labels - self.output(series))]
        return found

    @staticmethod
    def _labels(text: str, series: Series) -> set[str]:
        """All labels of the series that a part of a query names."""
        empty: frozenset[str] = frozenset()
        return set().union(*(series.get(name, empty) for name in Query(text).names))


def _labels_of(text: str) -> set[str]:
    return {label.strip() for label in text.split(",") if label.strip()}


def _without_labels(text: str) -> str:
    """Without matchers, groupings and strings: a label may have the name of a metric."""
    return _GROUPING.sub("", re.sub(r"\{[^}]*\}", "", _STRING.sub('""', text)))


def _parenthesis(text: str, start: int) -> str:
    """From an opening parenthesis to the closing one that belongs to it."""
    depth = 0
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            return text[start : place + 1]
    raise ValueError(f"parentheses do not match: {text}")
