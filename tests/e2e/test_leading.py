"""Two replicas of the extender behind one address, as behind a Service: the one that leads is ready, and may die."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import pytest

from tests.e2e import mixture
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import HOST, scheduler_document
from tests.e2e.forwarding import pump
from tests.e2e.serving import Extender
from tests.fakes import PATIENCE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PODS, BEFORE = 800, 200
ALERT = 10.0  # seconds
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/placement-extender"


class Front:
    """Passes connections on to the replica that is ready when they come in, and cuts those to one that has died."""

    def __init__(self, replicas: list[Extender]) -> None:
        self.replicas = replicas
        self.url = ""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Until the block is left."""
        server = await asyncio.start_server(self._pass_on, HOST, 0)
        self.url = f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield

    async def ready(self) -> Extender | None:
        """The one that leads now."""
        for replica in self.replicas:
            try:
                if await replica.is_ready():
                    return replica
            except aiohttp.ClientError:
                continue  # it is gone
        return None

    async def leader(self) -> Extender:
        async with asyncio.timeout(PATIENCE * 3):
            while (found := await self.ready()) is None:  # noqa: ASYNC110 -- there is no event across processes
                await asyncio.sleep(0.05)
            return found

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        replica = await self.ready()
        if replica is None:
            writer.close()
            return
        port = int(replica.url.rpartition(":")[2])
        behind, before = await asyncio.open_connection(HOST, port)
        await asyncio.gather(pump(reader, before), pump(behind, writer))


def settings(**leading: str) -> dict[str, Any]:
    """Replicas, with the times of the defaults or others."""
    return {"mode": "offload", "leaderElection": {"enabled": True} | leading}


@contextmanager
def two_replicas(
    cluster: Cluster, configuration: dict[str, Any], other: dict[str, Any] | None = None
) -> Iterator[list[Extender]]:
    """Extender processes with folders of their own; ``other`` is the configuration of the second, if it has one of its own."""
    with ExitStack() as stack:
        started = []
        for number, each in enumerate((configuration, other or configuration)):
            folder = cluster.folder / f"replica-{number}"
            folder.mkdir()
            replica = Extender(folder, cluster.plane.extender_kubeconfig, each)
            started.append(stack.enter_context(replica))
        yield started


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
