"""All metrics of the service as rows of a table: name, type, labels, unit, meaning. Read from the declarations.

A `Metrics` is made with its parts, each of its `report_...` methods is called with functions that are never called, and each
row of `telemetry/scraped.py` is reported, so a metric that is declared later stands in the table by itself.
"""

import inspect
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.registry import Collector

from extender.telemetry import scraped
from extender.telemetry.metrics import Metrics
from extender.telemetry.scraped import ScrapedMetric

_UNITS = ("seconds", "bytes", "nodes", "pods", "entries")
_FOREIGN = ("python_", "process_")


NAMES_IN_KEPS: Final = {
    "extender_plugin_evaluation_total": "`plugin_evaluation_total` (KEP-3022)",
    "extender_plugin_execution_duration_seconds": "`plugin_execution_duration_seconds` (KEP-2249, KEP-3022)",
    "extender_pod_scheduling_duration_seconds": "`pod_scheduling_duration_seconds` (KEP-2249)",
    "extender_preemption_attempts_total": "`preemption_attempts_total` (KEP-4832)",
    "extender_preemption_execution_seconds": "`goroutines_duration_seconds{operation=preemption}` (KEP-4832)",
    "extender_preemption_executions_total": "`goroutines_execution_total{operation=preemption}` (KEP-4832)",
    "extender_scheduler_decisions_total": "`schedule_attempts_total` (KEP-2249, KEP-3022)",
}
"""What the enhancement proposals call the same, of kube-scheduler."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One metric as Prometheus shows it. `series` are the names under which samples stand."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def unit(self) -> str:
        """What a value counts, as the name says it."""
        if "timestamp_seconds" in self.name:
            return "Unix time"
        return next((unit for unit in _UNITS if f"_{unit}" in self.name), "1")

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its samples."""
        if self.kind == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)


def entries() -> list[Entry]:
    """Every metric of ours, by name."""
    metrics = Metrics("0")
    for name, report in inspect.getmembers(metrics, inspect.ismethod):
        if name.startswith("report_"):
            report(*(_argument(parameter) for parameter in inspect.signature(report).parameters.values()))
    for metric in vars(scraped).values():
        if isinstance(metric, ScrapedMetric):
            metrics.report(metric, dict)
    metrics.preemption()
    metrics.admission()
    metrics.release()
    collectors = metrics._registry._collector_to_names
    found = [entry for collector in collectors for entry in _entries_of(collector)]
    return sorted((entry for entry in found if not entry.name.startswith(_FOREIGN)), key=lambda entry: entry.name)


def table() -> str:
    """The rows as Markdown."""
    lines = ["| metric | type | labels | unit | meaning |", "|---|---|---|---|---|"]
    for entry in entries():
        labels = ", ".join(f"`{label}`" for label in entry.labels)
        named = NAMES_IN_KEPS.get(entry.name)
        meaning = f"{entry.meaning} In KEPs: {named}." if named else entry.meaning
        lines.append(f"| `{entry.name}` | {entry.kind} | {labels} | {entry.unit} | {meaning} |")
    return "\n".join(lines)


def _argument(parameter: inspect.Parameter) -> Any:
    """A text where a text is wanted, else something that gives nothing."""
    return "x" if parameter.annotation is str else dict


def _entries_of(collector: Collector) -> list[Entry]:
    own: tuple[str, ...] = getattr(collector, "_labelnames", ())
    described = collector.describe() if hasattr(collector, "describe") else []
    found = []
    for family in described:
        labels = own or tuple(getattr(family, "_labelnames", None) or ())
        if family.type == "info":
            found.append(Entry(f"{family.name}_info", "gauge", tuple(_info_labels(collector)), family.documentation))
        else:
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found.append(Entry(name, family.type, labels, family.documentation))
    return found


def _info_labels(collector: Any) -> list[str]:
    return sorted(collector._value)
