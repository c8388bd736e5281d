"""A plain JSON client of a real kube-apiserver. No retries, no typing, nothing of ours that is to be proven."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from extender.simulator.json_objects import JsonObject, name_of, namespace_of

NODES, NAMESPACES, PODS = "/api/v1/nodes", "/api/v1/namespaces", "/api/v1/pods"
_MERGE = "application/merge-patch+json"
_PAGE = "5000"
_WRITERS = 32  # requests at a time when many objects are written


class ApiFailure(Exception):  # noqa: N818 -- reads as what happened
    """An answer that was no success."""


class Api:
    """Requests to one apiserver. Paths are the API's own."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def request(
        self, method: str, path: str, body: JsonObject | None = None, *, allow: Iterable[int] = (), **options: Any
    ) -> JsonObject:
        """The answer's body. ApiFailure for any failing status but the allowed ones."""
        headers = {"Content-Type": options.pop("content_type", "application/json"), **options.pop("headers", {})}
        data = None if body is None else orjson.dumps(body)
        async with self._session.request(method, path, data=data, headers=headers, **options) as response:
            answer = await response.read()
            if not response.ok and response.status not in allow:
                raise ApiFailure(f"{method} {path}: {response.status} {answer[:500]!r}")
            document: JsonObject = orjson.loads(answer)
            return document

    async def text(self, path: str) -> str:
        """A page that is no JSON."""
        async with self._session.get(path) as response:
            return await response.text()

    async def create(self, *objects: JsonObject) -> None:
        """Create objects, many at a time; returns when all are written."""
        waiting = iter(objects)

        async def write() -> None:
            for obj in waiting:
                await self.request("POST", path_of(obj), obj)

        await asyncio.gather(*(write() for _ in range(min(_WRITERS, len(objects)))))

    async def patch(self, path: str, change: JsonObject) -> JsonObject:
        """Merge a change into an object."""
        return await self.request("PATCH", path, change, content_type=_MERGE)

    async def delete(self, path: str, grace: int | None = None) -> None:
        """Ask for an object's deletion; one that is gone already is no failure."""
        # A Job would stay for a collector of garbage, which mostly does not run here, to make orphans of its pods.
        options = {"propagationPolicy": "Background"} | ({} if grace is None else {"gracePeriodSeconds": grace})
        await self.request("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options}, allow=[404])

    async def list(self, path: str, **query: str) -> tuple[list[JsonObject], str]:
        """All objects, and the resourceVersion that they are of."""
        found: list[JsonObject] = []
        query = {**query, "limit": _PAGE}
        while True:
            page = await self.request("GET", path, params=query)
            found += page["items"]
            query["continue"] = page["metadata"].get("continue") or ""
            if not query["continue"]:
                return found, page["metadata"]["resourceVersion"]

    async def watch(self, path: str, version: str, **query: str) -> AsyncIterator[JsonObject]:
        """Events until the server ends the watch."""
        query = {**query, "watch": "true", "resourceVersion": version}
        async with self._session.get(path, params=query, timeout=aiohttp.ClientTimeout(None)) as response:
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield orjson.loads(line)


@asynccontextmanager
async def connect(
    url: str, token: str, authority: Path, more_headers: Mapping[str, str] | None = None
) -> AsyncIterator[Api]:
    """A client that is closed on leaving."""
    trust = ssl.create_default_context(cafile=str(authority))
    async with aiohttp.ClientSession(
        url,
        connector=aiohttp.TCPConnector(limit=0, ssl=trust),
        headers={"Authorization": f"Bearer {token}", **(more_headers or {})},
        timeout=aiohttp.ClientTimeout(total=120),
        read_bufsize=2**20,
    ) as session:
        yield Api(session)


def path_of(obj: JsonObject) -> str:
    kind = obj["kind"].lower()
    kind = f"{kind[:-1]}ies" if kind.endswith("policy") else kind + ("es" if kind.endswith("s") else "s")
    root = f"/apis/{obj['apiVersion']}" if "/" in obj["apiVersion"] else f"/api/{obj['apiVersion']}"
    return f"{root}/namespaces/{namespace_of(obj)}/{kind}" if namespace_of(obj) else f"{root}/{kind}"


def pod_path(pod: JsonObject) -> str:
    return f"/api/v1/namespaces/{namespace_of(pod)}/pods/{name_of(pod)}"
