"""The scenario in which controllers replace victims at once, with victims that end sooner: no pod is deleted for nothing."""

from __future__ import annotations

from pathlib import Path

import yaml

from extender.cli.simulation.scenarios import read_objects, scenario_settings
from extender.compose.embedded import service_running
from extender.simulator.scenario.language import parse_scenario
from extender.simulator.scenario.play import Player
from extender.simulator.scenario.simulated_cluster import SimulatedCluster

SCENARIO = Path(__file__).parents[2] / "config" / "scenarios" / "replaced-victims.yaml"


async def test_replacements_of_victims_are_not_nominated_to_nodes_that_are_kept_and_cost_no_further_victim() -> None:
    scenario = parse_scenario(yaml.safe_load(SCENARIO.read_text("utf-8")), short=True)
    settings = scenario_settings(scenario, str(SCENARIO))
    async with (
        SimulatedCluster(scenario, 1, read_objects(scenario, str(SCENARIO))) as simulated,
        service_running(settings, simulated.api.url, 1) as (url, service),
    ):
        await simulated.begin(url)
        player = Player(simulated)
        await player.run(scenario.steps)
        report = await player.finish()
        metrics = service.metrics.render().decode()
    assert (report.failures, report.broken) == ((), 0)
    assert 'extender_rejected_pod_actions_total{action="nominate",result="done"} 0.0' in metrics
