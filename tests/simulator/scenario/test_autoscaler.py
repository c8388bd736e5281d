"""Nodes that an autoscaler adds for pending pods of a minDomains constraint, and for a group without room, on a simulated cluster.

KEP-3022, "User Stories": an autoscaler adds nodes in further domains, because the constraint leaves pods pending.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from extender.model.release import RELEASE_GATE
from extender.simulator.apiserver.kinds import GROUP_PLACEMENTS, NAMESPACES, NODES, PODS, POLICY_KINDS, ServedKind
from extender.simulator.json_objects import JsonObject, condition_of, labels_of, node_of
from extender.simulator.scenario.language import parse_scenario
from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from tests.autoscaling import node_to_add
from tests.fakes import until
from tests.simulator.plain import ZONE, node, spread
from tests.simulator.scenario.playing import scenario, serving

MACHINE: Final = "example.com/machine"


def objects(simulated: SimulatedCluster, kind: ServedKind) -> list[JsonObject]:
    return [stored.read() for stored in simulated.api.store.table(kind).objects.values()]


def add_node(simulated: SimulatedCluster, key: str, values: tuple[str, ...], added: list[str]) -> bool:
    """Adds a node if a pod needs one, with the first of these values of a label that helps."""
    templates = [node(f"added-{len(added)}-{value}", cpu="2", labels={key: value}) for value in values]
    pods, nodes, namespaces = (objects(simulated, kind) for kind in (PODS, NODES, NAMESPACES))
    needed = node_to_add(pods, nodes, namespaces, templates)
    if needed is not None:
        added.append(labels_of(needed)[key])
        simulated.api.operations.create(NODES, needed)
    return needed is not None


async def test_it_adds_the_nodes_that_min_domains_requires_and_no_more() -> None:
    constraint = spread(ZONE, labels={"app": "web"}, minDomains=3)
    web = {"labels": {"app": "web"}, "cpu": "1", "spec": {"topologySpreadConstraints": [constraint]}}
    cluster = {"nodes": [{"count": 2, "zones": 2, "cpu": "2"}], "namespaces": [{"name": "shop"}]}
    document = scenario({"arrive": {"template": "web", "count": 12}}, cluster=cluster, templates={"web": web})
    added, placed = list[str](), list[int]()
    async with serving(document) as (player, simulated, _):
        await player.run(parse_scenario(document).steps)
        while await simulated.settle(within=60, calm=0.1):
            placed.append(sum(map(bool, map(node_of, objects(simulated, PODS)))))
            if placed[-1] == 12:
                break
            # If no node is needed, a node has room for the pod, and the scheduler has not tried the pod again yet.
            add_node(simulated, ZONE, ("zone-0", "zone-1", "zone-2"), added)
        report = await player.finish()
    assert (placed[0], placed[-1]) == (2, 12), "one pod in each of two zones, while the third has no node"
    assert sorted(added) == ["zone-0", "zone-1", "zone-2", "zone-2"]
    assert added[0] == "zone-2"
    assert (report.placed, report.waiting, report.violations) == (12, (), ())


def is_reported(simulated: SimulatedCluster) -> bool:
    """Whether autoscalers see the pods, or their group says why they wait."""
    pods, groups = (
        {(condition_of(found, condition) or {}).get("reason") for found in objects(simulated, kind)}
        for kind, condition in ((PODS, "PodScheduled"), (GROUP_PLACEMENTS, "Placed"))
    )
    return pods == {"Unschedulable"} or "NoRoom" in groups


@pytest.mark.parametrize(("action", "nodes"), [("GrowingDomain", ["m", "m"]), ("Wait", [])])
async def test_it_adds_nodes_for_a_group_without_room_where_the_policy_lets_it_see_the_pods(
    action: str, nodes: list[str]
) -> None:
    """KEP-3838, "User Stories": a gated pod makes no autoscaler act; a released one does, where it is narrowed to."""
    gated: JsonObject = {"labels": {"gang": "a"}, "cpu": "1", "spec": {"schedulingGates": [{"name": RELEASE_GATE}]}}
    spot = {"nodes": [{"count": 1, "cpu": "2", "labels": {MACHINE: "spot"}}], "namespaces": [{"name": "shop"}]}
    document = scenario(
        {"arrive": {"template": "gang", "count": 4}},
        cluster=spot,
        templates={"gang": gated},
        extender={"policies": {"enabled": True}},
    )
    domains = [{"name": "spot", "values": ["spot"]}, {"name": "on-demand", "values": ["m", "n"], "mayGrow": True}]
    release: dict[str, Any] = {
        "group": {"label": "gang"},
        "size": {"count": 4},
        "topology": [MACHINE],
        "strategy": "InOrder",
        "domains": domains,
        "noRoom": [{"action": action}],
    }
    spec = {"podSelector": {}, "when": ["Release"], "release": release}
    added: list[str] = []
    async with serving(document) as (player, simulated, _):
        await simulated.api.create(POLICY_KINDS[0], {"metadata": {"name": "gangs", "namespace": "shop"}, "spec": spec})
        await player.run(parse_scenario(document).steps)
        await until(lambda: is_reported(simulated))
        while await simulated.settle(within=60, calm=0.3) and add_node(simulated, MACHINE, ("spot", "m"), added):
            pass
        report = await player.finish()
    assert added == nodes
    assert (report.placed, report.violations) == (2 * len(nodes), ())
