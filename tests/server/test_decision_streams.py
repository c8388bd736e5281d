"""Streams of decisions: events as they are made, what is continued, what a slow client misses, and when streams end."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from time import monotonic

import orjson
import pytest
from aiohttp import ClientSession, web

from extender.model.units import Address, Duration
from extender.server.app import listening
from extender.server.collaborators import COLLABORATORS
from extender.server.v1 import decision_streams, decisions
from extender.server.v1.decision_streams import DecisionStreams
from extender.settings.connections import Server
from extender.telemetry.decision_log import DecisionLog
from tests.fakes import PATIENCE, until
from tests.server.connected_verbs import served_on
from tests.server.decision_streams import Reader, events, filled, served, written_to
from tests.server.raw import Sunk, Wire, head_of, whole
from tests.server.serving import BY_NAMES, app_with


@pytest.fixture(autouse=True)
def _short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_streams, "POLL_SECONDS", 0.01)


async def test_a_decision_is_an_event_with_its_number() -> None:
    async with served(app_with()) as client, client.get("/v1/decisions/stream") as answer:
        assert (answer.status, answer.content_type) == (HTTPStatus.OK, "text/event-stream")
        assert answer.headers["Cache-Control"] == "no-store"
        await client.post("/filter", json=BY_NAMES)
        ((number, name, data),) = await events(answer, 1)
        assert (number, name) == ("1", "decision")
        assert (data["verb"], data["pod"], data["passed"]) == ("filter", "web-1", 2)


async def test_a_stream_begins_with_the_last_decisions_that_are_wanted_or_where_another_ended() -> None:
    app = app_with()
    filled(app[COLLABORATORS].decisions, "a", "b", "c")
    async with served(app) as client:
        async with client.get("/v1/decisions/stream?last=2") as answer:
            assert [data["pod"] for _, _, data in await events(answer, 2)] == ["b", "c"]
        async with client.get("/v1/decisions/stream", headers={"Last-Event-ID": "1"}) as answer:
            assert [number for number, _, _ in await events(answer, 2)] == ["2", "3"]
        async with client.get("/v1/decisions/stream", headers={"Last-Event-ID": "999"}) as answer:
            assert [number for number, _, _ in await events(answer, 3)] == ["1", "2", "3"]  # of an earlier process
        async with client.get("/v1/decisions/stream") as answer:
            filled(app[COLLABORATORS].decisions, "d")
            assert [data["pod"] for _, _, data in await events(answer, 1)] == ["d"]


@pytest.mark.parametrize(
    ("query", "header", "at_fault"),
    [
        ("?last=1001", "", "last"),
        ("?limit=1", "", "limit"),
        ("", "x", "Last-Event-ID"),
        ("", "1" * 16, "Last-Event-ID"),
    ],
)
async def test_a_wrong_parameter_is_named(query: str, header: str, at_fault: str) -> None:
    async with served(app_with()) as client:
        answer = await client.get(f"/v1/decisions/stream{query}", headers={"Last-Event-ID": header})
        assert (answer.status, (await answer.json())["field"]) == (HTTPStatus.BAD_REQUEST, at_fault)


async def test_one_stream_too_many_is_refused_until_a_client_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "MOST_STREAMS", 2)
    app, path = app_with(), "/v1/decisions/stream"
    streams = app[COLLABORATORS].streams
    async with served(app) as client, client.get(path):
        async with client.get(path):
            await until(lambda: streams.open == 2)
            refused = await client.get(path)
            assert (refused.status, refused.headers["Retry-After"]) == (HTTPStatus.TOO_MANY_REQUESTS, "1")
            assert "2 streams are open" in (await refused.json())["error"]
            page = await (await client.get("/metrics")).text()
            assert "extender_decision_streams 2.0" in page
            assert "extender_decision_streams_rejected_total 1.0" in page
        await until(lambda: streams.open == 1)
        async with client.get(path) as answer:
            assert answer.status == HTTPStatus.OK


async def test_a_stream_outlives_the_time_of_a_request_and_ends_with_the_service() -> None:
    app = app_with(server=Server(request_timeout=Duration(0.25)))
    async with served(app) as client, client.get("/v1/decisions/stream") as answer:
        begun = monotonic()
        await until(lambda: monotonic() > begun + 0.5)
        filled(app[COLLABORATORS].decisions, "late")
        assert [data["pod"] for _, _, data in await events(answer, 1)] == ["late"]
        async with asyncio.timeout(PATIENCE):
            await app[COLLABORATORS].streams.close(app)
            assert await answer.content.read() == b""
    assert app[COLLABORATORS].streams.open == 0


async def test_the_service_ends_although_streams_are_open() -> None:
    app = app_with()
    async with asyncio.timeout(PATIENCE):
        async with listening(app, Address("127.0.0.1:0")) as url:
            session = ClientSession(url)
            answer = await session.get("/v1/decisions/stream")
            await until(lambda: app[COLLABORATORS].streams.open)
        answer.close()
        await session.close()
    assert app[COLLABORATORS].streams.open == 0


async def test_a_client_that_does_not_read_is_reported_how_much_it_has_missed() -> None:
    log = DecisionLog(most_bytes=5000)
    streams, reader = DecisionStreams(log), Reader()
    async with written_to(reader, streams):
        await until(lambda: reader.received)
        filled(log, *(f"p{number}" for number in range(500)))
        assert reader.events() == [], "nothing is written, or held, for a client that does not read"
        reader.reads.set()
        await until(lambda: len(reader.events()) == 1 + len(log))
    (number, name, data), *others = reader.events()
    assert (name, data) == ("missed", {"count": 500 - len(log)})
    assert number == str(data["count"])
    assert [int(each) for each, _, _ in others] == list(range(log.first, 501))


async def test_a_quiet_stream_has_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_streams, "COMMENT_SECONDS", 0.02)
    reader = Reader()
    reader.reads.set()
    async with written_to(reader, DecisionStreams(DecisionLog())):
        await until(lambda: b":\n\n:\n\n" in reader.received)


def test_an_event_is_encoded_once_for_all_streams_and_a_bounded_number_is_kept() -> None:
    streams = DecisionStreams(DecisionLog())
    filled(streams.log, *(f"p{number}" for number in range(2000)))
    assert streams.frames(0)[3] is streams.frames(3)[0]
    for position in range(0, 2000, 10):
        streams.frames(position)
    assert len(streams._frames) <= 1024


# -- Bodies in chunks are refused by their head, and not parsed: each chunk costs as much as hundreds of bytes ---------

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


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> bytearray:
    """The bytes that the framework parses."""
    found = bytearray()
    parse = web.RequestHandler.data_received

    def noted(connection: web.RequestHandler, data: bytes) -> None:
        found.extend(data)
        parse(connection, data)

    monkeypatch.setattr(web.RequestHandler, "data_received", noted)
    return found


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_every_path_answers_that_it_needs_a_length_and_closes(
    connection: Wire, method: str, path: str, coding: str
) -> None:
    await connection.send(head_of(method, path, Transfer_Encoding=coding) + b"2\r\n{}\r\n0\r\n\r\n")
    assert await connection.status() == 411
    assert orjson.loads(connection.body) == {"error": TEXT}
    assert await connection.closed()


async def test_what_is_rejected_before_its_chunks_are_seen_closes_as_well(connection: Wire) -> None:
    refused = head_of("POST", "/filter", Transfer_Encoding="chunked", Expect="miracles") + CHUNKS[:6000]
    await connection.send(refused)
    assert await connection.status() == 417
    assert b"Connection: close" in connection.head


async def test_a_client_that_goes_on_sending_can_read_the_answer(connection: Wire) -> None:
    await connection.send(head_of("POST", "/filter", Transfer_Encoding="chunked"))
    for _ in range(20):
        await connection.send(CHUNKS)
    assert await connection.status() == 411


@pytest.mark.parametrize(
    ("before", "coding"),
    [(b"", "chunked"), (b"", "cHUNKED"), (QUESTION, "chunked")],
    ids=["alone", "in other letters", "behind another request"],
)
async def test_of_the_chunks_nothing_is_parsed(parsed: bytearray, before: bytes, coding: str) -> None:
    transport = Sunk()
    async with served_on({}, transport) as (_, connection):
        sent = before + head_of("POST", "/filter", Transfer_Encoding=coding)
        connection.data_received(sent + CHUNKS)
        await until(lambda: b"HTTP/1.1 411" in transport.written)
        for _ in range(10):
            connection.data_received(CHUNKS)
            await asyncio.sleep(0)
        assert bytes(parsed) == sent


@pytest.mark.parametrize("cut", range(1, 5))
async def test_the_end_of_a_head_is_found_although_it_comes_in_two_reads(parsed: bytearray, cut: int) -> None:
    transport = Sunk()
    async with served_on({}, transport) as (_, connection):
        sent = head_of("POST", "/filter", Transfer_Encoding="chunked")
        connection.data_received(sent[:-cut])
        connection.data_received(sent[-cut:] + CHUNKS)
        await until(lambda: b"HTTP/1.1 411" in transport.written)
        assert bytes(parsed) == sent


async def test_what_follows_a_request_is_parsed_when_it_is_answered(parsed: bytearray) -> None:
    """A body, whose end the framework knows, and then the head of another request that is not complete."""
    transport = Sunk()
    async with served_on({}, transport) as (_, connection):
        body = b" " * 200_000
        connection.data_received(head_of("POST", "/filter", Content_Length=str(len(body))) + body[:-1])
        await until(lambda: len(parsed) > len(body))
        connection.data_received(body[-1:] + b"G" * 300_000)
        assert not parsed.endswith(b"G")
        await until(lambda: transport.is_aborted)
        assert transport.written.startswith(b"HTTP/1.1 200")
        assert not parsed.endswith(b"G"), "a head is not as long as that"


async def test_a_long_head_and_a_body_that_came_together_are_read_whole(connection: Wire) -> None:
    """They are parsed in pieces of several lengths."""
    padded = orjson.dumps(BY_NAMES) + b" " * 100_000
    for _ in range(2):
        await connection.send(whole("POST", "/filter", padded, X="y" * 5000, Y="transfer-encoding"))
        assert await connection.status() == 200
        assert orjson.loads(connection.body)["NodeNames"] == ["node-a", "node-bb"]
