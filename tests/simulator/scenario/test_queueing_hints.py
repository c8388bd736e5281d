"""Pods that are nominated outside of the scheduler's sample are all bound, whether or not the scheduler has QueueingHints."""

from __future__ import annotations

from typing import Any

import pytest

from extender.cli.simulate import scenario_settings
from extender.compose.embedded import FREE_PORT, service_running
from extender.simulator.scenario.language import parse_scenario
from extender.simulator.scenario.play import Player
from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from extender.telemetry.metrics import read_page
from tests.simulator.plain import HOSTNAME, anti_affinity, term

METRIC = "extender_rejected_pod_actions_total"
NODES, ARRIVING = 300, 30  # the scheduler asks about 100 nodes at a time
APART = {"labels": {"app": "web"}, "spec": {"affinity": anti_affinity(term(HOSTNAME, app="web"))}}


def scenario(*, queueing_hints: bool) -> dict[str, Any]:
    """Pods that exclude each other by node, one for each node that has none yet."""
    return {
        "apiVersion": "placement.extender.dev/v1alpha1",
        "kind": "Scenario",
        "name": "nominated",
        "cluster": {
            "nodes": [{"count": NODES, "name": "node-{i}", "zones": 3}],
            "namespaces": [{"count": 1, "name": "team"}],
            "running": [{"template": "apart", "count": NODES - ARRIVING}],
        },
        "templates": {"apart": APART},
        "scheduler": {"percentageOfNodesToScore": 1, "queueingHints": queueing_hints},
        "steps": [
            {"arrive": {"template": "apart", "count": ARRIVING}},
            {"settle": {"calm": "2500ms", "timeout": "60s"}},
        ],
    }


@pytest.mark.parametrize("queueing_hints", [True, False])
async def test_every_nominated_pod_is_bound(*, queueing_hints: bool) -> None:
    play = parse_scenario(scenario(queueing_hints=queueing_hints))
    settings = scenario_settings(play, "test", FREE_PORT)
    async with (
        SimulatedCluster(play, 1) as simulated,
        service_running(settings, simulated.api.url, 1, simulated.clock) as (url, service),
    ):
        await simulated.begin(url)
        player = Player(simulated)
        await player.run(play.steps)
        report = await player.finish()
        page = read_page(service.metrics.render().decode())
    done = {labels["action"]: value for name, labels, value in page if name == METRIC and labels["result"] == "done"}
    assert done["nominate"] > 0
    assert (report.placed, report.waiting, report.violations) == (ARRIVING, (), ())
