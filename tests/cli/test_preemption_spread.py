"""Several preemptors with hard constraints at once, on a full cluster: how many pods have to go for them in the end."""

from __future__ import annotations

import pytest

from extender.cli.simulate import scenario_settings
from extender.compose.embedded import service_running
from extender.simulator.json_objects import JsonObject, labels_of
from extender.simulator.scenario.language import parse_scenario
from extender.simulator.scenario.play import Player
from extender.simulator.scenario.simulated_cluster import SimulatedCluster

ZONE = "topology.kubernetes.io/zone"
URGENT = {"matchLabels": {"app": "urgent"}}
SPREAD = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": URGENT}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
CONSTRAINTS: dict[str, JsonObject] = {
    "spread": {"topologySpreadConstraints": [SPREAD]},
    "anti-affinity": {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": ZONE, "labelSelector": URGENT}]}}},
}
LESSER, PREEMPTORS = 12, 3


async def victims(mode: str, constraint: str, seed: int) -> int:
    """Twelve full nodes in three zones with one pod each, and three important pods, one for each zone."""
    play = parse_scenario(
        {
            "apiVersion": "placement.extender.dev/v1alpha1",
            "kind": "Scenario",
            "name": "spread",
            "cluster": {
                "nodes": [{"count": LESSER, "zones": 3, "cpu": "2"}],
                "namespaces": [{"name": "default"}],
                "running": [{"template": "lesser", "count": LESSER}],
            },
            "templates": {
                "lesser": {"labels": {"app": "lesser"}, "cpu": "2", "spec": {"priority": 0}},
                "urgent": {
                    "labels": {"app": "urgent"},
                    "cpu": "2",
                    "spec": {"priority": 1000} | CONSTRAINTS[constraint],
                },
            },
            "scheduler": {"preemption": "async", "podInitialBackoff": "50ms", "podMaxBackoff": "500ms"},
            "apiServer": {"kubeletDelay": "100ms"},
            "extender": {"preemption": {"mode": mode}},
            "steps": [
                {"arrive": {"template": "urgent", "count": PREEMPTORS}},
                {"settle": {"timeout": "30s", "calm": "500ms"}},
            ],
        }
    )
    settings = scenario_settings(play, "spread.yaml")
    async with (
        SimulatedCluster(play, seed, []) as simulated,
        service_running(settings, simulated.api.url, seed) as (url, _),
    ):
        await simulated.begin(url)
        player = Player(simulated)
        await player.run(play.steps)
        report = await player.finish()
        assert not report.waiting
        assert not report.violations
        standing = [labels_of(stored.read())["app"] for stored in simulated.pods() if stored.node]
        assert standing.count("urgent") == PREEMPTORS
        return LESSER - standing.count("lesser")


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("seed", range(3))
async def test_one_pod_goes_for_each_preemptor(constraint: str, seed: int) -> None:
    """A preemptor must not be sent where another one, nominated elsewhere in the zone, will keep it out."""
    assert await victims("execute", constraint, seed) == PREEMPTORS
