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


def rule_objects(runbook: str = "") -> str:
    """The text of the PrometheusRules, with the runbook at this address; empty leaves the addresses relative."""
    documents = list[str]()
    for name in ("rules", "alerts"):
        groups = (FOLDER / f"{name}.yaml").read_text("utf-8").partition("groups:\n")[2]
        groups = groups.replace("runbook_url: runbook.md#", f"runbook_url: {runbook or 'runbook.md'}#")
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
