"""Bodies in chunks are refused by their head, and not parsed: each chunk costs as much as hundreds of bytes."""

from __future__ import annotations

import orjson
import pytest
from aiohttp import web

from extender.model.units import Address
from extender.server.app import listening
from extender.server.transport.connection_slots import ConnectionSlot
from extender.server.transport.connections import Connection, ConnectionLimits, Connections
from tests.fakes import until
from tests.server.raw import head_of, whole, wire
from tests.server.serving import BY_NAMES, app_with
from tests.server.test_connections import Sunk

ROUTES = [
    ("POST", "/filter"),
    ("POST", "/prioritize"),
    ("GET", "/livez"),
    ("PUT", "/debug/loglevel"),
    ("POST", "/none"),
]
CODINGS = ["chunked", "Chunked", "gzip, chunked"]
CHUNKS = b"1\r\n \r\n" * 40_000
QUESTION = whole("POST", "/filter", orjson.dumps(BY_NAMES) + b" " * 30_000)
TEXT = "request bodies need a Content-Length; Transfer-Encoding is not accepted"


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_every_path_answers_that_it_needs_a_length_and_closes(method: str, path: str, coding: str) -> None:
    async with listening(app_with(), Address("127.0.0.1:0")) as url, wire(url) as connection:
        await connection.send(head_of(method, path, Transfer_Encoding=coding) + b"2\r\n{}\r\n0\r\n\r\n")
        assert await connection.status() == 411
        assert orjson.loads(connection.body) == {"error": TEXT}
        assert await connection.closed()


async def test_what_is_rejected_before_its_chunks_are_seen_closes_as_well() -> None:
    refused = head_of("POST", "/filter", Transfer_Encoding="chunked", Expect="miracles") + CHUNKS[:6000]
    async with listening(app_with(), Address("127.0.0.1:0")) as url, wire(url) as connection:
        await connection.send(refused)
        assert await connection.status() == 417
        assert b"Connection: close" in connection.head


async def test_a_client_that_goes_on_sending_can_read_the_answer() -> None:
    async with listening(app_with(), Address("127.0.0.1:0")) as url, wire(url) as connection:
        await connection.send(head_of("POST", "/filter", Transfer_Encoding="chunked"))
        for _ in range(20):
            await connection.send(CHUNKS)
        assert await connection.status() == 411


@pytest.mark.parametrize(
    ("before", "coding"),
    [(b"", "chunked"), (b"", "cHUNKED"), (QUESTION, "chunked")],
    ids=["alone", "in other letters", "behind another request"],
)
async def test_of_the_chunks_nothing_is_parsed(monkeypatch: pytest.MonkeyPatch, before: bytes, coding: str) -> None:
    parsed = bytearray()
    parse = web.RequestHandler.data_received

    def noted(connection: web.RequestHandler, data: bytes) -> None:
        parsed.extend(data)
        parse(connection, data)

    monkeypatch.setattr(web.RequestHandler, "data_received", noted)
    runner = web.AppRunner(app_with())
    await runner.setup()
    assert runner.server is not None
    limits = ConnectionLimits(most=1, per_peer=1, seconds=4, waiting_bytes=2**20, idle_seconds=60)
    connection = Connection(runner.server, Connections(runner.server, limits), ConnectionSlot("loopback", 0.0))
    connection.connection_made(Sunk())
    sent = before + head_of("POST", "/filter", Transfer_Encoding=coding)
    connection.data_received(sent + CHUNKS)
    connection.data_received(CHUNKS)
    await until(lambda: len(parsed) >= len(sent))
    assert bytes(parsed) == sent
    connection.connection_lost(None)
    await runner.cleanup()


async def test_a_long_head_and_a_body_that_came_together_are_read_whole() -> None:
    """They are parsed in pieces of several lengths."""
    padded = orjson.dumps(BY_NAMES) + b" " * 100_000
    async with listening(app_with(), Address("127.0.0.1:0")) as url, wire(url) as connection:
        for _ in range(2):
            await connection.send(whole("POST", "/filter", padded, X="y" * 5000, Y="transfer-encoding"))
            assert await connection.status() == 200
            assert orjson.loads(connection.body)["NodeNames"] == ["node-a", "node-bb"]
