"""Where the files of grafana/ are, and how they are written and read."""

import json
from pathlib import Path
from typing import Any

import yaml

from grafana.generate.catalogue import table
from grafana.generate.panels import Dashboard

FOLDER = Path(__file__).resolve().parents[1]
README = FOLDER / "README.md"
BEGIN, END = "<!-- metrics: begin -->", "<!-- metrics: end -->"


def text_of(dashboard: Dashboard) -> str:
    """The file's text."""
    return json.dumps(dashboard.render(), indent=2) + "\n"


def with_table(readme: str) -> str:
    """The README with the present table between its marks."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


def write_all() -> None:
    """Write everything that is generated."""
    for dashboard in DASHBOARDS:
        (FOLDER / "dashboards" / dashboard.file).write_text(text_of(dashboard), "utf-8")
    README.write_text(with_table(README.read_text("utf-8")), "utf-8")


def load(name: str) -> Any:
    """A YAML file of the folder."""
    return yaml.safe_load((FOLDER / name).read_text("utf-8"))


DASHBOARDS = Dashboard.all()
