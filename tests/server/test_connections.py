"""Connections that lead to nothing are closed, and never keep out a request that comes at once."""

import asyncio
import gc
import socket
import tracemalloc
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import pytest
from aiohttp import web

from extender.compose.process import allow_connections
from extender.model.units import Address, ByteSize, Duration
from extender.server.app import listening
from extender.server.collaborators import COLLABORATORS, Verbs
from extender.server.request_checks import BodyMemory, HeldBody, read_body
from extender.server.transport import connection_slots
from extender.server.transport.connection_slots import Stage
from extender.server.transport.connections import JSONAnswer, ServerConnection
from extender.server.transport.tls import ServerTls
from extender.settings.connections import Paths, Server
from extender.wire.extender_v1 import ExtenderArgs, FilterResult
from tests.fakes import PATIENCE, until
from tests.pki import Pki
from tests.server.bindings import QUESTION, Binding, answered, bind, many, served
from tests.server.connected_verbs import served_on
from tests.server.raw import Sunk, Wire, head_of, whole, wire
from tests.server.serving import AGREEABLE, BY_NAMES, app_with

SOON = Duration(0.2)
PROBE = head_of("GET", "/livez")


# What is sent on a connection before it is closed, and the status of each answer; 0 where none comes.
ENDING: dict[str, tuple[Server, list[tuple[bytes, int]]]] = {
    "nothing is sent": (Server(request_timeout=SOON), []),
    "a head that trickles": (Server(request_timeout=SOON), [(PROBE, 200), (b"GET /livez HTT", 0)]),
    "empty lines, which the framework ignores": (Server(request_timeout=Duration(0.5)), [(b"\r\n\r\n", 0)]),
    "idle after its time only": (Server(request_timeout=Duration(4), idle_timeout=SOON), [(PROBE, 200)] * 3),
}


@pytest.mark.parametrize(("server", "requests"), ENDING.values(), ids=ENDING)
async def test_a_connection_that_leads_to_nothing_is_closed(server: Server, requests: list[tuple[bytes, int]]) -> None:
    async with served(server) as url, wire(url) as connection:
        for request, status in requests:
            await connection.send(request)
            if status:
                assert await connection.status() == status
        assert await connection.closed()


async def test_a_request_behind_empty_lines_is_answered(connection: Wire) -> None:
    for lines in (2, 100_000):
        await connection.send(b"\r\n" * lines + PROBE)
        assert await connection.status() == 200


async def test_a_handshake_that_stops_half_way_is_closed(tmp_path: Path) -> None:
    tls = Pki(tmp_path).tls
    app = app_with(server=Server(request_timeout=SOON, tls=tls))
    async with listening(app, Address("127.0.0.1:0"), ServerTls(tls)) as url, wire(url) as connection:
        await connection.send(b"\x16\x03\x01\x02\x00\x01")
        assert await connection.closed()


async def test_silent_half_headed_idle_and_half_sent_connections_keep_no_client_out() -> None:
    limits = Server(max_connections=20, max_connections_per_peer=20, max_in_flight=1)
    async with served(limits) as url, AsyncExitStack() as stack:
        for content in (b"", b"POST /filter HT", PROBE, head_of("POST", "/filter", Content_Length="1000") + b"{"):
            await many(stack, url, 25, content)
            assert await answered(url) == 200
            assert await answered(url, PROBE) == 200


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"], ids=["left at once", "with the beginning of a handshake"])
async def test_connections_that_wait_for_the_turn_of_their_handshake_keep_no_client_out(
    sent: bytes, tmp_path: Path
) -> None:
    """They come in one iteration of the event loop, so nothing of them has been read when the client comes."""
    pki = Pki(tmp_path)
    app = app_with(server=Server(tls=pki.tls, max_connections=20, max_connections_per_peer=20))
    async with listening(app, Address("127.0.0.1:0"), ServerTls(pki.tls)) as url:
        place = urlsplit(url)
        crowd = [socket.create_connection((place.hostname, place.port)) for _ in range(60)]
        for each in crowd:
            if sent:
                each.send(sent)
            else:
                each.close()
        async with wire(url, pki.client(pki.scheduler())) as connection:
            await connection.send(PROBE)
            assert await connection.status() == 200
        for each in crowd:
            each.close()


async def test_what_is_no_http_is_answered_and_logged_without_what_was_sent(
    connection: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    await connection.send(b"SPOIL \x1b[31m HTTP/9.9\r\n\r\n")
    assert await connection.status() == 400
    assert "error" in orjson.loads(connection.body)
    assert b"31m" not in connection.body
    assert await connection.closed()
    (record,) = caplog.records
    assert record.getMessage() == "connection closed"
    assert vars(record)["problem"] == "400, message: Invalid method encountered"


async def test_an_answer_that_is_not_taken_is_given_up() -> None:
    async def long(_args: ExtenderArgs) -> FilterResult:
        return FilterResult(["n" * 1000] * 50_000)

    verbs = Verbs(long, AGREEABLE.prioritize, AGREEABLE.preempt)
    async with served(Server(request_timeout=SOON), verbs) as url, AsyncExitStack() as stack:
        slow = await many(stack, url, 2, QUESTION)
        assert [await each.status_or_cut() for each in slow] == [0, 0]


async def test_bodies_together_hold_what_is_set_aside_and_the_oldest_unfinished_gives_way() -> None:
    limits = Server(max_body_bytes=ByteSize(2**20))  # four of which may be held at once
    half = head_of("POST", "/filter", Content_Length=str(2**20)) + b" " * (2**20 - 1)
    async with served(limits) as url, AsyncExitStack() as stack:
        slow = await many(stack, url, 6, half)
        assert await slow[0].closed()
        assert await answered(url, whole("POST", "/filter", orjson.dumps(BY_NAMES) + b" " * 2**19)) == 200


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Memory is measured, and what only the collector would find stays."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    yield
    tracemalloc.stop()
    gc.enable()


@pytest.mark.usefixtures("uncollected")
async def test_bodies_that_broke_off_or_were_answered_hold_no_memory() -> None:
    app = app_with(server=Server(max_body_bytes=ByteSize(2**22)))
    size = 2**22 - 1000
    padded = orjson.dumps(BY_NAMES) + b" " * size
    async with listening(app, Address("127.0.0.1:0")) as url:
        assert await answered(url) == 200  # what is made on first use does not count
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(4):
            async with wire(url) as connection:
                await connection.send(head_of("POST", "/filter", Content_Length=str(2**22)) + b" " * size)
                await until(lambda: app[COLLABORATORS].bodies.size == size)
            await until(lambda: not app[COLLABORATORS].bodies.requests)
            assert await answered(url, whole("POST", "/prioritize", padded[: 2**22])) == 200
        after, _ = tracemalloc.get_traced_memory()
    assert after - before < size


BODY = b"POST /verb HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n"


@pytest.mark.parametrize(
    "arrived",
    [(b"POST /verb HTTP/1.1\r\nHost: ", b"a\r\n\r\n"), (BODY, b"{", b"}"), (BODY + b"{}",)],
    ids=["no body", "a body in pieces", "at once"],
)
async def test_a_connection_is_kept_from_the_last_byte_of_its_request_although_its_handler_has_yet_to_begin(
    arrived: tuple[bytes, ...],
) -> None:
    begun, may_end, transport = asyncio.Event(), asyncio.Event(), Sunk()

    async def verb(request: web.Request) -> JSONAnswer:
        await read_body(request, 10, "", BodyMemory(10), HeldBody(request))
        begun.set()
        await may_end.wait()
        return JSONAnswer(b"{}")

    async with served_on({"/verb": verb}, transport) as (connections, connection):
        *parts, last = arrived
        for data in parts:
            connection.data_received(data)
            for _ in range(5):
                await asyncio.sleep(0)
        connection.data_received(last)
        other = ServerConnection(connections, "loopback")
        if (closed := connections.slots.acquire(other, other.since + 9)) is not None:
            connections.replace(closed)
        await until(begun.is_set)
        assert connection.stage is Stage.DECIDING
        may_end.set()
        await until(lambda: transport.written)
        assert transport.written.startswith(b"HTTP/1.1 200")
        assert not transport.is_aborted


async def test_a_connection_without_a_complete_request_is_closed_for_another_one() -> None:
    transport = Sunk()
    async with served_on({}, transport) as (connections, connection):
        connection.data_received(BODY[:-1])
        other = ServerConnection(connections, "loopback")
        assert connections.slots.acquire(other, other.since) is connection
        connections.replace(connection)
        await until(lambda: transport.is_aborted)


@pytest.mark.parametrize(("lines", "status"), [(8, 200), (9, 0)], ids=["below", "above"])
async def test_a_head_of_more_than_64_kib_closes_its_connection(connection: Wire, lines: int, status: int) -> None:
    """Its lines and their number are below what the framework allows."""
    head = head_of("GET", "/livez", **{f"Line_{number}": "n" * 8000 for number in range(lines)})
    for begin in range(0, len(head), 4000):
        await connection.send(head[begin : begin + 4000])
        await asyncio.sleep(0)  # both ends are of this loop: each piece is read alone
    assert await connection.status() == status


async def test_the_rest_of_a_body_that_no_handler_read_is_not_taken_for_a_request(connection: Wire) -> None:
    rest = b"POST /filter HTTP/1.1\r\nContent-Length: 9\r\n\r\n"
    await connection.send(head_of("POST", "/none", Content_Length=str(len(rest) + 1)) + b"{")
    assert await connection.status() == 404
    await connection.send(rest + head_of("GET", "/livez"))
    assert await connection.status() == 200


async def test_a_client_that_leaves_after_its_answer_leaves_no_task_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of a body is waited for, so that a client that still sends can read the answer; not once it has gone."""
    monkeypatch.setattr("extender.server.transport.connections.LINGERING_SECONDS", 3600.0)
    async with served(Server()) as url:
        before = len(asyncio.all_tasks())
        async with wire(url) as connection:
            await connection.send(head_of("POST", "/none", Content_Length="100") + b"{")
            assert await connection.status() == 404
        await until(lambda: len(asyncio.all_tasks()) == before)


# -- Thousands of bindings at once, each on a connection of its own that is silent while it waits, and what is
#    refused

HOUR = Duration(3600)
BIND = Paths(bind="/bind")


@pytest.mark.alone
async def test_5000_bindings_at_once_are_answered_under_the_default_limits() -> None:
    count, binding = 5000, Binding()
    assert allow_connections() > 2 * count + 500, "both sides of each connection are open files of this process"
    async with binding.served(Server(paths=BIND, request_timeout=HOUR)) as url, AsyncExitStack() as stack:

        async def call(uid: int) -> Wire:
            connection = await stack.enter_async_context(wire(url))
            await connection.send(bind(uid))
            return connection

        connections = await asyncio.gather(*(call(uid) for uid in range(count)))
        async with asyncio.timeout(PATIENCE):
            for _ in range(count):
                await binding.count.acquire()
            async with wire(url) as probe:
                await probe.send(head_of("GET", "/livez"))
                assert await probe.status() == 200
            binding.may_end.set()
            assert [await each.status() for each in connections] == [200] * count
    assert sorted(binding.begun, key=int) == [str(uid) for uid in range(count)]


async def test_a_binding_under_way_keeps_its_connection_and_takes_no_place_from_others() -> None:
    binding = Binding()
    limits = Server(paths=BIND, max_connections=1, max_connections_per_peer=1)
    async with binding.served(limits) as url, AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(wire(url)) for _ in range(2)]
        await second.send(bind(2))
        await until(lambda: binding.begun == ["2"])
        third = await stack.enter_async_context(wire(url))
        await third.send(bind(3))
        await until(lambda: binding.begun == ["2", "3"])
        assert await first.closed(), "it was silent"
        binding.may_end.set()
        assert [await second.status(), await third.status()] == [200, 200]


@pytest.mark.parametrize("new", [1.0, 0.0], ids=["on a fast machine", "on one where the answers take longer than that"])
async def test_of_bindings_that_end_together_those_beyond_the_limit_are_reported_that_their_connection_ends(
    new: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not closed later: the scheduler could have begun another call on it, whose answer would be lost."""
    monkeypatch.setattr(connection_slots, "_NEW_SECONDS", new)
    count, kept, binding = 20, 4, Binding()
    async with binding.served(Server(paths=BIND, max_connections_per_peer=kept)) as url, AsyncExitStack() as stack:
        connections = []
        for uid in range(count):
            connections.append(await stack.enter_async_context(wire(url)))
            await connections[-1].send(bind(uid))
            await until(lambda: len(binding.begun) == len(connections))
        binding.may_end.set()
        assert [await each.status() for each in connections] == [200] * count
        ended = [each for each in connections if b"connection: close" in each.head.lower()]
        assert len(ended) == count - kept
        assert all([await each.closed() for each in ended])
        for each in connections:
            if each not in ended:
                await each.send(head_of("GET", "/livez"))
                assert await each.status() == 200


async def test_an_idle_connection_whose_next_request_has_arrived_is_not_closed_for_a_new_one() -> None:
    """Both come in one iteration of the event loop, the new connection first; the oldest idle connection would be closed."""
    binding = Binding()
    binding.may_end.set()
    async with binding.served(Server(paths=BIND, max_connections_per_peer=2)) as url, AsyncExitStack() as stack:
        idle = []
        for _ in range(2):
            idle.append(await stack.enter_async_context(wire(url)))
            await idle[-1].send(head_of("GET", "/livez"))
            assert await idle[-1].status() == 200
        place = urlsplit(url)
        with socket.create_connection((place.hostname, place.port)):
            idle[0].writer.write(bind(1))  # at once
            assert await idle[0].status() == 200
            assert await idle[1].closed()


async def test_a_binding_beyond_the_limit_is_refused_before_anything_is_written() -> None:
    binding = Binding()
    async with binding.served(Server(paths=BIND, max_binds_in_flight=1)) as url, AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(wire(url)) for _ in range(2)]
        await first.send(bind(1))
        await until(lambda: binding.begun == ["1"])
        await second.send(bind(2))
        assert await second.status() == 503
        assert orjson.loads(second.body) == {"error": "overloaded: server.maxBindsInFlight (1) pods are being bound"}
        binding.may_end.set()
        assert await first.status() == 200
        await second.send(bind(2))
        assert await second.status() == 200
    assert binding.begun == ["1", "2"]


@pytest.mark.parametrize(
    "path", ["/bind", "/bind?a=b"], ids=["as the scheduler calls", "through the framework's routes"]
)
async def test_a_binding_that_its_client_does_not_wait_for_is_not_begun(path: str) -> None:
    """The scheduler has counted it as failed by then, and tries the pod again."""
    binding = Binding()
    binding.may_end.set()
    async with binding.served(Server(paths=BIND)) as url:
        async with wire(url) as connection:
            connection.writer.write(bind(1).replace(b"/bind", path.encode(), 1))
            connection.writer.close()
        async with wire(url) as connection:
            await connection.send(bind(2))
            assert await connection.status() == 200
    assert binding.begun == ["2"]
