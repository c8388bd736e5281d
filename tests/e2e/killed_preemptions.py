"""The extender is killed between the answer of a preemption and its last write, and restarted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.e2e.cluster import Cluster, eventually_ready
from tests.e2e.control_plane import scheduler_document
from tests.e2e.serving import Extender
from tests.e2e.test_preemption import low, prepare

VICTIMS = 4


class Held:
    """Hands so many writes to pods on, and holds all others until their client has gone."""

    def __init__(self, count: int) -> None:
        self.reached = asyncio.Event()
        self._left = count

    async def wait(self, request: web.Request) -> None:
        if "/pods/" not in request.path:
            return
        self._left -= 1
        if self._left < 0:
            self.reached.set()
            await asyncio.Event().wait()


class Killed:
    """An extender that is killed, and starts again on the same address."""

    def __init__(self, cluster: Cluster, settings: Mapping[str, Any] | None = None, **changes: Any) -> None:
        self._cluster = cluster
        self._settings = settings
        self._changes = changes

    @asynccontextmanager
    async def with_scheduler(self, way: str = "", scheduler_way: str = "") -> AsyncIterator[Extender]:
        """An extender that kube-scheduler asks."""
        plane = self._cluster.plane
        with Extender(self._cluster.folder, self._access(way), self._settings) as extender:
            await eventually_ready(extender)
            document = scheduler_document("offload", extender.url, **self._changes)
            if scheduler_way:
                access = self._cluster.folder / "scheduler.kubeconfig"
                plane.write_access(scheduler_way, access, self._cluster.folder / "unused.kubeconfig")
                document["clientConnection"] = {"kubeconfig": str(access)}
            await asyncio.to_thread(plane.start_scheduler, document, *self._cluster.scheduler_flags)
            try:
                yield extender
            finally:
                plane.scheduler.stop()

    @asynccontextmanager
    async def again(self, extender: Extender, way: str = "") -> AsyncIterator[Extender]:
        """The next one, after a kill; ``way``: the URL of the apiserver, if it is not its own."""
        port = int(extender.url.rpartition(":")[2])
        with Extender(self._cluster.folder, self._access(way), self._settings, port=port) as other:
            await eventually_ready(other)
            yield other

    def _access(self, way: str) -> Path:
        if not way:
            return self._cluster.plane.extender_kubeconfig
        own = self._cluster.folder / "round.kubeconfig"
        self._cluster.plane.write_access(way, self._cluster.folder / "unused.kubeconfig", own)
        return own


async def full_node(cluster: Cluster, count: int = VICTIMS) -> str:
    [name] = await cluster.add_nodes(zones=1, per_zone=1, cpu=str(count))
    await prepare(cluster, [low(number, on=name, cpu="1") for number in range(count)])
    return name
