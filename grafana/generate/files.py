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
METRICS_PAGE = FOLDER.parent / "config" / "reference" / "metrics.md"


def text_of(dashboard: Dashboard) -> str:
    """The file's text."""
    return json.dumps(dashboard.render(), indent=2) + "\n"


def metrics_text() -> str:
    """The text of `config/reference/metrics.md`."""
    alerts = defaultdict(list)
    for rule in rules("alerts.yaml"):
        alerts[rule["alert"]].append(rule["expr"])
    return metrics_page.page(DASHBOARDS, alerts, {rule["record"]: rule["expr"] for rule in rules("rules.yaml")})


def write_all() -> None:
    """Write everything that is generated."""
    for dashboard in DASHBOARDS:
        (FOLDER / "dashboards" / dashboard.file).write_text(text_of(dashboard), "utf-8")
    METRICS_PAGE.write_text(metrics_text(), "utf-8")


def load(name: str) -> Any:
    """A YAML file of the folder."""
    return yaml.safe_load((FOLDER / name).read_text("utf-8"))


def rules(name: str) -> Iterator[dict[str, Any]]:
    """The rules or alerts of a file."""
    for group in load(name)["groups"]:
        yield from group["rules"]


DASHBOARDS = Dashboard.all()
