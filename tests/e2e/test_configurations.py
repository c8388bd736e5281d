"""The configurations that we ship, as the real kube-scheduler reads them, and the forms in which it can ask."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

from extender.simulator.json_objects import JsonObject
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import HINTS_ON_AND_OFF
from tests.e2e.programs import our_command
from tests.simulator.plain import HOSTNAME, ZONE, anti_affinity, pod, spread, term

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

WEB = {"app": "web"}


def apart(number: int, **spec: Any) -> JsonObject:
    """A pod that shares its node with no other of its kind."""
    return pod(f"web-{number}", labels=WEB, affinity=anti_affinity(term(HOSTNAME, app="web")), **spec)


@pytest.mark.parametrize("in_names", [True, False], ids=["names", "whole nodes"])
@pytest.mark.parametrize("placement", ["decisive", "cooperative"])
async def test_requests_in_names_and_in_whole_nodes_are_answered_alike(
    cluster: Cluster, placement: str, *, in_names: bool
) -> None:
    await cluster.add_nodes(zones=3, per_zone=2)
    even = [spread(ZONE, labels=WEB)]
    pods = [apart(number, topologySpreadConstraints=even) for number in range(6)]
    async with cluster.scheduled(settings={"placement": placement}, nodeCacheCapable=in_names) as extender:
        await cluster.api.create(*pods)
        nodes = await cluster.board.bound(*pods)
        sizes = [await extender.metric(f"extender_request_bytes_{part}", verb="filter") for part in ("sum", "count")]
    assert len(set(nodes)) == 6
    assert (sizes[0] / sizes[1] < 2500) == in_names, "a whole node is several hundred bytes"
    assert await cluster.faults() == []


@pytest.mark.core("augment")
@pytest.mark.parametrize("scheduler_flags", HINTS_ON_AND_OFF)
async def test_in_augment_mode_the_plugins_decide_and_the_extender_is_asked(cluster: Cluster) -> None:
    await cluster.add_nodes(zones=1, per_zone=3)
    pods = [apart(number) for number in range(4)]
    async with cluster.scheduled("augment") as extender:
        await cluster.api.create(*pods[:3])
        nodes = await cluster.board.bound(*pods[:3])
        questions = await extender.metric("extender_requests_total", verb="filter", code="200")
        await cluster.api.create(pods[3])
        message = await cluster.board.rejected(pods[3])
    assert len(set(nodes)) == 3
    assert questions >= 3
    assert "3 node(s) didn't match pod anti-affinity rules" in message
    assert await cluster.faults() == []


@pytest.mark.parametrize("scale", ["extender", "inTree"])
async def test_scores_of_either_scale_are_taken(cluster: Cluster, scale: str) -> None:
    names = await cluster.add_nodes(zones=3, per_zone=1)
    await cluster.api.create(pod("db", on=names[1], labels={"app": "db"}))
    preference = {"weight": 100, "podAffinityTerm": term(ZONE, app="db")}
    wanting = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}
    settings: Mapping[str, Any] = {"placement": "cooperative", "answers": {"scoreScale": scale, "shortlist": 0}}
    async with cluster.scheduled(settings=settings, prioritizeVerb="prioritize", weight=1) as extender:
        await cluster.api.create(incoming := pod("web", labels=WEB, affinity=wanting))
        assert await cluster.board.bound(incoming) == [names[1]]
        assert await extender.metric("extender_requests_total", verb="prioritize", code="200") == 1


async def test_scheduler_and_extender_know_one_another_by_certificate(cluster: Cluster) -> None:
    await cluster.add_nodes(zones=1, per_zone=2)
    folder = cluster.folder / "certificates"
    await asyncio.to_thread(subprocess.check_call, our_command("certs", "--out", str(folder)))
    ours = {"certFile": f"{folder}/server.crt", "keyFile": f"{folder}/server.key", "clientCAFile": f"{folder}/ca.crt"}
    theirs = {"caFile": f"{folder}/ca.crt", "certFile": f"{folder}/client.crt", "keyFile": f"{folder}/client.key"}
    settings = {"server": {"tls": {**ours, "clients": {"scheduler": ["system:kube-scheduler"]}}}}
    secured: dict[str, Any] = {"authority": folder / "ca.crt", "enableHTTPS": True}
    async with cluster.scheduled(settings=settings, tlsConfig=theirs, **secured):
        await cluster.api.create(apart(0))
        await cluster.board.bound(apart(0))
        await cluster.api.create(apart(1))
        await cluster.board.bound(apart(1))
    async with cluster.scheduled(settings=settings, tlsConfig={"caFile": theirs["caFile"]}, **secured):
        await cluster.api.create(stranger := pod("stranger"))
        assert "extender" in await cluster.board.rejected(stranger)


async def test_without_the_extender_no_pod_is_placed_in_offload_mode(cluster: Cluster) -> None:
    await cluster.add_nodes(zones=1, per_zone=3)
    async with cluster.scheduled() as extender:
        extender.program.stop()
        await cluster.api.create(pod("web"))
        message = await cluster.board.rejected(pod("web"))
    assert "connection refused" in message
