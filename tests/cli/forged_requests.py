"""Requests that lie about pods, nodes, victims and priorities, and what the document says of each lie."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any, Final, TypeVar

import aiohttp
import orjson

from extender.compose.embedded import FREE_PORT, service_running
from extender.compose.service import Service
from extender.model.units import Duration
from extender.settings.configuration import Settings
from extender.settings.connections import Kube, Paths, Server
from extender.simulator.apiserver.kinds import PODS
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.json_objects import JsonObject
from tests.fakes import until
from tests.simulator.plain import HOSTNAME, anti_affinity, namespace, node, pod, term

SETTINGS: Final = Settings(
    server=Server(bind_address=FREE_PORT, paths=Paths(bind="/bind")), kube=Kube(unknown_pod_wait=Duration(0))
)
HIGHEST: Final = 2**31 - 1
PRIORITY: Final = 100
APART: Final = {"labels": {"app": "web"}, "affinity": anti_affinity(term(HOSTNAME, app="web"))}
_Test = TypeVar("_Test", bound=Callable[..., object])
CLAIMS: set[str] = set()


def says(*sentences: str) -> Callable[[_Test], _Test]:
    """The sentences of the document that a test is about."""
    CLAIMS.update(sentences)

    def unchanged(test: _Test) -> _Test:
        return test

    return unchanged


class Cluster:
    """Nodes, pods, the real service, and a client that reaches its port."""

    def __init__(self, api: ApiServer, service: Service, url: str, session: aiohttp.ClientSession) -> None:
        self.api = api
        self.service = service
        self._url = url
        self._session = session

    async def create(self, name: str, **fields: Any) -> JsonObject:
        """A pending pod that the service has seen."""
        made = self.api.operations.create(PODS, orjson.loads(orjson.dumps(pod(name, **fields)))).read()
        await until(lambda: made["metadata"]["uid"] in self.service.index.pods)
        return made

    async def post(self, verb: str, headers: dict[str, str] | None = None, /, **body: object) -> Any:
        """The answer; every request is answered, and no answer tells of a crash."""
        async with self._session.post(f"{self._url}/{verb}", json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def bind(self, requested: JsonObject, where: str) -> str:
        """The error of bind, empty where the pod is bound."""
        meta = requested["metadata"]
        answer = await self.post(
            "bind", PodName=meta["name"], PodNamespace=meta["namespace"], PodUID=meta["uid"], Node=where
        )
        return str(answer["Error"])

    async def preempt(self, requested: JsonObject, offers: dict[str, list[str]]) -> dict[str, list[str]]:
        """The victims by node that go back to the scheduler."""
        brief = {name: {"Pods": [{"UID": uid} for uid in uids]} for name, uids in offers.items()}
        found = (await self.post("preempt", Pod=requested, NodeNameToMetaVictims=brief))["NodeNameToMetaVictims"]
        return {name: [each["UID"] for each in victims["Pods"]] for name, victims in found.items()}

    def shown(self) -> dict[str, JsonObject]:
        """The pods that exist and were not told to end, by name."""
        pods = [stored.read() for stored in self.api.store.table(PODS).latest()]
        return {each["metadata"]["name"]: each for each in pods if "deletionTimestamp" not in each["metadata"]}

    def uid(self, name: str) -> str:
        return str(self.shown()[name]["metadata"]["uid"])

    def assumed(self) -> dict[str, tuple[str, ...]]:
        """The nodes of assumed pods, by name."""
        return {each.pod.name: each.nodes for each in self.service.index.assumed.held.values()}

    def preemptions(self) -> dict[str, list[str]]:
        """The names of the victims of each preemption that has begun, by preemptor."""
        assert self.service.preemption is not None
        found = self.service.preemption.target.in_flight()
        return {each.plan.preemptor.name: sorted(victim.name for victim in each.plan.victims) for each in found}


@asynccontextmanager
async def running(*objects: JsonObject) -> AsyncIterator[Cluster]:
    async with ApiServer() as api, aiohttp.ClientSession() as session:
        api.store.load([namespace("default"), *objects])
        async with service_running(SETTINGS, api.url, seed=1) as (url, service):
            yield Cluster(api, service, url, session)


def low(name: str, on: str, cpu: str = "1", **fields: Any) -> JsonObject:
    """A bound pod of the lowest priority."""
    return pod(name, on=on, cpu=cpu, **fields)


ROOMY: Final = (
    node("full", cpu="4"),
    node("vital", cpu="4"),
    node("free", cpu="4"),
    *(low(f"low-{number}", "full", labels={"app": "web"}) for number in range(4)),
    low("critical", "vital", cpu="4", priority=HIGHEST, labels={"app": "web"}),
)


async def askers(cluster: Cluster) -> list[JsonObject]:
    """Pods of all kinds: known and unknown, pending and bound, important or not, with constraints and without."""
    cpu = {"cpu": "2"}
    pending = [
        await cluster.create("high", priority=PRIORITY, **cpu),
        await cluster.create("equal", priority=0, **cpu),
        await cluster.create("lonely", priority=PRIORITY, **APART),
        await cluster.create("modest", priority=PRIORITY, preemptionPolicy="Never", **cpu),
        await cluster.create("gated", priority=PRIORITY, schedulingGates=[{"name": "wait"}], **cpu),
    ]
    bound = cluster.shown()["low-0"]
    unknown = pending[0] | {"metadata": pending[0]["metadata"] | {"uid": "made-up"}}
    renamed = pending[0] | {"metadata": pending[0]["metadata"] | {"name": "renamed"}}
    elsewhere = pending[0] | {"metadata": pending[0]["metadata"] | {"namespace": "kube-system"}}
    return [*pending, bound, unknown, renamed, elsewhere]


def with_lies(requested: Iterable[JsonObject]) -> list[JsonObject]:
    """Each as it is, and with the highest priority and without gates."""
    lies = {"priority": HIGHEST, "preemptionPolicy": "PreemptLowerPriority", "schedulingGates": None}
    return list(chain.from_iterable((each, each | {"spec": each["spec"] | lies}) for each in requested))


FULL: Final = (
    node("a", cpu="4"),
    node("b", cpu="4"),
    *(low(f"a{number}", "a", priority=number) for number in range(4)),
    low("b0", "b", cpu="4", priority=PRIORITY),
)
