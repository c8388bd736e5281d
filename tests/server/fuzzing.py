"""The whole service with a recorded cluster, for requests of any kind: its answers, and what they leave in the index.

The cluster is a simulated API server with the recorded objects. The index holds the incoming pod of a request, with all
its constraints, from before the request until after the answer. The API server rejects all writes, so that no answer
changes the cluster, and every effect of an answer has to end with the deletion of its pod.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import orjson

from extender.compose.embedded import FREE_PORT, service_running
from extender.compose.service import Service
from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.model.objects import Pod
from extender.settings.configuration import Settings
from extender.simulator.apiserver.api_errors import ApiError
from extender.simulator.apiserver.fault_points import Call, Faults
from extender.simulator.apiserver.server import ApiServer
from extender.wire.errors import WireError
from extender.wire.extender_v1 import decode_args, decode_preemption_args
from tests.builders import Json
from tests.fakes import PATIENCE, until
from tests.server.spoiling import Sent
from tests.simulator.scenario.faulted import restarts

RECORDINGS: Final = Path(__file__).parents[1] / "recordings"
_PIECE: Final = 1000


def recorded(verb: str) -> list[Json]:
    """The bodies that a real scheduler sent, by names and with whole nodes."""
    paths = sorted((RECORDINGS / "scheduler").glob(f"{verb}-*/*.json"))
    return [orjson.loads(path.read_bytes())["request"] for path in paths]


def bindings() -> list[Json]:
    """Bind questions for the pods that were asked about; none was recorded."""
    pods = [body["Pod"]["metadata"] for body in recorded("filter")]
    return [
        {"PodName": pod["name"], "PodNamespace": pod["namespace"], "PodUID": pod["uid"], "Node": "node-1"}
        for pod in pods
    ]


BODIES: Final = {verb: recorded(verb) for verb in ("filter", "prioritize", "preempt")} | {"bind": bindings()}


def _incoming() -> set[tuple[str, str]]:
    pods = [body["Pod"]["metadata"] for verb in ("filter", "prioritize", "preempt") for body in BODIES[verb]]
    return {(pod["namespace"], pod["name"]) for pod in pods}


def cluster() -> list[Json]:
    """The recorded objects, and the victims that were offered for preemption, without the incoming pods."""
    objects: dict[tuple[str, str, str], Json] = {}
    for kind, plural in (("Node", "nodes"), ("Namespace", "namespaces"), ("Pod", "pods")):
        for line in (RECORDINGS / f"list-{plural}.jsonl").read_bytes().splitlines():
            for item in orjson.loads(line)["items"]:
                objects[_key(kind, item)] = {"kind": kind, "apiVersion": "v1", **item}
    for body in BODIES["preempt"]:
        for victims in (body["NodeNameToVictims"] or {}).values():
            for pod in victims["Pods"]:
                objects[_key("Pod", pod)] = {"kind": "Pod", "apiVersion": "v1", **pod}
    incoming = {("Pod", *each) for each in _incoming()}
    return [found for key, found in objects.items() if key not in incoming]


class ReadOnly(Faults):
    """Rejects every write."""

    async def before_write(self, call: Call) -> None:
        del call
        raise ApiError(403, "Forbidden", "this cluster is read-only")


def incoming_pod(sent: Sent) -> Pod | None:
    """The pod of a request that can be decoded."""
    try:
        if sent.path in {"/filter", "/prioritize"}:
            return decode_args(sent.body).pod
        return decode_preemption_args(sent.body).pod if sent.path == "/preempt" else None
    except WireError:
        return None


def _key(kind: str, item: Json) -> tuple[str, str, str]:
    return kind, item["metadata"].get("namespace", ""), item["metadata"]["name"]


@dataclass
class Answer:
    """One answer; `json` is None where it is none."""

    status: int
    json: Any
    text: str


@dataclass
class World:
    """The service and a client to it."""

    service: Service
    session: aiohttp.ClientSession
    url: str
    before: Json

    async def send(self, sent: Sent) -> Answer:
        """One request, while the index holds its pod. Fails where no answer comes."""
        index, pod = self.service.index, incoming_pod(sent)
        if pod is None or pod.uid in index.pods:
            return await self._send(sent)
        index.upsert(pod)
        try:
            return await self._send(sent)
        finally:
            index.delete(pod)

    async def _send(self, sent: Sent) -> Answer:
        body: Any = _in_pieces(sent.body, sent.in_pieces) if sent.in_pieces else io.BytesIO(sent.body)
        async with (
            asyncio.timeout(PATIENCE),
            self.session.request(sent.method, self.url + sent.path, data=body, headers=sent.headers) as response,
        ):
            text = await response.text(errors="replace")
            return Answer(response.status, _read(text), text)

    async def come_to_rest(self) -> None:
        """Let every effect end: with the pods nothing of them stays."""
        index = self.service.index
        await until(lambda: not index.assumed.held)
        await until(lambda: counted(index)["nominated"] == self.before["nominated"])

    def problems(self) -> list[str]:
        """What is not as it was before the first request, and what is counted wrongly."""
        now = counted(self.service.index)
        changed = [f"{name}: {self.before[name]} is now {now[name]}" for name in now if now[name] != self.before[name]]
        return [*changed, *audit(self.service.index), *restarts(self.service), *unready(self.service)]


def _read(text: str) -> Any:
    """JSON as Go reads it: what is no Unicode inside of a node that is sent back does not matter."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


async def _in_pieces(body: bytes, pieces: int) -> AsyncIterator[bytes]:
    size = len(body) // pieces + 1
    for start in range(0, len(body), size):
        yield body[start : start + size]


@asynccontextmanager
async def world_of(settings: Settings) -> AsyncIterator[World]:
    """The service with these settings, ready, before the recorded cluster."""
    async with ApiServer() as api:
        api.store.load(cluster())
        api.faults = ReadOnly()
        server = msgspec.structs.replace(settings.server, bind_address=FREE_PORT)
        chosen = msgspec.structs.replace(settings, server=server)
        async with service_running(chosen, api.url, seed=1) as (url, service), aiohttp.ClientSession() as session:
            yield World(service, session, url, counted(service.index))


def counted(index: ClusterIndex) -> Json:
    """What an index holds and counts. Questions are left out: they are kept for the next time, so many at most."""
    stands = Counter(
        {
            (id(placement.signature), placement.terminating, index.view.node_names[number]): pods
            for placement in index.counts.signatures
            for number, pods in placement.nodes.items()
        }
    )
    return {
        "pods": sorted(map(repr, index.pods.values())),
        "nodes": {name: repr(index.view.node(number)) for name, number in index.view.known.items()},
        "namespaces": sorted(map(repr, index.namespaces.objects.values())),
        "standing": stands,
        "requested": {name: dict(index.view.requested(number)) for name, number in index.view.known.items()},
        "names": sorted(filter(None, index.view.node_names)),
        "nominated": {node: sorted(pods) for node, pods in index.view.nominated.items()},
        "pending": sum(placement.undetermined for placement in index.counts.signatures),
        "rejected": len(index.rejected),
        "drifts": index.drifts,
    }


def unready(service: Service) -> Sequence[str]:
    return [f"{name}: {problem}" for name, problem in service.readiness.checks().items() if problem]
