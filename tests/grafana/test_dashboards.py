"""The dashboards and the page of metrics: in step with the metrics, complete, and in the form that Grafana takes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import combinations
from math import inf
from typing import Any

import pytest

from extender.telemetry.catalogue import METRICS
from grafana.generate.files import DASHBOARDS, FOLDER, METRICS_PAGE, metrics_text, text_of
from grafana.generate.panels import Dashboard
from grafana.generate.queries import Query, declared_series

SERIES = declared_series()
EACH = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.file)


def document(dashboard: Dashboard) -> dict[str, Any]:
    """The file as Grafana reads it."""
    found: dict[str, Any] = json.loads((FOLDER / "dashboards" / dashboard.file).read_text("utf-8"))
    return found


def queries(dashboard: Dashboard) -> list[str]:
    """All expressions of a file."""
    panels = document(dashboard)["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


@EACH
def test_the_file_is_what_the_description_says(dashboard: Dashboard) -> None:
    written = (FOLDER / "dashboards" / dashboard.file).read_text("utf-8")
    assert written == text_of(dashboard), "run `python -m grafana.generate`"


def test_no_dashboard_lies_about_without_a_description() -> None:
    assert {path.name for path in (FOLDER / "dashboards").iterdir()} == {found.file for found in DASHBOARDS}


def test_the_page_of_metrics_is_what_the_service_declares() -> None:
    assert METRICS_PAGE.read_text("utf-8") == metrics_text(), "run `python -m grafana.generate`"
    assert metrics_text().count("\n| `extender_") == len(METRICS)


def test_every_metric_is_on_a_dashboard() -> None:
    shown = {name for dashboard in DASHBOARDS for query in queries(dashboard) for name in Query(query).names}
    assert [metric.name for metric in METRICS if shown.isdisjoint(metric.samples)] == []


@EACH
def test_every_query_and_its_legend_name_metrics_and_labels_that_exist(dashboard: Dashboard) -> None:
    problems = {
        f"{panel.title}: {legend}": Query(query).problems(SERIES, legend)
        for panel in dashboard.panels
        for legend, query in panel.queries.items()
    }
    assert {place: found for place, found in problems.items() if found} == {}


@pytest.mark.parametrize(
    ("query", "legend", "problems"),
    [
        ("rate(extender_request_total[5m])", "", ["no series extender_request_total"]),
        (
            "rate(extender_request_bytes[5m])",
            "",
            ["no series extender_request_bytes"],
        ),  # a histogram: _sum, _count, _bucket
        ('extender_requests_total{verb="bind", status=~"5.."}', "", ["no label status of extender_requests_total"]),
        ("sum by (verb, reason) (extender_requests_total)", "", ["no label reason of (extender_requests_total)"]),
        (
            "sum by (le) (rate(extender_request_bytes_count[5m]))",
            "",
            ["no label le of (rate(extender_request_bytes_count[5m]))"],
        ),
        ("sum by (verb) (extender_requests_total)", "{{verb}} {{code}}", ["no label code in the result"]),
        (
            "max(extender_cache_lag_seconds)",
            "of {{ $labels.resource }}",
            [],
        ),  # no grouping is written: the labels of the series
        ('sum by (job, le) (rate(extender_request_bytes_bucket{verb="a{b}"}[5m])) > 0', "{{job}}", []),
        ("sum by (generation) (python_gc_collections_total) / on (job) up", "{{generation}}", []),
    ],
)
def test_a_name_in_a_query_that_does_not_exist_is_found(query: str, legend: str, problems: list[str]) -> None:
    assert Query(query).problems(SERIES, legend) == problems


@EACH
def test_every_query_heeds_the_variables(dashboard: Dashboard) -> None:
    selectors = [found for query in queries(dashboard) for found in re.findall(r"\{([^}]*)\}", query)]
    assert selectors
    chosen = 'cluster=~"$cluster", namespace=~"$namespace", job=~"$job", instance=~"$instance"'
    assert [found for found in selectors if not found.startswith(chosen)] == []


@EACH
def test_every_panel_has_a_unit_a_description_and_the_chosen_data_source(dashboard: Dashboard) -> None:
    panels = [panel for panel in document(dashboard)["panels"] if panel["type"] != "row"]
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels:
        assert panel["title"], panel["id"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"], panel["title"]
        assert [target["datasource"] for target in panel["targets"]] == [chosen] * len(panel["targets"])
        assert panel["datasource"] == chosen


@EACH
def test_restarts_and_takeovers_are_marked(dashboard: Dashboard) -> None:
    marked = document(dashboard)["annotations"]["list"]
    assert [each["name"] for each in marked] == ["Restart", "Takeover"]
    for each in marked:
        assert Query(each["expr"]).problems(SERIES, each["textFormat"]) == []
        assert 'instance=~"$instance"' in each["expr"]


def test_the_first_row_answers_before_anything_else() -> None:
    first = DASHBOARDS[0]
    assert first.file == "overview.json"
    titles = [panel.title for panel in first.rows["In five seconds"]]
    assert next(iter(first.rows)) == "In five seconds"
    assert titles == [
        *("Pending pods", "Oldest pending pod", "Ready", "Leader"),
        *("Error budget left", "Alerts firing", "Calls now"),
    ]
    assert sum(panel.width for panel in first.rows["In five seconds"]) == 24


def most_series(queries: Mapping[str, str]) -> float:
    """How many series the queries of a panel may have at a moment: one without a label in its legend, else what it limits them to."""
    limits = {name: re.match(r"(?:top|bottom)k\((\d+), ", query) for name, query in queries.items()}
    return sum(float(found[1]) if (found := limits[name]) else inf if "{{" in name else 1 for name in queries)


@EACH
def test_no_panel_can_have_more_than_eight_series(dashboard: Dashboard) -> None:
    panels = [panel for panel in document(dashboard)["panels"] if panel["type"] != "row"]
    found = {
        panel["title"]: most_series({target["legendFormat"]: target["expr"] for target in panel["targets"]})
        for panel in panels
    }
    assert {title: most for title, most in found.items() if not 1 <= most <= 8} == {}


@pytest.mark.parametrize(
    ("queries", "most"),
    [
        ({"{{scheduler}}": "sum by (scheduler) (extender_pending_pods)"}, inf),
        (
            {
                "{{scheduler}}": "topk(8, sum by (scheduler) (extender_pending_pods))",
                "all": "sum(extender_pending_pods)",
            },
            9,
        ),
        ({"{{check}}": "bottomk(3, extender_ready)", "of": "count(extender_build_info)"}, 4),
    ],
)
def test_panels_with_more_series_are_found(queries: dict[str, str], most: float) -> None:
    assert most_series(queries) == most


def test_what_a_panel_leaves_out_is_added_up_where_that_is_asked_for() -> None:
    (panel,) = [each for each in DASHBOARDS[0].panels if each.title == "Pending pods by reason"]
    shown, others = panel.queries["{{reason}}"], panel.queries["others"]
    assert shown.startswith("topk(7, ")
    everything = shown.removeprefix("topk(7, ").removesuffix(")")
    assert others == f"sum({everything} unless {shown})"


@EACH
def test_no_two_panels_lie_over_each_other(dashboard: Dashboard) -> None:
    places = [panel["gridPos"] for panel in document(dashboard)["panels"]]
    assert max(place["x"] + place["w"] for place in places) <= 24
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)
