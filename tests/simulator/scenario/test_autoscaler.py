"""Nodes that an autoscaler adds for pending pods of a minDomains constraint, and for a group without room, on a simulated cluster.

KEP-3022, "User Stories": an autoscaler adds nodes in further domains, because the constraint leaves pods pending.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from extender.cli.simulate import scenario_settings
from extender.compose.embedded import FREE_PORT, service_running
from extender.model.release import RELEASE_GATE
from extender.simulator.apiserver.kinds import GROUP_PLACEMENTS, NAMESPACES, NODES, PODS, POLICY_KINDS
from extender.simulator.json_objects import condition_of, labels_of, node_of
from extender.simulator.scenario.language import parse_scenario
from extender.simulator.scenario.play import Player
from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from tests.autoscaling import node_to_add
from tests.fakes import until
from tests.simulator.plain import ZONE, node, spread

LABELS: Final = {"app": "web"}
CONSTRAINT: Final = spread(ZONE, labels=LABELS, minDomains=3)
SCENARIO: Final[dict[str, Any]] = {
    "apiVersion": "placement.extender.dev/v1alpha1",
    "kind": "Scenario",
    "name": "autoscaled",
    "cluster": {"nodes": [{"count": 2, "zones": 2, "cpu": "2"}], "namespaces": [{"name": "shop"}]},
    "templates": {"web": {"labels": LABELS, "cpu": "1", "spec": {"topologySpreadConstraints": [CONSTRAINT]}}},
    "steps": [{"arrive": {"template": "web", "count": 12}}],
}
ZONES: Final = ("zone-0", "zone-1", "zone-2")


async def test_it_adds_the_nodes_that_min_domains_asks_for_and_no_more() -> None:
    play = parse_scenario(SCENARIO)
    added: list[str] = []
    async with (
        SimulatedCluster(play, 1) as simulated,
        service_running(scenario_settings(play, "test", FREE_PORT), simulated.api.url, 1, simulated.clock) as (url, _),
    ):
        await simulated.begin(url)
        player = Player(simulated)
        await player.run(play.steps)
        placed = []
        while await simulated.settle(within=60, calm=0.1):
            objects = [
                [each.read() for each in simulated.api.store.table(kind).objects.values()]
                for kind in (PODS, NODES, NAMESPACES)
            ]
            placed.append(sum(map(bool, map(node_of, objects[0]))))
            if placed[-1] == len(objects[0]):
                break
            templates = [node(f"added-{len(added)}-{zone}", zone, cpu="2") for zone in ZONES]
            wanted = node_to_add(objects[0], objects[1], objects[2], templates)
            if wanted is None:  # a node has room for the pod, and the scheduler has not tried the pod again yet
                continue
            added.append(labels_of(wanted)[ZONE])
            simulated.api.operations.create(NODES, wanted)
        report = await player.finish()
    assert (placed[0], placed[-1]) == (2, 12), "one pod in each of two zones, while the third has no node"
    assert sorted(added) == ["zone-0", "zone-1", "zone-2", "zone-2"]
    assert added[0] == "zone-2"
    assert (report.placed, report.waiting, report.violations) == (12, (), ())


MACHINE: Final = "example.com/machine"
GATED: Final[dict[str, Any]] = {
    "labels": {"gang": "a"},
    "cpu": "1",
    "spec": {"schedulingGates": [{"name": RELEASE_GATE}]},
}
GANG: Final[dict[str, Any]] = {
    **SCENARIO,
    "name": "gang",
    "cluster": {
        "nodes": [{"count": 1, "cpu": "2", "labels": {MACHINE: "spot"}}],
        "namespaces": [{"name": "shop"}],
    },
    "templates": {"gang": GATED},
    "extender": {"policies": {"enabled": True}},
    "steps": [{"arrive": {"template": "gang", "count": 4}}],
}
RELEASE: Final[dict[str, Any]] = {
    "group": {"label": "gang"},
    "size": {"count": 4},
    "topology": [MACHINE],
    "strategy": "InOrder",
    "domains": [{"name": "spot", "values": ["spot"]}, {"name": "on-demand", "values": ["m", "n"], "mayGrow": True}],
}


def _is_told(simulated: SimulatedCluster) -> bool:
    """Whether autoscalers see the pods, or their group tells why they wait."""
    pods, groups = (
        [each.read() for each in simulated.api.store.table(kind).objects.values()] for kind in (PODS, GROUP_PLACEMENTS)
    )
    reasons = {(condition_of(each, "PodScheduled") or {}).get("reason") for each in pods}
    told = {(condition_of(each, "Placed") or {}).get("reason") for each in groups}
    return reasons == {"Unschedulable"} or "NoRoom" in told


@pytest.mark.parametrize(("when_no_room", "nodes"), [("Release", ["m", "m"]), ("Wait", [])])
async def test_it_adds_nodes_for_a_group_without_room_where_the_policy_lets_it_see_the_pods(
    when_no_room: str, nodes: list[str]
) -> None:
    """KEP-3838, "User Stories": a gated pod makes no autoscaler act; a released one does, where it is narrowed to."""
    play = parse_scenario(GANG)
    added: list[str] = []
    async with (
        SimulatedCluster(play, 1) as simulated,
        service_running(scenario_settings(play, "test", FREE_PORT), simulated.api.url, 1, simulated.clock) as (url, _),
    ):
        await simulated.begin(url)
        spec = {"podSelector": {}, "when": ["Release"], "release": {**RELEASE, "whenNoRoom": when_no_room}}
        policy = {"metadata": {"name": "gangs", "namespace": "shop"}, "spec": spec}
        await simulated.api.create(POLICY_KINDS[0], policy)
        player = Player(simulated)
        await player.run(play.steps)
        await until(lambda: _is_told(simulated))
        while await simulated.settle(within=60, calm=0.3):
            objects = [
                [each.read() for each in simulated.api.store.table(kind).objects.values()]
                for kind in (PODS, NODES, NAMESPACES)
            ]
            templates = [
                node(f"added-{len(added)}-{machine}", cpu="2", labels={MACHINE: machine}) for machine in ("spot", "m")
            ]
            wanted = node_to_add(objects[0], objects[1], objects[2], templates)
            if wanted is None:
                break
            added.append(labels_of(wanted)[MACHINE])
            simulated.api.operations.create(NODES, wanted)
        report = await player.finish()
    assert added == nodes
    assert (report.placed, report.violations) == (2 * len(nodes), ())
