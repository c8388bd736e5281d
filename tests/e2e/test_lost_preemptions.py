"""The extender is killed between the answer of a preemption and its last write, or is away when it is asked: nothing is lost."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress

import pytest

from extender.simulator.json_objects import JsonObject
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import HINTS_ON_AND_OFF, scheduler_document
from tests.e2e.killed_preemptions import VICTIMS, Held, Killed, full_node
from tests.e2e.serving import Extender
from tests.e2e.slow_writes import way_round
from tests.e2e.test_preemption import WEB, low, prepare, standing
from tests.e2e.two_replicas import LEASE, Front, settings
from tests.simulator.plain import HOSTNAME, affinity, anti_affinity, namespace, pod, term

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

# The nomination, then a condition and a deletion for each victim; and one more, which may not come.
MOMENTS = range(1 + 2 * VICTIMS + 1)
NODES_FULL = 12
KILLED_AFTER = (0, 3, 9, 1, 14, 6, 2, 20)  # writes of pods
WITHIN = 60.0  # of which the restart takes a few; kube-scheduler alone would look again after five minutes


@pytest.mark.parametrize("moment", MOMENTS)
async def test_an_extender_that_is_killed_before_any_write_of_a_preemption_loses_none(
    cluster: Cluster, moment: int
) -> None:
    name = await full_node(cluster)
    held, killed = Held(moment), Killed(cluster)
    high = pod("high", priorityClassName="high", cpu=str(VICTIMS))
    async with way_round(cluster.plane, held.wait) as url, killed.with_scheduler(url) as extender:
        await cluster.api.create(high)
        if moment < MOMENTS[-1]:
            async with asyncio.timeout(WITHIN):
                await held.reached.wait()
            await cluster.calm()
        else:
            await cluster.board.until(lambda: not standing(cluster))
        extender.program.kill()
        async with killed.again(extender):
            assert await cluster.board.bound(high, within=WITHIN) == [name]
    assert await cluster.faults() == []


@pytest.mark.parametrize("scheduler_flags", HINTS_ON_AND_OFF)
async def test_a_preemption_that_is_asked_for_while_no_extender_answers_is_made_once_one_does(cluster: Cluster) -> None:
    name = await full_node(cluster)
    killed, high = Killed(cluster), pod("high", priorityClassName="high", cpu=str(VICTIMS))
    async with killed.with_scheduler() as extender:
        extender.program.kill()
        await cluster.api.create(high)
        assert "connection refused" in await cluster.board.rejected(high)
        await cluster.calm()
        async with killed.again(extender):
            assert await cluster.board.bound(high, within=WITHIN) == [name]


async def test_a_pod_that_was_rejected_before_a_restart_is_bound_after_the_change_that_helps_it(
    cluster: Cluster,
) -> None:
    names = await cluster.add_nodes(zones=2, per_zone=2)
    await cluster.api.create(namespace("db"), pod("db", "db", on=names[0], labels={"app": "db"}))
    near: JsonObject = affinity(term(HOSTNAME, namespaces={"matchLabels": {"team": "a"}}, app="db"))
    killed, web_pod = Killed(cluster), pod("web", affinity=near)
    async with killed.with_scheduler() as extender:
        await cluster.api.create(web_pod)
        await cluster.board.rejected(web_pod)
        await cluster.calm()
        extender.program.kill()
        async with killed.again(extender):
            await cluster.calm(3.0)
            await cluster.api.patch("/api/v1/namespaces/db", {"metadata": {"labels": {"team": "a"}}})
            assert await cluster.board.bound(web_pod) == [names[0]]


async def test_a_pod_of_lower_priority_is_bound_where_a_preemptor_has_lost_its_room(cluster: Cluster) -> None:
    [name] = await cluster.add_nodes(zones=1, per_zone=1, cpu="2")
    await prepare(cluster, [])
    victim = pod("low-0", labels=WEB, priorityClassName="low", cpu="2", on=name)
    victim["metadata"]["finalizers"] = ["tests.placement.extender.dev/held"]
    await cluster.api.create(victim)
    middle = pod("middle", priorityClassName="high", cpu="2")
    async with cluster.scheduled():
        await cluster.api.create(middle)
        path = "/api/v1/namespaces/default/pods"
        await cluster.board.until(lambda: "deletionTimestamp" in cluster.board.pods["default/low-0"]["metadata"])
        await cluster.api.create(pod("highest", priorityClassName="system-node-critical", cpu="1", on=name))
        await cluster.api.patch(f"{path}/low-0", {"metadata": {"finalizers": []}})
        await cluster.api.create(small := pod("small", priorityClassName="low", cpu="900m"))
        assert await cluster.board.bound(small) == [name]


async def test_a_lonely_preemptor_whose_room_only_our_rules_know_survives_a_kill_too(cluster: Cluster) -> None:
    [name] = await cluster.add_nodes(zones=1, per_zone=1)
    await prepare(cluster, [low(0, on=name)])
    held, killed = Held(0), Killed(cluster)
    high = pod("high", priorityClassName="high", affinity=anti_affinity(term(HOSTNAME, app="web")))
    async with way_round(cluster.plane, held.wait) as url, killed.with_scheduler(url) as extender:
        await cluster.api.create(high)
        async with asyncio.timeout(WITHIN):
            await held.reached.wait()
        await cluster.calm()
        extender.program.kill()
        async with killed.again(extender):
            assert await cluster.board.bound(high, within=WITHIN) == [name]


async def test_an_extender_that_is_killed_again_and_again_amid_preemptions_loses_none_and_removes_no_pod_in_vain(
    cluster: Cluster,
) -> None:
    names = await cluster.add_nodes(zones=1, per_zone=NODES_FULL, cpu="2")
    await prepare(cluster, [low(number, on=name, cpu="1") for number, name in enumerate(names + names)])
    highs = [pod(f"high-{number}", priorityClassName="high", cpu="2") for number in range(NODES_FULL)]
    killed = Killed(cluster)
    async with AsyncExitStack() as stack:
        extender = await stack.enter_async_context(killed.with_scheduler())
        extender.program.kill()
        creating = asyncio.create_task(cluster.api.create(*highs))
        for writes in KILLED_AFTER:
            held = Held(writes)
            async with way_round(cluster.plane, held.wait) as url, killed.again(extender, url) as other:
                with suppress(TimeoutError):  # little may be left to write
                    async with asyncio.timeout(WITHIN / 4):
                        await held.reached.wait()
                other.program.kill()
        await creating
        async with killed.again(extender):
            assert sorted(await cluster.board.bound(*highs, within=2 * WITHIN)) == sorted(names)
    assert standing(cluster) == 0
    assert await cluster.faults() == []


async def test_the_leader_dies_before_its_first_write_and_the_next_one_makes_the_preemption(cluster: Cluster) -> None:
    name = await full_node(cluster)
    held, high = Held(0), pod("high", priorityClassName="high", cpu=str(VICTIMS))
    plane, folders = cluster.plane, [cluster.folder / "first", cluster.folder / "second"]
    for folder in folders:
        folder.mkdir()
    own = cluster.folder / "round.kubeconfig"
    async with way_round(plane, held.wait) as url:
        plane.write_access(url, cluster.folder / "unused.kubeconfig", own)
        leading = settings(leaseDuration="6s", renewDeadline="4s", retryPeriod="1s")
        with Extender(folders[0], own, leading) as first:
            both = [first]
            front = Front(both)
            async with front.listening():
                await front.leader()
                with Extender(folders[1], plane.extender_kubeconfig, leading) as second:
                    both.append(second)
                    await asyncio.to_thread(plane.start_scheduler, scheduler_document("offload", front.url))
                    try:
                        await cluster.api.create(high)
                        async with asyncio.timeout(WITHIN):
                            await held.reached.wait()
                        await cluster.calm()
                        first.program.kill()
                        assert await cluster.board.bound(high, within=WITHIN) == [name]
                    finally:
                        plane.scheduler.stop()
    await cluster.api.delete(LEASE)
    assert await cluster.faults() == []
