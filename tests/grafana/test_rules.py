"""Recording rules and alerts: they name what exists, each alert has its runbook entry, and promtool passes them."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter

import pytest
import yaml

from grafana.generate.files import DASHBOARDS, FOLDER, RULE_OBJECTS, load, rule_objects, rules, text_of, with_runbook
from grafana.generate.queries import Query, declared_series, recorded_series
from tests.fakes import PATIENCE
from tests.programs import tool

ALERTS = {rule["alert"] for rule in rules("alerts.yaml")}
RECORDED = {rule["record"]: rule["expr"] for rule in rules("rules.yaml")}
SERIES = declared_series()


def test_every_recording_rule_names_metrics_and_labels_that_exist() -> None:
    problems = {name: Query(query).problems(SERIES) for name, query in RECORDED.items()}
    assert problems
    assert {name: found for name, found in problems.items() if found} == {}


def test_every_alert_names_metrics_recorded_series_and_labels_that_exist() -> None:
    series = {**SERIES, **recorded_series(RECORDED, SERIES)}
    for alert in rules("alerts.yaml"):
        said = " ".join(alert["annotations"].values())
        assert Query(alert["expr"]).problems(series, said) == [], alert["alert"]


def test_every_recorded_series_but_the_rate_is_read_by_an_alert() -> None:
    read = " ".join(rule["expr"] for rule in rules("alerts.yaml"))
    assert {name for name in RECORDED if name not in read} == {"job_verb:extender_requests:rate5m"}


def test_every_alert_has_an_entry_in_the_runbook_and_every_entry_an_alert() -> None:
    runbook = (FOLDER / "runbook.md").read_text("utf-8")
    assert set(re.findall(r"^## (\w+)$", runbook, re.MULTILINE)) == ALERTS
    for part in ("Meaning", "First look", "Remedy"):
        assert runbook.count(f"**{part}.** ") == len(ALERTS)


def test_every_alert_says_how_bad_it_is_and_what_it_is() -> None:
    for rule in rules("alerts.yaml"):
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}, rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]


def test_every_alert_is_tested_firing_and_silent() -> None:
    tested: Counter[tuple[str, bool]] = Counter()
    for test in load("rules_test.yaml")["tests"]:
        for case in test["alert_rule_test"]:
            tested[case["alertname"], bool(case["exp_alerts"])] += 1
    assert set(tested) == {(alert, fires) for alert in ALERTS for fires in (True, False)}


@pytest.mark.parametrize("command", ["check rules rules.yaml alerts.yaml", "test rules rules_test.yaml"])
def test_promtool_passes_them(command: str) -> None:
    done = subprocess.run(
        [tool("promtool", "prometheus"), *command.split()],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout + done.stderr


def test_the_prometheus_rules_have_the_rules_and_the_alerts() -> None:
    written = RULE_OBJECTS.read_text("utf-8")
    assert written == rule_objects(), "run `python -m grafana.generate`"
    made = list(yaml.safe_load_all(written))
    assert {document["kind"] for document in made} == {"PrometheusRule"}
    assert [document["spec"] for document in made] == [load("rules.yaml"), load("alerts.yaml")]


def test_the_address_of_the_runbook_is_a_setting() -> None:
    address = "https://example.com/runbook.md"
    _, alerts = yaml.safe_load_all(rule_objects(address))
    rules = [rule for group in alerts["spec"]["groups"] for rule in group["rules"]]
    assert {rule["annotations"].pop("runbook_url") for rule in rules} == {
        f"{address}#{alert.lower()}" for alert in ALERTS
    }
    assert alerts["spec"] == load("alerts.yaml"), "nothing else differs"
    links = json.loads(text_of(DASHBOARDS[0], address))["links"]
    assert [link["url"] for link in links if link["title"] == "Runbook"] == [address]
    assert "Runbook" not in text_of(DASHBOARDS[0])


def test_a_published_runbook_is_taken_out_again() -> None:
    plain = (FOLDER / "alerts.yaml").read_text("utf-8")
    published = with_runbook(plain, "https://example.com/runbook.md")
    assert published.count("runbook_url: https://example.com/runbook.md#extender") == plain.count("- alert: ")
    assert with_runbook(published, "") == plain
    assert with_runbook(with_runbook(published, "https://other.example"), "") == plain


def test_rules_and_alerts_keep_installations_apart() -> None:
    """One Prometheus may scrape several installations, in one cluster or in several, under one job."""
    expressions = {**RECORDED, **{rule["alert"]: rule["expr"] for rule in rules("alerts.yaml")}}
    groupings = {
        (name, labels)
        for name, expression in expressions.items()
        for labels in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expression)
    }
    assert len(groupings) > 50
    assert {found for found in groupings if not found[1].startswith("cluster, namespace, job")} == set()
    bare = {name for name, expression in expressions.items() if re.search(r"\b(sum|max|min|count)\s*\(", expression)}
    assert bare == set(), "an aggregation without labels counts every installation"
