"""A raw JSON client for the tests of the control plane: no retries, no typing, nothing of ours."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from extender.simulator.apiserver.patching import MERGE
from extender.simulator.json_objects import JsonObject
from tests.fakes import PATIENCE

PODS, NODES, NAMESPACES = "/api/v1/pods", "/api/v1/nodes", "/api/v1/namespaces"


class Stream:
    """A WATCH as the lines that arrive."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> JsonObject:
        line = await asyncio.wait_for(self.response.content.readline(), PATIENCE)
        if not line:
            raise EOFError
        event: JsonObject = json.loads(line)
        return event

    async def take(self, count: int) -> list[JsonObject]:
        return [await self.next() for _ in range(count)]

    async def ends(self) -> bool:
        return await asyncio.wait_for(self.response.content.readline(), PATIENCE) == b""


class Client:
    """Requests to one server, as (status, body)."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session
        self.streams: list[Stream] = []

    async def request(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        async with self.session.request(method, path, json=body, **options) as response:
            text = await response.text()
            return response.status, json.loads(text) if response.content_type == "application/json" else text

    async def get(self, path: str, **parameters: Any) -> tuple[int, Any]:
        query = {name: str(value) for name, value in parameters.items()}
        return await self.request("GET", path, params=query)

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        return await self.request("POST", path, body)

    async def patch(self, path: str, body: Any, content_type: str = MERGE) -> tuple[int, Any]:
        return await self.request("PATCH", path, body, headers={"Content-Type": content_type})

    async def watch(self, path: str, *, accept: str = "application/json", **parameters: Any) -> Stream:
        query = {"watch": "true", **{name: str(value) for name, value in parameters.items()}}
        self.streams.append(Stream(await self.session.get(path, params=query, headers={"Accept": accept})))
        return self.streams[-1]


def names(items: list[JsonObject]) -> list[str]:
    return [item["metadata"]["name"] for item in items]


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(url) as session:
        client = Client(session)
        yield client
        for stream in client.streams:
            stream.response.close()
