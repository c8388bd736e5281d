"""Answers of verbs: one write for head and body, and the same answer on each way to a verb."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import orjson
import pytest
from aiohttp import web

from extender.model.units import Address
from extender.server.app import listening
from extender.server.transport.connection_slots import ConnectionSlot
from extender.server.transport.connections import Answer, Connection, ConnectionLimits, Connections, answering
from tests.fakes import PATIENCE, until
from tests.server.raw import Wire, head_of, whole, wire
from tests.server.serving import BY_NAMES, app_with
from tests.server.test_connections import Sunk

QUESTION = orjson.dumps(BY_NAMES)
PASSED = ["node-a", "node-bb"]
LONG = orjson.dumps({**BY_NAMES, "NodeNames": [f"node-{number:05}" for number in range(5000)]})


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is written to a socket by each call, by either side."""
    found: list[bytes] = []
    original = asyncio.selector_events._SelectorSocketTransport.write  # type: ignore[attr-defined] # no other way to see it

    def write(self: object, data: bytes) -> None:
        found.append(bytes(data))
        original(self, data)

    monkeypatch.setattr("asyncio.selector_events._SelectorSocketTransport.write", write)
    return found


async def test_a_short_answer_is_written_by_one_call(writes: list[bytes]) -> None:
    async with listening(app_with(), Address("127.0.0.1:0")) as url, wire(url) as connection:
        for _ in range(2):
            writes.clear()
            await connection.send(whole("POST", "/filter", QUESTION))
            assert await connection.status() == 200
            request, answer = writes
            assert request.startswith(b"POST ")
            assert answer == connection.head + connection.body


async def test_head_and_body_are_complete() -> None:
    async with listening(app_with(), Address("127.0.0.1:0")) as url, wire(url) as connection:
        await connection.send(whole("POST", "/filter", QUESTION))
        assert await connection.status() == 200
        fields = [line.split(b":")[0] for line in connection.head.splitlines()[1:-1]]
        assert fields == [b"Content-Type", b"Content-Length", b"Date"]
        assert b"Content-Type: application/json\r\n" in connection.head
        assert orjson.loads(connection.body)["NodeNames"] == PASSED


@pytest.mark.parametrize("path", ["/filter", "/filter?trace=1", "http://extender/filter", "/%66ilter"])
async def test_however_the_path_is_written_the_answer_is_the_same(path: str) -> None:
    async with listening(app_with(), Address("127.0.0.1:0")) as url, wire(url) as connection:
        await connection.send(whole("POST", path, QUESTION))
        assert await connection.status() == 200
        assert orjson.loads(connection.body)["NodeNames"] == PASSED


@pytest.mark.parametrize("body", [QUESTION, LONG], ids=["short", "long"])
async def test_a_client_that_wants_the_connection_closed_is_told_that_it_is(body: bytes) -> None:
    async with listening(app_with(), Address("127.0.0.1:0")) as url, wire(url) as connection:
        await connection.send(whole("POST", "/filter", body, Connection="close"))
        assert await connection.status() == 200
        assert b"Connection: close" in connection.head
        assert await connection.closed()


async def test_a_client_of_an_older_http_is_answered_and_its_connection_closed() -> None:
    async with listening(app_with(), Address("127.0.0.1:0")) as url, wire(url) as connection:
        await connection.send(whole("POST", "/filter", QUESTION).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        assert await connection.status() == 200
        assert connection.head.startswith(b"HTTP/1.0 200")
        assert await connection.closed()


async def test_an_expectation_is_answered_before_the_body_comes() -> None:
    async with listening(app_with(), Address("127.0.0.1:0")) as url, wire(url) as connection:
        request = whole("POST", "/filter", QUESTION, Expect="100-continue")
        await connection.send(request[: -len(QUESTION)])
        assert await connection.status() == 100
        await connection.send(QUESTION)
        assert await connection.status() == 200


async def test_answers_of_requests_that_come_together_keep_their_order() -> None:
    """A long answer between short ones is written by the framework."""
    async with listening(app_with(), Address("127.0.0.1:0")) as url, wire(url) as connection:
        await connection.send(b"".join(whole("POST", "/filter", body) for body in (QUESTION, LONG, QUESTION)))
        assert [await names(connection) for _ in range(3)] == [2, 5000, 2]


async def names(connection: Wire) -> int:
    """How many nodes the next answer names."""
    async with asyncio.timeout(PATIENCE):
        assert await connection.status() == 200
    return len(orjson.loads(connection.body)["NodeNames"])


@pytest.mark.parametrize(
    "request_", [head_of("GET", "/livez"), whole("POST", "/filter", QUESTION)], ids=["GET", "POST"]
)
async def test_more_requests_than_the_framework_queues_are_all_answered(request_: bytes) -> None:
    """It stops parsing, and goes on with what it holds back when it is called with no data."""
    async with listening(app_with(), Address("127.0.0.1:0")) as url, wire(url) as connection:
        sending = asyncio.create_task(connection.send(request_ * 300))
        async with asyncio.timeout(PATIENCE):
            assert [await connection.status() for _ in range(300)] == [200] * 300
        await sending


@asynccontextmanager
async def connected(note: Callable[[], None]) -> AsyncIterator[Connection]:
    """A connection with one verb, which calls ``note`` and answers."""

    async def verb(_request: web.BaseRequest) -> Answer:
        note()
        return Answer(b"{}")

    runner = web.AppRunner(app_with())
    await runner.setup()
    assert runner.server is not None
    limits = ConnectionLimits(most=1, per_peer=1, seconds=4, waiting_bytes=2**20, idle_seconds=60)
    runner.server.request_handler = answering(runner.server.request_handler, {"/verb": verb})
    every = Connections(runner.server, limits)
    connection = Connection(runner.server, every, ConnectionSlot("loopback", 0.0))
    connection.connection_made(Sunk())
    yield connection
    connection.connection_lost(None)
    await runner.cleanup()


async def test_of_requests_that_came_together_one_is_answered_in_each_iteration_of_the_loop() -> None:
    iteration, answered = 0, list[int]()
    loop = asyncio.get_running_loop()

    def count() -> None:
        nonlocal iteration
        iteration += 1
        if len(answered) < 3:
            loop.call_soon(count)

    async with connected(lambda: answered.append(iteration)) as connection:
        count()
        connection.data_received(whole("POST", "/verb", QUESTION) * 3)
        await until(lambda: len(answered) == 3)
    assert len(set(answered)) == 3


async def test_after_another_request_of_the_connection_verbs_are_answered_as_before() -> None:
    async with listening(app_with(), Address("127.0.0.1:0")) as url, wire(url) as connection:
        for request in (
            whole("POST", "/filter", QUESTION),
            head_of("GET", "/livez"),
            whole("POST", "/filter", QUESTION),
        ):
            await connection.send(request)
            assert await connection.status() == 200
        assert orjson.loads(connection.body)["NodeNames"] == PASSED


async def test_a_connection_goes_on_after_a_body_that_no_handler_read() -> None:
    async with listening(app_with(), Address("127.0.0.1:0")) as url, wire(url) as connection:
        compressed = whole("POST", "/prioritize", b" " * 100_000, Content_Encoding="gzip")
        await connection.send(compressed[:-1])
        assert await connection.status() == 415
        await connection.send(compressed[-1:] + whole("POST", "/filter", QUESTION))
        assert await connection.status() == 200
