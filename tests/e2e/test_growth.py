"""A gang of a real StatefulSet that is scaled up, updated and scaled down: its pods stay in one zone, and those without room say so."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from extender.simulator.json_objects import condition_of, name_of, node_of
from tests.deploy.policies.examples import policy
from tests.e2e import controllers
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import scheduler_document
from tests.e2e.growing_group import Started, placed, reported, zone_of
from tests.e2e.overlays import kubectl
from tests.e2e.pod_groups import LABEL, SIZE, without_placements
from tests.e2e.policing import Policed, policed
from tests.e2e.programs import our_command
from tests.simulator.plain import ZONE, node, pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

GROWING = "/apis/apps/v1/namespaces/default/statefulsets/web"


@pytest.fixture
async def growing(cluster: Cluster, assets: Path) -> AsyncIterator[Policed]:
    """Two zones with room for twelve pods each, and a StatefulSet of four that are a gang of four."""
    if not controllers.is_there(assets):
        pytest.skip(f"{controllers.PROGRAM} is not in {assets}: NOTHING IS KNOWN of gangs of a StatefulSet that grow")
    await cluster.add_nodes(zones=2, per_zone=3, cpu="4")
    block = {"topology": [ZONE], "group": {"label": LABEL}, "size": {"label": SIZE}}
    selector = {"matchExpressions": [{"key": LABEL, "operator": "Exists"}]}
    spec = {"podSelector": selector, "namespaceSelector": {}, "when": ["Release"], "release": block}
    template = pod("web", cpu="1", labels={LABEL: "web", SIZE: "4"})
    body = controllers.deployment("web", 4, template)
    body |= {"kind": "StatefulSet", "spec": {**body["spec"], "serviceName": "web", "podManagementPolicy": "Parallel"}}
    async with AsyncExitStack() as stack:
        stack.push_async_callback(
            without_placements, cluster.api
        )  # once the service has ended, which would decide again
        found = await stack.enter_async_context(policed(cluster))
        await stack.enter_async_context(controllers.controlled(cluster, assets))
        await found.apply(policy("ClusterPodSchedulingPolicy", "gangs", **spec))
        stack.callback(cluster.plane.scheduler.stop)
        await asyncio.to_thread(cluster.plane.start_scheduler, scheduler_document("offload", found.extender.url))
        Started(cluster.api, cluster.board)
        await kubectl(cluster, "apply", documents=[body])
        await cluster.board.until(lambda: len(placed(cluster.board)) == 4)
        yield found


async def test_a_gang_of_a_stateful_set_grows_is_updated_and_shrinks_in_its_zone(growing: Policed) -> None:
    api, board = growing.api, growing.cluster.board
    zone = await zone_of(growing)
    await api.patch(GROWING, {"spec": {"replicas": 6}})
    await board.until(lambda: len(placed(board)) == 6)
    await reported(growing, "Bound", "6 of 6 pods have a node")
    assert await zone_of(growing) == zone
    before = set(placed(board))
    await api.patch(GROWING, {"spec": {"template": {"metadata": {"annotations": {"example.com/restarted": "1"}}}}})
    await board.until(lambda: len(placed(board)) == 6 and not before & placed(board).keys(), within=120)
    assert await zone_of(growing) == zone
    await reported(growing, "Bound", "6 of 6 pods have a node")
    await api.patch(GROWING, {"spec": {"replicas": 3}})
    await reported(growing, "Bound", "3 of 4 pods have a node; 1 of 4 pods does not exist")
    assert await zone_of(growing) == zone
    assert await growing.cluster.faults() == []


async def test_pods_that_find_no_room_in_the_zone_of_their_gang_say_so_until_there_is_some(growing: Policed) -> None:
    api, board = growing.api, growing.cluster.board
    zone = await zone_of(growing)
    await api.patch(GROWING, {"spec": {"replicas": 14}})
    await board.until(lambda: len(placed(board)) == 12)
    holds = f"{ZONE}={zone} holds 0 of 1 (3 nodes: node(s) had too few resources left)"
    await reported(growing, "Degraded", f"2 more than the size wait: {holds}")
    waiting = [each for each in board.pods.values() if not node_of(each)]
    late = sorted(name_of(each) for each in waiting)
    # With Parallel the controller creates 7 to 13 at one moment: of those that have come the first join, by their numbers.
    assert len(late) == 2
    assert set(late) < {f"web-{number}" for number in range(7, 14)}
    assert {(condition_of(each, "PodScheduled") or {})["reason"] for each in waiting} == {"SchedulingGated"}
    events, _ = await api.list("/apis/events.k8s.io/v1/namespaces/default/events")
    assert set(late) & {each["regarding"]["name"] for each in events if each["reason"] == "GroupDomainFull"}
    said = await asyncio.to_thread(
        subprocess.check_output, our_command("explain", f"default/{late[1]}", "--url", growing.extender.url), text=True
    )
    held = "held at the gate of ClusterPodSchedulingPolicy/gangs with its group web, which is Degraded: 2 more than the size wait: "
    assert f"{held}{holds}\nit goes to {ZONE}={zone}, and nodes elsewhere do not count\n" in said
    assert "6 of 6 nodes pass the rules of the extender, and none would take it" in said
    assert f"  - more room on {zone}-1: cpu 1000m: then it passes on {zone}-1" in said, (
        "in its zone, and not in the other"
    )
    config = growing.cluster.folder / "extender.yaml"
    listed = await asyncio.to_thread(
        subprocess.check_output,
        our_command(
            "groups", "--waiting", "--kubeconfig", str(growing.cluster.plane.kubeconfig), "--config", str(config)
        ),
        text=True,
    )
    assert f"2 more than the size wait: {holds}" in listed
    await api.create(node("one-more", zone, cpu="4"))
    await board.until(lambda: len(placed(board)) == 14)
    assert await zone_of(growing) == zone
    await reported(growing, "Bound", "14 of 14 pods have a node")
    assert await growing.cluster.faults() == []
