"""A reader of decision streams, and the events that it sees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import ClientResponse, ClientSession, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.test_utils import make_mocked_request

from extender.model.units import Address
from extender.server.app import listening
from extender.server.v1.decision_streams import DecisionEvents, DecisionStreams
from extender.telemetry.decision_log import DecisionLog
from tests.fakes import PATIENCE

Event = tuple[str, str, Any]  # its id, its name and its data


@asynccontextmanager
async def served(app: web.Application) -> AsyncIterator[ClientSession]:
    async with listening(app, Address("127.0.0.1:0")) as url, ClientSession(url) as session:
        yield session


def event_of(text: str) -> Event:
    fields = dict(line.split(": ", 1) for line in text.strip().splitlines())
    return fields["id"], fields["event"], orjson.loads(fields["data"])


async def events(answer: ClientResponse, count: int) -> list[Event]:
    """The next events, without the interval for browsers and without comments."""
    found: list[Event] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < count:
            text = (await answer.content.readuntil(b"\n\n")).decode()
            if not text.startswith(("retry", ":")):
                found.append(event_of(text))
    return found


def filled(log: DecisionLog, *names: str) -> None:
    for name in names:
        log.add(1.0, "filter", ("team-a", name, f"uid-{name}"), 2, ["n1"])


class Reader(AbstractStreamWriter):
    """The other side of a stream, which reads when the test lets it."""

    def __init__(self) -> None:
        self.received = b""
        self.reads = asyncio.Event()

    async def write(self, chunk: Any) -> None:
        self.received += chunk

    async def drain(self) -> None:
        await self.reads.wait()

    async def write_eof(self, chunk: bytes = b"") -> None:
        """Not used."""

    async def write_headers(self, status_line: str, headers: Any) -> None:
        """Not used."""

    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None:
        """Not used."""

    def enable_chunking(self) -> None:
        """Not used."""

    def events(self) -> list[Event]:
        parts = self.received.decode().split("\n\n")
        return [event_of(part) for part in parts if part.startswith("id")]


@asynccontextmanager
async def written_to(reader: Reader, streams: DecisionStreams) -> AsyncIterator[None]:
    request = make_mocked_request("GET", "/v1/decisions/stream")
    request.transport.is_closing.return_value = False  # type: ignore[union-attr] # the framework's own stand-in
    writing = asyncio.create_task(DecisionEvents(streams, request, 0).write(reader))
    try:
        yield
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
