"""A script that plays an autoscaler beside the real scheduler: it adds nodes for pending pods, and knows nothing of the extender."""

from __future__ import annotations

import pytest

from extender.model.release import RELEASE_GATE
from extender.simulator.json_objects import JsonObject, condition_of, labels_of
from tests.autoscaling import node_to_add
from tests.e2e.client import NAMESPACES, NODES, PODS
from tests.e2e.cluster import Cluster
from tests.simulator.plain import ZONE, node, pod, spread

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PER_NODE, ZONES = 2, ("z1", "z2", "z3")


async def autoscaled(cluster: Cluster) -> list[str]:
    """Nodes are added, one at a time, until the script wants none; returns their zones."""
    added: list[str] = []
    while True:
        await cluster.calm()
        pods, nodes, namespaces = [(await cluster.api.list(path))[0] for path in (PODS, NODES, NAMESPACES)]
        templates = [node(f"added-{len(added)}-{zone}", zone, cpu=str(PER_NODE)) for zone in ZONES]
        wanted = node_to_add(pods, nodes, namespaces, templates)
        if wanted is None:
            return added
        await cluster.api.create(wanted)
        added.append(labels_of(wanted)[ZONE])


@pytest.mark.parametrize("mode", ["offload", "augment"])
async def test_it_adds_the_nodes_that_min_domains_asks_for_and_no_more(cluster: Cluster, mode: str) -> None:
    """KEP-3022, "User Stories". In offload mode as with the plugins, which decide in augment mode."""
    await cluster.add_nodes(zones=2, per_zone=1, cpu=str(PER_NODE))
    labels = {"app": "web"}
    constraint = spread(ZONE, labels=labels, minDomains=3)
    pods = [
        pod(f"web-{number}", labels=labels, cpu="1", topologySpreadConstraints=[constraint]) for number in range(12)
    ]
    async with cluster.scheduled(mode):
        await cluster.api.create(*pods)
        await cluster.board.decided(*pods)
        await cluster.calm()
        assert len(cluster.board.bound_at) == 2, "one in each of two zones, while the third has no node"
        added = await autoscaled(cluster)
        await cluster.board.bound(*pods)
    assert added[0] == "z3"
    assert sorted(added) == ["z1", "z2", "z3", "z3"]
    assert await cluster.faults() == []


async def test_gated_pods_add_no_node(cluster: Cluster) -> None:
    await cluster.add_nodes(zones=1, per_zone=1, cpu=str(PER_NODE))
    gated = [pod(f"gated-{number}", cpu="1", schedulingGates=[{"name": RELEASE_GATE}]) for number in range(6)]
    async with cluster.scheduled():
        await cluster.api.create(*gated)
        await cluster.board.until(lambda: all(map(_is_gated, cluster.board.pods.values())) and cluster.board.pods)
        assert await autoscaled(cluster) == []


def _is_gated(found: JsonObject) -> bool:
    return (condition_of(found, "PodScheduled") or {}).get("reason") == "SchedulingGated"
