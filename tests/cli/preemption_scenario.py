"""The preemption scenario on an embedded cluster, and its outcome."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from extender.cli.simulate import read_objects, scenario_settings
from extender.compose.embedded import service_running
from extender.simulator.json_objects import labels_of
from extender.simulator.scenario.language import parse_scenario
from extender.simulator.scenario.play import Player
from extender.simulator.scenario.simulated_cluster import SimulatedCluster

SCENARIO = Path(__file__).parents[2] / "config" / "scenarios" / "preemption.yaml"


class Outcome:
    """The pods that stand somewhere in the end, by app, what was expected in vain, and the metrics page."""

    def __init__(self, simulated: SimulatedCluster, player: Player, metrics: str) -> None:
        placed = [stored.read() for stored in simulated.pods() if stored.node]
        self.apps = Counter(labels_of(each)["app"] for each in placed)
        self.guarded = sum("guarded" in labels_of(each) for each in placed)
        self.pending = len(simulated.pending())
        self.failures = player.failures
        self._metrics = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))

    def metric(self, name: str) -> float:
        """One series' value, 0 where there is none."""
        return float(self._metrics.get(name, 0))

    def metrics_of(self, name: str) -> float:
        """The sum of a metric's series."""
        return sum(float(value) for series, value in self._metrics.items() if series.startswith(f"{name}{{"))


async def play(patience: float | None = None, **changes: Any) -> Outcome:
    """Plays the scenario with a fifth of everything, and with these parts changed.

    With ``patience`` it goes on for at most so many seconds until no pod is pending, whatever was expected when.
    """
    document = yaml.safe_load(SCENARIO.read_text("utf-8"))
    cluster, steps = document["cluster"], document["steps"]
    # The service of this test is not killed, so what arrives while it is away is left out.
    del steps[next(at for at, step in enumerate(steps) if "restartExtender" in step) - 1 :]
    for part in (*cluster["nodes"], *cluster["running"]):
        part["count"] //= 5
    for step in steps:
        for action in ("arrive", "expect"):
            for field in ("count", "placed"):
                if field in step.get(action, {}):
                    step[action][field] //= 5
    for section, values in changes.items():
        document[section] = document.get(section, {}) | values if isinstance(values, dict) else values
    scenario = parse_scenario(document)
    settings = scenario_settings(scenario, str(SCENARIO))
    async with (
        SimulatedCluster(scenario, 1, read_objects(scenario, str(SCENARIO))) as simulated,
        service_running(settings, simulated.api.url, 1) as (url, service),
    ):
        await simulated.begin(url)
        player = Player(simulated)
        await player.run(scenario.steps)
        async with asyncio.timeout(patience):
            while patience and simulated.pending():  # noqa: ASYNC110 - writes that are tried again look like quiet
                await asyncio.sleep(0.1)
        await player.finish()
        return Outcome(simulated, player, service.metrics.render().decode())


KEEP_APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
        ]
    }
}


def small_scenario(folder: Path, **parts: Any) -> str:
    document = {
        "apiVersion": "placement.extender.dev/v1alpha1",
        "kind": "Scenario",
        "name": "test",
        "cluster": {"nodes": [{"count": 3}], "namespaces": [{"name": "default"}]},
        "templates": {"web": {"labels": {"app": "web"}, "spec": {"affinity": KEEP_APART}}},
        "steps": [{"arrive": {"template": "web", "count": 4}}, {"settle": {"calm": "200ms"}}],
        **parts,
    }
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(document), "utf-8")
    return str(path)
