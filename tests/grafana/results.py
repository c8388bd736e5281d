"""What the panels show: their queries' results under the demo's load, as a table for the README.

Run by `python -m tests.grafana results`. The figures are those of one run on one machine, and no test holds them.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from tests.grafana.description import DASHBOARDS
from tests.grafana.files import README
from tests.grafana.observed import Prometheus, observed

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
_LOAD_SECONDS = 20.0
_MOST_ROWS = 3  # of a panel with many series, those with the largest values


async def write_results() -> None:
    """Play the load, ask every panel's queries, and put the answers into the README."""
    program = shutil.which("prometheus")
    if program is None:
        raise SystemExit("prometheus is not installed: apt-get install prometheus")
    with tempfile.TemporaryDirectory() as folder:
        async with observed(Path(folder), program) as server:
            await asyncio.sleep(_LOAD_SECONDS)
            rows = await _rows(server)
    before, _, rest = README.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    table = "\n".join(["| dashboard | panel | series | value |", "|---|---|---|---|", *rows])
    README.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}", "utf-8")


async def _rows(server: Prometheus) -> list[str]:
    rows: list[str] = []
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            found: list[tuple[float, str]] = []
            for legend, query in panel.queries.items():
                asked = query.replace("$__rate_interval", "20s").replace("$job", ".*").replace("$instance", ".*")
                result = (await server.get("query", query=asked))["result"]
                found += [(float(series["value"][1]), _named(legend, series["metric"])) for series in result]
            shown = sorted((one for one in found if one[0] == one[0]), reverse=True)[:_MOST_ROWS]
            unit = "" if panel.unit == "short" else f" {panel.unit}"
            place = f"| {dashboard.title} | {panel.title} |"
            rows += [f"{place} {name} | {value:.4g}{unit} |" for value, name in shown]
    return rows


def _named(legend: str, labels: dict[str, str]) -> str:
    """The legend as Grafana fills it in."""
    for name, value in labels.items():
        legend = legend.replace(f"{{{{{name}}}}}", "instance" if name == "instance" else value)
    return legend
