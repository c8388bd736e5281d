"""Room for more important pods on a real cluster: for reasons that only we know, and for want of resources."""

from __future__ import annotations

from typing import Any

import pytest

from extender.simulator.json_objects import JsonObject
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import HINTS_ON_AND_OFF
from tests.e2e.making_room import priority_class
from tests.simulator.plain import HOSTNAME, ZONE, anti_affinity, namespace, pod, term

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

WEB = {"app": "web"}
TEAM_A = {"matchLabels": {"team": "a"}}


def low(number: int, where: str = "default", **more: Any) -> JsonObject:
    """A pod that may have to go."""
    return pod(f"low-{number}", where, labels=WEB, priorityClassName="low", **more)


async def prepare(cluster: Cluster, lowest: list[JsonObject]) -> None:
    """Priorities, namespaces, and pods that stand there first."""
    for name, value in (("low", 1), ("high", 1000)):
        await cluster.api.request(
            "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority_class(name, value), allow=[409]
        )
    await cluster.api.create(namespace("a1", team="a"))
    await cluster.api.create(*lowest)


def standing(cluster: Cluster) -> int:
    """How many of the lesser pods are left."""
    return sum("low-" in name for name in cluster.board.pods)


@pytest.mark.core("preemption, execute and advise")
@pytest.mark.parametrize("scheduler_flags", HINTS_ON_AND_OFF)
async def test_a_pod_that_only_our_rules_keep_out_gets_the_place_of_one_lesser_pod(cluster: Cluster) -> None:
    names = await cluster.add_nodes(zones=1, per_zone=4)
    await prepare(cluster, [low(number, "a1", on=name) for number, name in enumerate(names)])
    apart = anti_affinity(term(HOSTNAME, namespaces=TEAM_A, app="web"))
    async with cluster.scheduled():
        await cluster.api.create(high := pod("high", affinity=apart, priorityClassName="high"))
        await cluster.board.bound(high)
    assert standing(cluster) == 3
    assert await cluster.faults() == []


async def test_no_pod_goes_for_one_that_is_no_more_important(cluster: Cluster) -> None:
    names = await cluster.add_nodes(zones=1, per_zone=4)
    await prepare(cluster, [low(number, "a1", on=name) for number, name in enumerate(names)])
    apart = anti_affinity(term(HOSTNAME, namespaces=TEAM_A, app="web"))
    async with cluster.scheduled():
        await cluster.api.create(equal := pod("equal", affinity=apart, priorityClassName="low"))
        assert "didn't match pod anti-affinity rules" in await cluster.board.rejected(equal)
        await cluster.calm()
    assert standing(cluster) == 4


@pytest.mark.core("preemption, execute and advise")
@pytest.mark.parametrize("mode", ["execute", "advise"])
async def test_a_full_cluster_makes_room_for_each_more_important_pod(cluster: Cluster, mode: str) -> None:
    names = await cluster.add_nodes(zones=2, per_zone=5, cpu="2")
    await prepare(cluster, [low(number, on=name, cpu="1") for number, name in enumerate(names + names)])
    highs = [pod(f"high-{number}", priorityClassName="high", cpu="1500m") for number in range(8)]
    async with cluster.scheduled(settings={"preemption": {"mode": mode}}):
        await cluster.api.create(*highs)
        nodes = await cluster.board.bound(*highs)
    assert len(set(nodes)) == 8
    assert standing(cluster) == 4


@pytest.mark.parametrize("scheduler_flags", HINTS_ON_AND_OFF)
@pytest.mark.parametrize("kind", ["spread", "anti-affinity"])
async def test_one_pod_goes_for_each_preemptor_that_must_be_in_a_zone_of_its_own(cluster: Cluster, kind: str) -> None:
    names = await cluster.add_nodes(zones=3, per_zone=4, cpu="2")
    await prepare(cluster, [low(number, on=name, cpu="2") for number, name in enumerate(names)])
    spread = [{**term(ZONE, app="high"), "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
    apart = anti_affinity(term(ZONE, app="high"))
    rule: dict[str, Any] = {"topologySpreadConstraints": spread} if kind == "spread" else {"affinity": apart}
    labels = {"app": "high"}
    highs = [pod(f"high-{number}", labels=labels, priorityClassName="high", cpu="2", **rule) for number in range(3)]
    async with cluster.scheduled():
        await cluster.api.create(*highs)
        await cluster.board.bound(*highs)
        await cluster.calm()
    assert standing(cluster) == len(names) - len(highs)
    assert await cluster.faults() == []
