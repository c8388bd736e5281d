"""Pods that the watch has not shown yet, or not in time: waited for, refused for the moment, and never counted."""

from __future__ import annotations

import aiohttp
import msgspec
import orjson
import pytest

from extender.compose.embedded import FREE_PORT, service_running
from extender.compose.service import Service
from extender.settings.configuration import Settings
from extender.settings.connections import Kube, Server, Watch
from extender.simulator.apiserver.kinds import PODS, Target
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.json_objects import JsonObject
from tests.cli.test_serve import OBJECTS
from tests.fakes import until
from tests.simulator.plain import HOSTNAME, anti_affinity, pod, term

DECISIVE = Settings(server=Server(bind_address=FREE_PORT))
APART = pod("web-2", labels={"app": "web"}, affinity=anti_affinity(term(HOSTNAME, app="web")))


async def ask(url: str, asking: JsonObject) -> JsonObject:
    """The answer to filter."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/filter", json={"Pod": asking, "NodeNames": ["node-a", "node-b"]}) as answer,
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
    kube = Kube(watch=Watch(watch_list=streams))
    settings = msgspec.structs.replace(DECISIVE, kube=kube)
    async with ApiServer() as api:
        api.store.load([dict(found) for found in OBJECTS])
        async with service_running(settings, api.url, seed=1) as (url, service):
            asking = api.operations.create(PODS, orjson.loads(orjson.dumps(APART))).read()
            assert (await ask(url, asking))["NodeNames"] == ["node-b"]
            assert list(service.index.assumed.held) == [asking["metadata"]["uid"]]
            api.drop_connections()
            api.operations.delete(Target(PODS, "default", "web-2"), {})
            api.store.compact()
            await until(lambda: not service.index.assumed.held)


async def test_a_pod_that_is_requested_after_its_deletion_is_rejected_and_takes_no_place() -> None:
    async with ApiServer() as api:
        api.store.load([dict(found) for found in OBJECTS])
        async with service_running(DECISIVE, api.url, seed=1) as (url, service):
            asking = api.operations.create(PODS, orjson.loads(orjson.dumps(APART))).read()
            await until(lambda: "web-2" in shown(service))
            api.operations.delete(Target(PODS, "default", "web-2"), {})
            await until(lambda: "web-2" not in shown(service))
            assert (await ask(url, asking))["Error"] == "cannot decide: the watch shows this pod as deleted"
            assert not service.index.assumed.held
