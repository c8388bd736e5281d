"""Handlers of the verbs over a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import orjson
from aiohttp import web

from extender.server.transport.connection_slots import ConnectionSlot
from extender.server.transport.connections import ConnectionLimits, Connections, JSONAnswer, ServerConnection, answering
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

    runner = web.AppRunner(app_with())
    await runner.setup()
    assert runner.server is not None
    limits = ConnectionLimits(most=1, per_peer=1, seconds=4, waiting_bytes=2**20, idle_seconds=60)
    runner.server.request_handler = answering(runner.server.request_handler, {"/verb": verb})
    every = Connections(runner.server, limits)
    connection = ServerConnection(runner.server, every, ConnectionSlot("loopback", 0.0))
    connection.connection_made(Sunk())
    yield connection
    connection.connection_lost(None)
    await runner.cleanup()


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
