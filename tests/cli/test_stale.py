"""A cluster that is not heard of any more, and what the settings have the real command do about it."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import orjson
import pytest

from extender.compose.embedded import FREE_PORT, service_running
from extender.compose.service import Service
from extender.settings.configuration import Settings
from extender.settings.connections import Kube, Server, WatchSettings
from extender.simulator.apiserver.kinds import PODS, Target
from extender.simulator.apiserver.server import ApiServer, ApiServerSettings
from extender.simulator.json_objects import JsonObject
from tests.cli.serving import OBJECTS, PENDING, QUESTION, configuration, ready, serving
from tests.fakes import PATIENCE, until
from tests.simulator.plain import HOSTNAME, anti_affinity, pod, term

TEXT = "cannot decide: changes of {} cannot be followed now; /readyz says why"


async def answers(url: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.post(f"{url}/filter", json=QUESTION) as answer:
        return answer.status, await answer.json()


async def stale_checks(url: str) -> list[str]:
    """Wait until it says of every kind that its watch is silent; returns their names."""
    async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
        while True:
            text = await (await session.get(f"{url}/readyz?verbose")).text()
            # What the API server lacks is a check too, which has no watch.
            checks = [line for line in text.splitlines() if line.startswith("[") and "]apiserver " not in line]
            failed = [line for line in checks if line.startswith("[-]")]
            if failed == checks:
                assert all("watch silent for" in line for line in failed)
                return [line.split("]")[1].split(" ")[0] for line in failed]
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("policy", ["error", "pass"])
async def test_a_silent_cluster_is_reported_or_everything_passes(tmp_path: Path, policy: str) -> None:
    async with ApiServer(ApiServerSettings(bookmark_every=60.0)) as api:
        api.store.load([dict(found) for found in PENDING])
        kubeconfig = str(api.write_kubeconfig(tmp_path / "kubeconfig"))
        kube = {"kubeconfig": kubeconfig, "onStale": policy, "watch": {"inactivityTimeout": "1s"}}
        async with serving("--config", configuration(tmp_path, kube=kube)) as (_, url):
            await ready(url)
            assert (await answers(url))[0] == HTTPStatus.OK
            kinds = await stale_checks(url)
            status, answer = await answers(url)
            assert status == HTTPStatus.OK
            passed = QUESTION["NodeNames"] if policy == "pass" else []
            text = "" if policy == "pass" else TEXT.format(", ".join(kinds))
            assert (answer["NodeNames"], answer["Error"]) == (passed, text)
            async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as page:
                line = f'extender_fallbacks_total{{answer="{policy}",reason="stale",verb="filter"}} 1.0'
                assert line in (await page.text()).splitlines()


# -- Pods that the watch has not shown yet, or not in time: waited for, refused for the moment, and never counted ------

DECISIVE = Settings(server=Server(bind_address=FREE_PORT))
APART = pod("web-2", labels={"app": "web"}, affinity=anti_affinity(term(HOSTNAME, app="web")))


async def post_filter(url: str, incoming: JsonObject) -> JsonObject:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/filter", json={"Pod": incoming, "NodeNames": ["node-a", "node-b"]}) as answer,
    ):
        found: JsonObject = await answer.json()
        return found


def shown(service: Service) -> set[str]:
    """The names of the pods that the index holds."""
    return {found.name for found in service.index.pods.values()}


@pytest.mark.parametrize("streams", [True, False], ids=["streaming lists", "lists in pages"])
async def test_a_pod_that_comes_and_goes_between_two_lists_is_answered_for_and_gives_its_place_back(
    *, streams: bool
) -> None:
    kube = Kube(watch=WatchSettings(watch_list=streams))
    settings = msgspec.structs.replace(DECISIVE, kube=kube)
    async with ApiServer() as api:
        api.store.load([dict(found) for found in OBJECTS])
        async with service_running(settings, api.url, seed=1) as (url, service):
            incoming = api.operations.create(PODS, orjson.loads(orjson.dumps(APART))).read()
            assert (await post_filter(url, incoming))["NodeNames"] == ["node-b"]
            assert list(service.index.assumed.held) == [incoming["metadata"]["uid"]]
            api.drop_connections()
            api.operations.delete(Target(PODS, "default", "web-2"), {})
            api.store.compact()
            await until(lambda: not service.index.assumed.held)


async def test_a_pod_that_is_requested_after_its_deletion_is_rejected_and_takes_no_place() -> None:
    async with ApiServer() as api:
        api.store.load([dict(found) for found in OBJECTS])
        async with service_running(DECISIVE, api.url, seed=1) as (url, service):
            incoming = api.operations.create(PODS, orjson.loads(orjson.dumps(APART))).read()
            await until(lambda: "web-2" in shown(service))
            api.operations.delete(Target(PODS, "default", "web-2"), {})
            await until(lambda: "web-2" not in shown(service))
            assert (await post_filter(url, incoming))["Error"] == "cannot decide: the watch shows this pod as deleted"
            assert not service.index.assumed.held
