"""Requests that lie about pods, sent to the real service on an embedded cluster: nothing goes, waits or is bound for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
import pytest

from extender.compose.embedded import FREE_PORT, service_running
from extender.compose.service import Service
from extender.model.units import Duration
from extender.settings.configuration import Settings
from extender.settings.connections import Kube, Server
from extender.simulator.apiserver.kinds import NODES, PODS
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.json_objects import JsonObject
from tests.fakes import until
from tests.simulator.plain import HOSTNAME, anti_affinity, namespace, node, pod, term

SETTINGS = Settings(server=Server(bind_address=FREE_PORT))
PATIENT = Settings(
    server=Server(bind_address=FREE_PORT, request_timeout=Duration(120)), kube=Kube(unknown_pod_wait=Duration(60))
)
APART = anti_affinity(term(HOSTNAME, app="web"))
CRITICAL, SYSTEM = 2_000_001_000, "system-node-critical"
HIGHEST = 2**31 - 1


class Forging:
    """One full node with a critical pod of the system, a service, and a client that can reach it."""

    def __init__(self, api: ApiServer, service: Service, url: str, session: aiohttp.ClientSession) -> None:
        self.api = api
        self.service = service
        self._url = url
        self._session = session

    async def create(self, name: str, **spec: Any) -> JsonObject:
        """A pending pod that the service has seen."""
        made = pod(name, labels={"app": "web"}, affinity=APART, **spec)
        found = self.api.operations.create(PODS, orjson.loads(orjson.dumps(made))).read()
        await until(lambda: found["metadata"]["uid"] in self.service.index.pods)
        return found

    async def post(self, verb: str, **body: object) -> Any:
        """The answer of a verb."""
        async with self._session.post(f"{self._url}/{verb}", json=body) as answer:
            assert answer.status == 200
            return await answer.json()

    def names(self) -> set[str]:
        """The pods that are there and have not been told to go."""
        pods = [stored.read() for stored in self.api.store.table(PODS).latest()]
        return {each["metadata"]["name"] for each in pods if "deletionTimestamp" not in each["metadata"]}

    async def calm(self) -> None:
        """Returns once a preemption that had begun would have been carried out: another one, submitted later, has."""
        assert self.service.preemption is not None
        task = self.service.preemption.target
        await until(lambda: not task.statistics()["executing"])


@asynccontextmanager
async def forging(settings: Settings = SETTINGS) -> AsyncIterator[Forging]:
    """The cluster, the service and a client."""
    vital = pod("vital", on="node-a", labels={"app": "web"}, priority=CRITICAL, priorityClassName=SYSTEM)
    async with ApiServer() as api, aiohttp.ClientSession() as session:
        api.store.load([namespace("default"), node("node-a", "z1"), vital])
        async with service_running(settings, api.url, seed=1) as (url, service):
            yield Forging(api, service, url, session)


async def asked_to_preempt(forged: Forging, asking: JsonObject, victim: str) -> Any:
    """What filter and preempt answer for the only node."""
    await forged.post("filter", Pod=asking, NodeNames=["node-a"])
    brief = {"node-a": {"Pods": [{"UID": victim}], "NumPDBViolations": 0}}
    return await forged.post("preempt", Pod=asking, NodeNameToMetaVictims=brief)


async def test_a_forged_priority_removes_no_pod() -> None:
    async with forging() as forged:
        asking = await forged.create("tenant", priority=0)
        vital = next(each for each in forged.service.index.pods.values() if each.name == "vital")
        asking["spec"] |= {"priority": HIGHEST, "priorityClassName": SYSTEM}
        assert await asked_to_preempt(forged, asking, vital.uid) == {"NodeNameToMetaVictims": {}}
        await forged.calm()
        assert forged.names() == {"vital", "tenant"}
        assert forged.service.index.view.nominated == {}


async def test_the_same_priority_is_believed_of_the_watch() -> None:
    """What the test above rests on: a pod that is as critical in the cluster gets the place."""
    async with forging() as forged:
        asking = await forged.create("critical", priority=CRITICAL + 1)
        await forged.post("filter", Pod=asking, NodeNames=["node-a"])
        await until(lambda: forged.names() == {"critical"})


async def test_a_critical_pod_is_no_victim_for_one_that_is_only_important() -> None:
    async with forging() as forged:
        asking = await forged.create("important", priority=1_000_000_000)
        vital = next(each for each in forged.service.index.pods.values() if each.name == "vital")
        await asked_to_preempt(forged, asking, vital.uid)
        await forged.calm()
        assert forged.names() == {"vital", "important"}


async def test_a_forged_preemption_policy_removes_no_pod() -> None:
    async with forging() as forged:
        asking = await forged.create("modest", priority=HIGHEST, preemptionPolicy="Never")
        asking["spec"]["preemptionPolicy"] = "PreemptLowerPriority"
        await forged.post("filter", Pod=asking, NodeNames=["node-a"])
        await forged.calm()
        assert forged.names() == {"vital", "modest"}


@pytest.mark.parametrize("lies", [{"uid": "made-up"}, {"name": "other"}, {"namespace": "kube-system"}], ids=str)
async def test_a_pod_that_the_watch_does_not_show_so_takes_no_place_and_removes_no_pod(lies: JsonObject) -> None:
    async with forging() as forged:
        forged.api.store.put(NODES, node("node-b", "z2"))
        await until(lambda: "node-b" in forged.service.index.view.known)
        asking = await forged.create("web", priority=HIGHEST)
        asking["metadata"] |= lies
        answers = await asyncio.gather(
            *(forged.post("filter", Pod=asking, NodeNames=["node-a", "node-b"]) for _ in range(3))
        )
        assert {(not each["NodeNames"], each["Error"][:14]) for each in answers} == {(True, "cannot decide:")}
        vital = next(each for each in forged.service.index.pods.values() if each.name == "vital")
        assert await asked_to_preempt(forged, asking, vital.uid) == {"NodeNameToMetaVictims": {}}
        assert await forged.post("prioritize", Pod=asking, NodeNames=["node-a", "node-b"]) == []
        assert forged.service.index.assumed.held == {}
        await forged.calm()
        assert forged.names() == {"vital", "web"}


async def test_gates_that_a_request_leaves_out_still_hold() -> None:
    async with forging() as forged:
        asking = await forged.create("gated", priority=HIGHEST, schedulingGates=[{"name": "quota"}])
        del asking["spec"]["schedulingGates"]
        answer = await forged.post("filter", Pod=asking, NodeNames=["node-a"])
        assert answer["Error"] == "cannot decide: the watch shows scheduling gates on this pod"
        await forged.calm()
        assert forged.names() == {"vital", "gated"}


async def test_a_pod_that_becomes_known_while_its_request_waits_is_answered_at_once() -> None:
    async with forging(PATIENT) as forged:
        made = pod("late", labels={"app": "late"})
        made["metadata"]["uid"] = "uid-late"
        waiting = asyncio.create_task(forged.post("filter", Pod=made, NodeNames=["node-a"]))
        await until(lambda: len(forged.service.index.pod_changes))
        forged.api.store.put(PODS, orjson.loads(orjson.dumps(made)))
        assert (await waiting)["NodeNames"] == ["node-a"]
