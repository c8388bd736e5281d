"""Handlers of the verbs over a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import orjson
from aiohttp import web

from extender.server.transport.connections import (
    ConnectionLimits,
    Connections,
    DirectHandler,
    JSONAnswer,
    ServerConnection,
    framework_server,
)
from extender.settings.connections import Server
from tests.fakes import PATIENCE
from tests.server.raw import Sunk, Wire
from tests.server.serving import app_with


async def names(connection: Wire) -> int:
    """How many nodes the next answer names."""
    async with asyncio.timeout(PATIENCE):
        assert await connection.status() == 200
    return len(orjson.loads(connection.body)["NodeNames"])


@asynccontextmanager
async def connected(note: Callable[[], None]) -> AsyncIterator[ServerConnection]:
    """A connection with one verb, which calls ``note`` and answers."""

    async def verb(_request: web.BaseRequest) -> JSONAnswer:
        note()
        return JSONAnswer(b"{}")

    async with served_on({"/verb": verb}) as (_, connection):
        yield connection


@asynccontextmanager
async def served_on(
    direct: Mapping[str, DirectHandler], transport: Sunk | None = None
) -> AsyncIterator[tuple[Connections, ServerConnection]]:
    """A connection without a socket, the only one that the limits allow, and all connections."""
    limits = ConnectionLimits(Server(max_connections=1, max_connections_per_peer=1), 4, 2**20)
    async with framework_server(app_with(), limits, direct) as server:
        every = Connections(server, limits)
        connection = ServerConnection(every, "loopback")
        every.slots.acquire(connection, connection.since)
        connection.connection_made(transport or Sunk())
        yield every, connection
        connection.connection_lost(None)


class Computing:
    """A computation that ends when it is told to."""

    def __init__(self, answer: object = "found") -> None:
        self.answer = answer
        self.begun = 0
        self.cancelled = 0
        self.go_on = asyncio.Event()

    async def __call__(self) -> object:
        self.begun += 1
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer
