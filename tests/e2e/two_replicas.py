"""Two replicas behind one address, as behind a Service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any

import aiohttp

from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import HOST
from tests.e2e.forwarding import pump
from tests.e2e.serving import Extender
from tests.fakes import PATIENCE

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
