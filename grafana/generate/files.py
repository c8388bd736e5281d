"""Where the files of grafana/ are, and how they are written and read."""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from grafana.generate import metrics_page
from grafana.generate.panels import Dashboard

FOLDER = Path(__file__).resolve().parents[1]
README = FOLDER / "README.md"
RULE_OBJECTS = FOLDER.parent / "deploy" / "monitoring" / "rules" / "prometheus-rule.yaml"
_HEAD = """\
# `python -m grafana.generate` writes this file from grafana/rules.yaml and grafana/alerts.yaml. Add the label of the `ruleSelector` of
# your Prometheus, if it has one.
"""
METRICS_PAGE = FOLDER.parent / "config" / "reference" / "metrics.md"


def text_of(dashboard: Dashboard, runbook: str = "") -> str:
    """The file's text. ``runbook``: the address of runbook.md where it is published; empty leaves the link out."""
    return json.dumps(dashboard.render(runbook), indent=2) + "\n"


def with_runbook(alerts: str, runbook: str) -> str:
    """The text of alerts whose annotations name their entry in the runbook at this address; empty leaves the annotation out."""
    lines, alert = list[str](), ""
    for line in alerts.splitlines(keepends=True):
        place, _, rest = line.partition(": ")
        if place.strip() == "- alert":
            alert = rest.strip().lower()
        if place.strip() != "runbook_url":
            lines.append(line)
        if place.strip() == "description" and runbook:
            lines.append(f"{place.removesuffix('description')}runbook_url: {runbook}#{alert}\n")
    return "".join(lines)


def alerts_text(runbook: str = "") -> str:
    """The text of alerts.yaml, with the runbook at this address."""
    return with_runbook((FOLDER / "alerts.yaml").read_text("utf-8"), runbook)


def rule_objects(runbook: str = "") -> str:
    """The text of the PrometheusRules, with the runbook at this address."""
    documents = list[str]()
    for name, text in (("rules", (FOLDER / "rules.yaml").read_text("utf-8")), ("alerts", alerts_text(runbook))):
        groups = text.partition("groups:\n")[2]
        documents.append(
            "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\n"
            f"metadata:\n  name: placement-extender-{name}\nspec:\n  groups:\n"
            + "".join(f"  {line}" if line.strip() else line for line in groups.splitlines(keepends=True))
        )
    return _HEAD + "---\n".join(documents)


def metrics_text() -> str:
    """The text of `config/reference/metrics.md`."""
    alerts = defaultdict(list)
    for rule in rules("alerts.yaml"):
        alerts[rule["alert"]].append(rule["expr"])
    return metrics_page.page(DASHBOARDS, alerts, {rule["record"]: rule["expr"] for rule in rules("rules.yaml")})


def write_all(runbook: str = "") -> None:
    """Write everything that is generated. ``runbook``: see `text_of`."""
    for dashboard in DASHBOARDS:
        (FOLDER / "dashboards" / dashboard.file).write_text(text_of(dashboard, runbook), "utf-8")
    (FOLDER / "alerts.yaml").write_text(alerts_text(runbook), "utf-8")
    RULE_OBJECTS.write_text(rule_objects(runbook), "utf-8")
    METRICS_PAGE.write_text(metrics_text(), "utf-8")


def load(name: str) -> Any:
    """A YAML file of the folder."""
    return yaml.safe_load((FOLDER / name).read_text("utf-8"))


def rules(name: str) -> Iterator[dict[str, Any]]:
    """The rules or alerts of a file."""
    for group in load(name)["groups"]:
        yield from group["rules"]


DASHBOARDS = Dashboard.all()
