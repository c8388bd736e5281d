"""A stand-in for an extender, with answers that a test sets, and a scheduling loop that calls it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from extender.simulator.apiserver.kinds import NAMESPACES, PODS
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.json_objects import JsonObject, condition_of
from extender.simulator.oracle.journal import JournalDecision
from extender.simulator.scheduler.extender_client import ExtenderEntry
from extender.simulator.scheduler.loop import LoopSettings, SchedulingLoop
from extender.simulator.scheduler.preemption import PostFilter
from tests.simulator.plain import namespace

Answer = Callable[[JsonObject], Any]


def accept_all(requested: JsonObject) -> JsonObject:
    return {"NodeNames": requested["NodeNames"], "Nodes": requested["Nodes"], "Error": ""}


def accept(*names: str) -> Answer:
    return lambda requested: {"NodeNames": [name for name in requested["NodeNames"] if name in names]}


def refuse_all(requested: JsonObject) -> JsonObject:
    return {"NodeNames": [], "FailedAndUnresolvableNodes": dict.fromkeys(requested["NodeNames"], "refused by us")}


def no_scores(_: JsonObject) -> list[JsonObject]:
    return []


class FakeExtender:
    """Gives the answers of a test; `requests` holds every request as (verb, body). An answer may be an HTTP status."""

    def __init__(self, answer: Answer = accept_all, scores: Answer = no_scores) -> None:
        self.answer = answer
        self.scores = scores
        self.requests: list[tuple[str, JsonObject]] = []
        self.url = ""

    async def _handle(self, request: web.Request) -> web.Response:
        verb, body = request.path.strip("/"), await request.json()
        self.requests.append((verb, body))
        answer = (self.answer if verb == "filter" else self.scores)(body)
        if isinstance(answer, int):
            return web.Response(status=answer)
        if isinstance(answer, str):
            return web.Response(text=answer, content_type="application/json")
        return web.json_response(answer)

    def filters_for(self, name: str) -> list[JsonObject]:
        return [body for verb, body in self.requests if verb == "filter" and body["Pod"]["metadata"]["name"] == name]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/{verb}", self._handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield
        finally:
            await runner.cleanup()


class Cluster:
    """An API server and the loop in front of it."""

    def __init__(self, api: ApiServer, loop: SchedulingLoop, preemption: PostFilter | None = None) -> None:
        self.api = api
        self.loop = loop
        self._preemption = preemption

    @property
    def preemption(self) -> PostFilter:
        assert self._preemption is not None
        return self._preemption

    @property
    def pods(self) -> list[str]:
        return [stored.key.rpartition("/")[2] for stored in self.api.store.table(PODS).latest()]

    @property
    def decisions(self) -> list[JournalDecision]:
        return [entry for entry in self.loop.journal.entries if isinstance(entry, JournalDecision)]

    @property
    def decided(self) -> list[str]:
        """The pods of the decisions, in order."""
        return [entry.pod["metadata"]["name"] for entry in self.decisions]

    def create(self, obj: JsonObject) -> None:
        self.api.operations.create(PODS, obj)

    def pod(self, name: str) -> JsonObject:
        return self.api.store.find(PODS, f"default/{name}").read()

    def node_of(self, name: str) -> str:
        return self.api.store.find(PODS, f"default/{name}").node

    def reason_of(self, name: str) -> tuple[str, str]:
        condition = condition_of(self.pod(name), "PodScheduled") or {}
        return condition.get("reason", ""), condition.get("message", "")

    async def quiet(self) -> None:
        assert await self.loop.settle(within=30, calm=0.05)


@asynccontextmanager
async def cluster(
    *objects: JsonObject,
    extender: FakeExtender | None = None,
    entry: dict[str, Any] | None = None,
    preemption: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[Cluster]:
    """A cluster of these objects (and the namespace `default`) with a running loop, which preempts with such arguments."""
    async with ApiServer() as api, (extender or FakeExtender()).running():
        api.store.load(objects)
        api.operations.create(NAMESPACES, namespace("default"))
        configured = ExtenderEntry(url_prefix=extender.url, **(entry or {})) if extender else None
        after = None
        if configured and preemption is not None:
            after = PostFilter(api.store, api.url, configured, **preemption)
        steps: dict[str, Any] = {"after_filter": after} if after else {}
        loop = SchedulingLoop(api.store, api.url, configured, LoopSettings(**settings), **steps)
        if after:
            after.attach(loop.cache)
        await loop.start()
        try:
            yield Cluster(api, loop, after)
        finally:
            await loop.stop()
            if after:
                await after.close()
