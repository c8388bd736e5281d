"""Two replicas of the extender behind one address, as behind a Service: the one that leads is ready, and may die."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.e2e import mixture
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import scheduler_document
from tests.e2e.two_replicas import LEASE, Front, settings, two_replicas

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PODS, BEFORE = 800, 200
ALERT = 10.0  # seconds


async def test_the_leader_dies_amid_a_burst_and_the_other_goes_on_without_a_violation(cluster: Cluster) -> None:
    await mixture.prepare(cluster)
    pods = list(mixture.pods(PODS))
    with two_replicas(cluster, settings()) as both:
        front = Front(both)
        async with front.listening():
            leader = await front.leader()
            try:
                await asyncio.to_thread(cluster.plane.start_scheduler, scheduler_document("offload", front.url))
                creating = asyncio.create_task(cluster.api.create(*pods))
                await cluster.board.until(lambda: len(cluster.board.bound_at) >= BEFORE)
                leader.program.kill()
                killed, bound_before = time.monotonic(), len(cluster.board.bound_at)
                await creating
                follower = await front.leader()
                answering = time.monotonic() - killed
                gap = await follower.metric("extender_leader_gap_seconds")
                nodes = await cluster.board.bound(*pods, within=120)
                took = time.monotonic() - killed
                print(f"answers after {answering:.1f} s (gap {gap:.1f} s), all bound after {took:.1f} s")  # noqa: T201 -- shown by -s
            finally:
                cluster.plane.scheduler.stop()
    await cluster.api.delete(LEASE)
    assert follower is not leader
    assert bound_before < PODS
    assert 0 < gap < ALERT, "what the alert ExtenderTakeoverSlow speaks of"
    assert all(nodes)
    assert await cluster.faults() == []


async def test_a_leader_that_is_reported_to_end_hands_over_without_waiting_for_its_lease(cluster: Cluster) -> None:
    with two_replicas(cluster, settings(leaseDuration="10m", renewDeadline="5m", retryPeriod="1s")) as both:
        front = Front(both)
        leader = await front.leader()
        assert [replica for replica in both if await replica.is_ready()] == [leader]
        await asyncio.to_thread(leader.program.stop)
        assert await front.leader() is not leader
    await cluster.api.delete(LEASE)
