"""A real Prometheus scrapes the service under the demo's load: every panel, rule and alert has something to go by."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from extender.telemetry.catalogue import METRICS
from grafana.generate.files import DASHBOARDS
from grafana.generate.observed import Prometheus, observed
from tests.fakes import PATIENCE
from tests.programs import tool


def panel_queries() -> dict[str, str]:
    """Every query of every panel by its place, with the variables filled in as Grafana would."""
    found: dict[str, str] = {}
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            for legend, query in panel.queries.items():
                place = f"{dashboard.file} / {panel.title} / {legend}"
                # No panel has more than seven series here: "others" adds up what a topk leaves out, and this topk leaves out all.
                query = re.sub(r"unless topk\(\d+", "unless topk(0", query)  # noqa: PLW2901
                found[place] = re.sub(
                    r"\$(cluster|namespace|job|instance)", ".*", query.replace("$__rate_interval", "10s")
                )
    return found


async def without_data(server: Prometheus, queries: dict[str, str]) -> list[str]:
    """The queries that have no data, asked again and again until none is left or patience is over."""
    waiting = dict(queries)
    try:
        async with asyncio.timeout(PATIENCE):
            while waiting:
                for place, query in list(waiting.items()):
                    if await server.has_data(query):
                        del waiting[place]
                await asyncio.sleep(0.2)  # the next scrape
    except TimeoutError:
        pass
    return sorted(waiting)


async def test_every_panel_and_every_rule_has_data_under_load(tmp_path: Path) -> None:
    async with observed(tmp_path, tool("prometheus")) as server:
        assert "\n".join(await without_data(server, panel_queries())) == ""
        scraped = set(await server.get("label/__name__/values"))
        assert [metric.name for metric in METRICS if scraped.isdisjoint(metric.samples)] == []
        groups = (await server.get("rules"))["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert {rule["name"]: rule["lastError"] for rule in rules if rule.get("lastError")} == {}
        recorded = {rule["name"]: rule["name"] for rule in rules if rule["type"] == "recording"}
        assert len(recorded) == len({name for name in recorded if re.fullmatch(r"[\w:]+", name)}) > 0
        assert "\n".join(await without_data(server, recorded)) == ""
