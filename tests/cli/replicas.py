"""Replicas of the real command in front of an embedded API server, and traffic that they answer."""

from __future__ import annotations

import asyncio
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from extender.simulator.apiserver.kinds import LEASES, PODS, Target
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.oracle.journal import JournalDecision
from extender.simulator.scheduler.extender_client import ExtenderEntry
from extender.simulator.scheduler.loop import LoopSettings, SchedulingLoop
from tests.cli.balancing import Balancer
from tests.cli.serving import QUESTION, configuration, serving
from tests.fakes import PATIENCE
from tests.simulator.plain import HOSTNAME, anti_affinity, pod, term

ELECTION = {
    "enabled": True,
    "leaseDuration": "3s",
    "renewDeadline": "2s",
    "retryPeriod": "1s",
    "leaseNamespace": "default",
}
LEASE = Target(LEASES, "default", "placement-extender")
NODES = 30
VARIANTS = 8
IN_FLIGHT = 60  # pods without a node: decided ones whose binding is late, for the most part


@dataclass(frozen=True)
class Replica:
    """One process of `extender serve`."""

    process: Process
    url: str

    async def readiness(self) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/readyz/leadership") as answer:
            return answer.status, await answer.text()

    async def says(self, text: str) -> None:
        """Wait until readyz says this of leadership."""
        async with asyncio.timeout(PATIENCE):
            while await self.readiness() != (HTTPStatus.SERVICE_UNAVAILABLE, text):  # noqa: ASYNC110 (a process)
                await asyncio.sleep(0.02)

    async def filtered(self) -> tuple[int, Any]:
        async with aiohttp.ClientSession() as session, session.post(f"{self.url}/filter", json=QUESTION) as answer:
            return answer.status, await answer.json()

    async def shows(self, line: str) -> None:
        """Wait until this line stands on the metrics page."""
        async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
            while True:
                async with session.get(f"{self.url}/metrics") as page:
                    if line in (await page.text()).splitlines():
                        return
                await asyncio.sleep(0.02)

    async def ends(self) -> int:
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()


@asynccontextmanager
async def replicas(
    api: ApiServer, folder: Path, number: int = 2, wait: str = "1s", placements: Sequence[str] = (), **sections: object
) -> AsyncIterator[list[Replica]]:
    """So many of them, whose logs go nowhere; ``wait`` is takeoverWait, ``placements`` the placement of each one."""
    kubeconfig = api.write_kubeconfig(folder / "kubeconfig")
    election = ELECTION | {"takeoverWait": wait}
    sections |= {"kube": {"kubeconfig": str(kubeconfig)}, "leaderElection": election}
    config = configuration(folder, **sections)
    async with AsyncExitStack() as stack:
        found = []
        for position in range(number):
            if placements:
                own = folder / f"replica-{position}"
                own.mkdir()
                config = configuration(own, **sections, placement=placements[position])
            process, url = await stack.enter_async_context(serving("--config", config))
            found.append(Replica(process, url))
            assert process.stderr
            stack.callback(asyncio.create_task(process.stderr.read()).cancel)  # else a full pipe would stop it
        yield found


def lease(api: ApiServer) -> dict[str, Any]:
    """The spec of the Lease as it stands."""
    spec: dict[str, Any] = api.store.find(LEASES, LEASE.key).read()["spec"]
    return spec


async def eventually(condition: Callable[[], Any]) -> None:
    """Wait for something that another process brings about; the condition may be a coroutine function's result."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 (other processes)
            await asyncio.sleep(0.02)


async def the_ready_one(found: list[Replica]) -> Replica:
    async with asyncio.timeout(PATIENCE):
        while True:
            for each in found:
                if each.process.returncode is None and (await each.readiness())[0] == HTTPStatus.OK:
                    return each
            await asyncio.sleep(0.02)


class Traffic:
    """Pods that must stand apart, by variants, as fast as a scheduler can ask for them."""

    def __init__(self, api: ApiServer, url: str, bind_delay: tuple[float, float]) -> None:
        self._entry = ExtenderEntry(url_prefix=url, http_timeout=5.0)
        self._settings = LoopSettings(bind_delay=bind_delay, backoff=(0.05, 0.2), seed=1)
        self.loop = SchedulingLoop(api.store, api.url, self._entry, self._settings)
        self._api = api
        self._numbers = count()
        self._arriving: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        await self.loop.start()
        self._arriving = asyncio.create_task(self._arrive())

    async def _arrive(self) -> None:
        while True:
            for _ in range(IN_FLIGHT - len(self.pending)):
                self._create(next(self._numbers))
            self._remove_oldest()
            await asyncio.sleep(0.01)

    def _create(self, number: int) -> None:
        app = f"apart-{number % VARIANTS}"
        apart = anti_affinity(term(HOSTNAME, app=app))
        self._api.operations.create(PODS, pod(f"web-{number}", labels={"app": app}, cpu="1m", affinity=apart))

    def _remove_oldest(self) -> None:
        """Room for the next: a variant has one place on every node."""
        bound = sorted((row for row in self._api.store.table(PODS).latest() if row.node), key=lambda row: row.version)
        for row in bound[: max(0, len(bound) - NODES * VARIANTS // 2)]:
            self._api.store.remove(PODS, row.key)

    @property
    def pending(self) -> list[str]:
        """Keys of pods that have no node."""
        return [row.key for row in self._api.store.table(PODS).latest() if not row.node]

    @property
    def decisions(self) -> list[JournalDecision]:
        return [entry for entry in self.loop.journal.entries if isinstance(entry, JournalDecision)]

    async def more(self, number: int = 80) -> None:
        """Wait for so many more questions to be answered with a place, the first of them asked from now on."""
        begun = time.monotonic()
        await eventually(lambda: any(found.requested_at > begun for found in self.decisions[-IN_FLIGHT:]))
        enough = len(self.decisions) + number
        await eventually(lambda: len(self.decisions) >= enough)

    async def restart_scheduler(self) -> set[str]:
        """Ends the scheduler with its bindings under way, and starts another. Returns the pods that had no node then."""
        await self.loop.stop()
        waiting = set(self.pending)
        self.loop = SchedulingLoop(self._api.store, self._api.url, self._entry, self._settings)
        await self.loop.start()
        return waiting

    async def end(self) -> None:
        if self._arriving:
            self._arriving.cancel()
            with suppress(asyncio.CancelledError):
                await self._arriving
        await self.loop.stop()


@asynccontextmanager
async def traffic(
    api: ApiServer, balancer: Balancer, bind_delay: tuple[float, float] = (0.0, 0.5)
) -> AsyncIterator[Traffic]:
    await eventually(lambda: balancer.ready)
    load = Traffic(api, balancer.url, bind_delay)
    await load.begin()
    try:
        yield load
    finally:
        await load.end()
