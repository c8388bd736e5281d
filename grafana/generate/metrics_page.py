"""Writes `config/reference/metrics.md`: every metric of `extender/telemetry/catalogue.py`, and who reads it."""

from collections.abc import Iterator, Mapping
from typing import Final

from extender.telemetry.catalogue import METRICS
from extender.telemetry.metric_declaration import MetricDeclaration, Source
from grafana.generate.panels import Dashboard
from grafana.generate.queries import Query

_UNITS: Final = ("seconds", "bytes", "nodes", "pods", "entries")
NAMES_IN_KEPS: Final = {
    "extender_plugin_evaluation_total": "`plugin_evaluation_total` (KEP-3022)",
    "extender_plugin_execution_duration_seconds": "`plugin_execution_duration_seconds` (KEP-2249, KEP-3022)",
    "extender_pod_scheduling_duration_seconds": "`pod_scheduling_duration_seconds` (KEP-2249)",
    "extender_preemption_attempts_total": "`preemption_attempts_total` (KEP-4832)",
    "extender_preemption_execution_seconds": "`goroutines_duration_seconds{operation=preemption}` (KEP-4832)",
    "extender_preemption_executions_total": "`goroutines_execution_total{operation=preemption}` (KEP-4832)",
    "extender_scheduler_decisions_total": "`schedule_attempts_total` (KEP-2249, KEP-3022)",
}
"""The metrics of kube-scheduler in the enhancement proposals that measure the same."""
_HEAD: Final = """\
# Metrics

All metrics of the extender that `/metrics` serves. Their names begin with `extender_`; names with `python_` and `process_` are
metrics of the Prometheus client. No label has the name of a pod or a node, and the number of values of each label is bounded.

- *Read from* says how a scrape gets the value. `state`: a part of the service has it, for example the index. `requests`: each
  request of a verb adds to it. `actions`: a part adds to it when it has done something, for example a write.
- *Used by* names the [dashboards](../../grafana/README.md) and the [alerts](../../grafana/runbook.md) that query the metric. An alert
  may query it through a recording rule.

A histogram `NAME` has the series `NAME_bucket`, `NAME_sum` and `NAME_count`. `python -m grafana.generate` writes this page from
`extender/telemetry/catalogue.py`.

| metric | type | labels | unit | meaning | read from | used by |
|---|---|---|---|---|---|---|
"""
_SOURCES: Final = {Source.STATE: "state", Source.REQUEST: "requests", Source.ACTION: "actions"}


def page(dashboards: list[Dashboard], alerts: Mapping[str, list[str]], recorded: Mapping[str, str]) -> str:
    """The document. ``alerts``: their queries by name; ``recorded``: the query of each recording rule."""
    by_dashboard = {
        dashboard.file.removesuffix(".json"): _read(
            [query for panel in dashboard.panels for query in panel.queries.values()], recorded
        )
        for dashboard in dashboards
    }
    by_alert = {alert: _read(queries, recorded) for alert, queries in alerts.items()}
    rows = (
        _row(
            metric,
            [
                *(name for name, read in by_dashboard.items() if not read.isdisjoint(metric.samples)),
                *(
                    f"[{name}](../../grafana/runbook.md#{name.lower()})"
                    for name, read in by_alert.items()
                    if not read.isdisjoint(metric.samples)
                ),
            ],
        )
        for metric in sorted(METRICS, key=lambda metric: metric.name)
    )
    return _HEAD + "".join(rows)


def _read(queries: list[str], recorded: Mapping[str, str]) -> set[str]:
    """The series that queries read, by themselves or through recording rules."""
    names = {name for query in queries for name in Query(query).names}
    through = {name for rule in names & recorded.keys() for name in Query(recorded[rule]).names}
    return names | through


def _row(metric: MetricDeclaration, users: list[str]) -> str:
    return f"| {' | '.join(_cells(metric, users))} |\n"


def _cells(metric: MetricDeclaration, users: list[str]) -> Iterator[str]:
    yield f"`{metric.name}`"
    yield metric.kind
    yield ", ".join(f"`{label}`" for label in metric.labels)
    yield _unit(metric.name)
    named = NAMES_IN_KEPS.get(metric.name)
    yield f"{metric.text} In KEPs: {named}." if named else metric.text
    yield _SOURCES[metric.source]
    yield ", ".join(users)


def _unit(name: str) -> str:
    """What a value counts, as the name says it."""
    if "timestamp_seconds" in name:
        return "Unix time"
    return next((unit for unit in _UNITS if f"_{unit}" in name), "1")
