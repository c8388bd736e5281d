"""Replicas of the real command in front of the embedded API server: turns, deaths, and no pod misplaced in between."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from http import HTTPStatus
from itertools import count
from pathlib import Path

import aiohttp
import pytest

from extender.simulator.apiserver.kinds import PODS
from extender.simulator.apiserver.server import ApiServer, ApiServerSettings
from extender.simulator.oracle.violations import violations
from tests.cli.balancing import balancing
from tests.cli.replicas import NODES, VARIANTS, eventually, lease, replicas, the_ready_one, traffic
from tests.cli.serving import APART, QUESTION, configuration, serving
from tests.fakes import PATIENCE
from tests.server.serving import is_listening
from tests.simulator.plain import namespace, node, pod

DURATION = 3.0


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    """A cluster of a few nodes, whose bookmarks come as seldom as they really do."""
    async with ApiServer(ApiServerSettings(bookmark_every=60.0)) as server:
        nodes = [node(f"node-{n}", f"z{n % 3}") for n in range(NODES)]
        server.store.load([namespace("default"), *nodes])
        yield server


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
