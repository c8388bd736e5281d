"""Scenarios of a test's own on a simulated cluster, beside a fake extender or the real service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from extender.cli.simulate import scenario_settings
from extender.compose.embedded import FREE_PORT, service_running
from extender.compose.service import Service
from extender.simulator.json_objects import JsonObject
from extender.simulator.scenario.language import parse_scenario
from extender.simulator.scenario.play import Player
from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from tests.simulator.fake_extender import FakeExtender


def scenario(*steps: JsonObject, **parts: Any) -> dict[str, Any]:
    """A document with these steps and sections."""
    version = "placement.extender.dev/v1alpha1"
    return {"apiVersion": version, "kind": "Scenario", "name": "test", "steps": list(steps), **parts}


@asynccontextmanager
async def playing(
    document: Mapping[str, Any], extender: FakeExtender | None = None, seed: int = 1
) -> AsyncIterator[tuple[Player, SimulatedCluster]]:
    """A cluster with a fake extender, on which the steps have been taken."""
    play, fake = parse_scenario(document), extender or FakeExtender()
    async with fake.running(), SimulatedCluster(play, seed) as simulated:
        await simulated.begin(fake.url)
        player = Player(simulated)
        await player.run(play.steps)
        yield player, simulated


@asynccontextmanager
async def serving(
    document: Mapping[str, Any], seed: int = 1
) -> AsyncIterator[tuple[Player, SimulatedCluster, Service]]:
    """A cluster with the real service, before the first step."""
    play = parse_scenario(document)
    async with (
        SimulatedCluster(play, seed) as simulated,
        service_running(scenario_settings(play, "test", FREE_PORT), simulated.api.url, seed, simulated.clock) as served,
    ):
        url, service = served
        await simulated.begin(url)
        yield Player(simulated), simulated, service
