"""The dashboards and the table of metrics: in step with the metrics, complete, and in the form that Grafana takes."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Any

import pytest

from grafana.generate.catalogue import entries
from grafana.generate.files import DASHBOARDS, FOLDER, README, text_of, with_table
from grafana.generate.panels import Dashboard

SERIES = {series for entry in entries() for series in entry.series}
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


def test_the_table_of_metrics_is_what_the_service_declares() -> None:
    readme = README.read_text("utf-8")
    assert readme == with_table(readme), "run `python -m grafana.generate`"
    assert readme.count("| `extender_") == len(entries())


def test_every_metric_has_a_sentence_of_meaning_and_bounded_labels() -> None:
    assert [entry.name for entry in entries() if not entry.meaning.endswith(".")] == []
    labels = {label for entry in entries() for label in entry.labels}
    assert labels.isdisjoint({"pod", "uid", "node"})
    by_namespace = [entry for entry in entries() if "namespace" in entry.labels]
    bounded = re.compile("10 namespaces|100 workloads")
    assert [entry.name for entry in by_namespace if not bounded.search(entry.meaning)] == []


def test_every_metric_is_on_a_dashboard() -> None:
    shown = {
        name for dashboard in DASHBOARDS for query in queries(dashboard) for name in re.findall(r"extender_\w+", query)
    }
    assert [entry.name for entry in entries() if shown.isdisjoint(entry.series)] == []


@EACH
def test_every_query_asks_for_metrics_that_exist(dashboard: Dashboard) -> None:
    asked = {name for query in queries(dashboard) for name in re.findall(r"\bextender_\w+", query)}
    assert asked - SERIES == set()


@EACH
def test_every_query_heeds_the_variables(dashboard: Dashboard) -> None:
    selectors = [found for query in queries(dashboard) for found in re.findall(r"\{([^}]*)\}", query)]
    assert selectors
    assert [found for found in selectors if not found.startswith('job=~"$job", instance=~"$instance"')] == []


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
def test_no_two_panels_lie_over_each_other(dashboard: Dashboard) -> None:
    places = [panel["gridPos"] for panel in document(dashboard)["panels"]]
    assert max(place["x"] + place["w"] for place in places) <= 24
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)
