"""Replicas of the real command in front of the embedded API server: turns, deaths, and no pod misplaced in between."""

from __future__ import annotations

import asyncio
import json
import signal
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
import pytest

from extender.simulator.apiserver.kinds import LEASES, PODS, Target
from extender.simulator.apiserver.server import ApiServer, ApiServerSettings
from extender.simulator.oracle.journal import JournalDecision
from extender.simulator.oracle.violations import violations
from extender.simulator.scheduler.extender_client import ExtenderEntry
from extender.simulator.scheduler.loop import LoopSettings, SchedulingLoop
from tests.cli.balancing import Balancer, balancing
from tests.cli.serving import APART, QUESTION, configuration, serving
from tests.fakes import PATIENCE
from tests.server.serving import is_listening
from tests.simulator.plain import HOSTNAME, anti_affinity, namespace, node, pod, term

DURATION = 3.0
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


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    """A cluster of a few nodes, whose bookmarks come as seldom as they really do."""
    async with ApiServer(ApiServerSettings(bookmark_every=60.0)) as server:
        nodes = [node(f"node-{n}", f"z{n % 3}") for n in range(NODES)]
        server.store.load([namespace("default"), *nodes])
        yield server


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


async def test_one_of_two_answers_and_the_other_says_who(api: ApiServer, tmp_path: Path) -> None:
    async with replicas(api, tmp_path) as found:
        leader = await the_ready_one(found)
        (standby,) = (each for each in found if each is not leader)
        holder = lease(api)["holderIdentity"]
        await standby.says(f"standby, the leader is {holder}")
        status, answer = await standby.filtered()
        assert (status, answer) == (503, {"error": "not ready: leadership; /readyz?verbose lists the checks"})
        assert (await leader.filtered())[0] == HTTPStatus.OK
        # The standby keeps up: it knows a pod that is bound now as well.
        api.operations.create(PODS, pod("web-1", on="node-0"))
        for each, leads in ((leader, "1.0"), (standby, "0.0")):
            await each.shows('extender_index_entries{kind="pods"} 1.0')
            await each.shows(f"extender_leader {leads}")
    assert lease(api)["leaseTransitions"] == 0


async def test_what_is_in_flight_is_answered_before_the_lease_is_given_back(api: ApiServer, tmp_path: Path) -> None:
    api.store.load([json.loads(json.dumps(APART))])
    body, held = json.dumps(QUESTION | {"NodeNames": ["node-0"]}).encode(), asyncio.Event()
    length = {"Content-Length": str(len(body))}

    async def slowly() -> AsyncIterator[bytes]:
        yield body[:10]
        await held.wait()
        yield body[10:]

    async with replicas(api, tmp_path, number=1) as (only,), aiohttp.ClientSession() as session:
        await the_ready_one([only])
        question = asyncio.create_task(session.post(f"{only.url}/filter", data=slowly(), headers=length))
        await only.shows("extender_requests_in_flight 1.0")
        only.process.send_signal(signal.SIGTERM)
        await eventually(lambda: not is_listening(only.url))
        assert lease(api)["holderIdentity"] != ""
        held.set()
        answer = await question
        assert (answer.status, (await answer.json())["NodeNames"]) == (HTTPStatus.OK, ["node-0"])
        assert await only.ends() == 0
    assert lease(api)["holderIdentity"] == ""


async def test_without_the_apiserver_no_replica_answers_and_with_it_one_does_again(
    api: ApiServer, tmp_path: Path
) -> None:
    async with replicas(api, tmp_path) as found:
        leader = await the_ready_one(found)
        port = int(api.url.rpartition(":")[2])
        await api.stop()
        async with asyncio.timeout(PATIENCE):
            while (await leader.filtered())[0] != HTTPStatus.SERVICE_UNAVAILABLE:  # noqa: ASYNC110 (a process)
                await asyncio.sleep(0.02)
        assert [(await each.readiness())[0] for each in found] == [503, 503]
        await api.start(port)
        await the_ready_one(found)


# -- under load -----------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("placement", ["cooperative", "decisive"])
async def test_a_killed_leader_is_replaced_within_the_lease_and_no_pod_is_misplaced(
    api: ApiServer, tmp_path: Path, placement: str
) -> None:
    async with (
        replicas(api, tmp_path, placement=placement) as found,
        balancing(*(each.url for each in found)) as balancer,
        traffic(api, balancer) as load,
    ):
        await load.more()
        leader = next(each for each in found if each.url == balancer.ready[0])
        leader.process.kill()
        await leader.ends()
        await load.more()  # after the Lease, a look of the standby, the endpoints and a turn of the queue: 2.3 to 4.6 s
    assert violations(load.loop.journal) == []
    assert lease(api)["leaseTransitions"] == 1


async def test_replicas_with_different_settings_misplace_no_pod(api: ApiServer, tmp_path: Path) -> None:
    """One answers one node for a pod with constraints, the other one several; the settings of the leader hold."""
    async with (
        replicas(api, tmp_path, placements=("decisive", "cooperative")) as found,
        balancing(*(each.url for each in found)) as balancer,
        traffic(api, balancer) as load,
    ):
        await load.more()
        leader = next(each for each in found if each.url == balancer.ready[0])
        for each, placement in zip(found, ("decisive", "cooperative"), strict=True):
            await each.shows(f'extender_config_info{{mode="offload",placement="{placement}"}} 1.0')
        leader.process.kill()
        await leader.ends()
        await load.more()
    assert violations(load.loop.journal) == []
    assert lease(api)["leaseTransitions"] == 1


async def test_a_scheduler_that_restarts_amid_its_bindings_misplaces_no_pod(api: ApiServer, tmp_path: Path) -> None:
    """It has forgotten the pods that it had let wait for their binding, and asks about each of them again."""
    async with (
        replicas(api, tmp_path, number=1, placement="decisive") as (only,),
        balancing(only.url) as balancer,
        traffic(api, balancer, (0.2, 0.6)) as load,
    ):
        await load.more()
        dropped = await load.restart_scheduler()
        await load.more()
        await eventually(lambda: dropped.isdisjoint(load.pending))
    assert dropped
    assert violations(load.loop.journal) == []


async def test_a_leader_that_stops_under_load_leaves_no_pod_misplaced(api: ApiServer, tmp_path: Path) -> None:
    """The next one leads at once, while dozens of bindings are still to come: without the wait some would collide."""
    async with (
        replicas(api, tmp_path, wait="2s", placement="decisive") as found,
        balancing(*(each.url for each in found)) as balancer,
        traffic(api, balancer, (0.5, 1.5)) as load,
    ):
        await load.more()
        leader = next(each for each in found if each.url == balancer.ready[0])
        leader.process.send_signal(signal.SIGTERM)
        assert await leader.ends() == 0
        await load.more()
    assert violations(load.loop.journal) == []
    assert lease(api)["leaseTransitions"] == 1


# -- a process that is stopped and goes on: what others placed meanwhile lies unread in its sockets, and counts all the same

STOPS = (0.1, 0.8)  # seconds; the scheduler waits for five


async def test_a_process_that_is_stopped_again_and_again_misplaces_no_pod(
    api: ApiServer,
    tmp_path: Path,
) -> None:
    kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
    config = configuration(tmp_path, kube={"kubeconfig": str(kubeconfig)}, placement="decisive")
    numbers = count()

    def place_by_hand() -> None:
        """Pods that stand in the way of others, one of each variant, on nodes that are drawn one after the other."""
        for variant in range(VARIANTS):
            number = next(numbers)
            labels, node = {"app": f"apart-{variant}"}, f"node-{number % NODES}"
            api.operations.create(PODS, pod(f"by-hand-{number}", labels=labels, cpu="1m", on=node))

    async with serving("--config", config) as (process, url), balancing(url) as balancer:
        assert process.stderr
        logs = asyncio.create_task(process.stderr.read())
        async with traffic(api, balancer) as load:
            for seconds in STOPS:
                await load.more(40)
                process.send_signal(signal.SIGSTOP)
                place_by_hand()
                await asyncio.sleep(seconds)
                process.send_signal(signal.SIGCONT)
            await load.more(40)
        logs.cancel()
    assert violations(load.loop.journal) == []
