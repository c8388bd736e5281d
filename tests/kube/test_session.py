"""Connections: time limits, what is sent with each request, an orderly end."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from typing import Any, Final

import pytest
from aiohttp import web

from extender.compose.process import LOOP_FACTORY
from extender.kube.credentials import Access
from extender.kube.errors import NotFound, Rejected, TooLarge, Unreachable
from extender.kube.session import Connection, Session, SessionOptions, open_session
from tests.fakes import FakeClock, until
from tests.kube.scripted import CUT, END, ScriptedApi, body, held, page, serving, status, watch

LOOPS: Final = [asyncio.new_event_loop, *([LOOP_FACTORY] if LOOP_FACTORY is not None else [])]


async def test_a_call_gives_the_body(api: ScriptedApi, session: Session) -> None:
    api.script("/api/v1/x", body(b'{"a": 1}'))
    assert await session.reads.call("GET", "/api/v1/x", query={"limit": "5"}) == b'{"a": 1}'
    (seen,) = api.requests
    assert seen.query == {"limit": "5"}
    assert seen.headers["Accept"] == "application/json"
    assert seen.headers["Accept-Encoding"] == "identity", "unpacking would cost the loop more than the network"
    assert seen.headers["User-Agent"] == "placement-extender"
    assert "Authorization" not in seen.headers


async def test_what_is_compressed_although_it_was_not_asked_for_is_not_inflated(
    api: ScriptedApi, session: Session
) -> None:
    bomb = gzip.compress(bytes(2**20))
    api.script("/api/v1/x", body(bomb, headers={"Content-Encoding": "gzip"}))
    assert await session.reads.call("GET", "/api/v1/x") == bomb


@pytest.mark.parametrize(
    "content",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 10_000 + b"0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000 + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    ],
    ids=["chunks of one byte", "interim answers"],
)
async def test_an_answer_in_many_tiny_parts_is_given_up(clock: FakeClock, content: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(content)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        async with open_session(Access(host=f"http://{host}:{port}"), clock) as session:
            with pytest.raises(Unreachable):
                await session.reads.call("GET", "/api/v1/x")


async def test_a_rejection_is_raised_with_its_text(api: ScriptedApi, session: Session) -> None:
    api.script("/api/v1/x", status(403, "not yours", "Forbidden"))
    with pytest.raises(Rejected, match="403 not yours"):
        await session.writes.call("POST", "/api/v1/x", body={"a": 1})
    assert api.requests[0].body == {"a": 1}


async def test_no_call_waits_longer_than_its_limit(api: ScriptedApi, session: Session) -> None:
    api.script("/api/v1/x", held(page(), asyncio.Event()))
    with pytest.raises(Unreachable, match="timed out"):
        await session.reads.call("GET", "/api/v1/x", limit=0.05)


async def test_no_call_waits_longer_than_the_session_allows(api: ScriptedApi, clock: FakeClock) -> None:
    api.script("/api/v1/x", held(page(), asyncio.Event()))
    async with open_session(Access(host=api.url), clock, SessionOptions(request_timeout=0.05)) as session:
        with pytest.raises(Unreachable, match="timed out"):
            await session.reads.call("GET", "/api/v1/x")


async def test_a_body_that_stops_in_the_middle_is_bounded_too(api: ScriptedApi, session: Session) -> None:
    api.script("/api/v1/x", watch(b"half"))
    with pytest.raises(Unreachable, match="timed out"):
        await session.reads.call("GET", "/api/v1/x", limit=0.05)


async def test_a_body_that_is_cut_is_unreachable(api: ScriptedApi, session: Session) -> None:
    api.script("/api/v1/x", watch(b"half", then=CUT))
    with pytest.raises(Unreachable):
        await session.reads.call("GET", "/api/v1/x")


async def test_a_stream_says_silence_from_its_end(api: ScriptedApi, session: Session) -> None:
    api.script("/api/v1/x", watch(b"one\n"), watch(b"two\n", then=END))
    async with session.reads.stream("/api/v1/x", {}) as stream:
        assert await stream.read(5.0) == b"one\n"
        assert await stream.read(0.02) is None
        assert await stream.read(0.0) is None
    async with session.reads.stream("/api/v1/x", {}) as stream:
        assert await stream.read(5.0) == b"two\n"
        assert await stream.read(5.0) == b""


async def test_a_stream_whose_connection_has_ended_says_so_at_its_next_read(api: ScriptedApi, session: Session) -> None:
    """The transport has closed the socket by then, and the operating system refuses to change it."""
    api.script("/api/v1/x", watch(b"one\n", then=CUT))
    async with session.reads.stream("/api/v1/x", {}) as stream:
        assert await stream.read(5.0) == b"one\n"
        connected = stream._socket
        await until(lambda: connected is not None and connected.fileno() == -1)
        stream.shorten()
        with pytest.raises(Unreachable):
            await stream.read(5.0)


async def test_reads_of_a_stream_share_one_timer(
    api: ScriptedApi, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = asyncio.Event()
    api.script("/api/v1/x", watch(b"one\n", then=more))
    loop, started = asyncio.get_running_loop(), list[str]()
    call_at = loop.call_at

    def counting(when: float, callback: Any, *args: Any, **more: Any) -> asyncio.TimerHandle:
        started.append(callback.__qualname__)
        return call_at(when, callback, *args, **more)

    async with session.reads.stream("/api/v1/x", {}) as stream:
        monkeypatch.setattr(loop, "call_at", counting)
        assert await stream.read(60.0) == b"one\n"
        more.set()
        assert await stream.read(60.0) == b""
        ours = [name for name in started if name != "_weakref_handle"]  # the one that closes idle connections
        assert ours == ["ByteStream._expire"]


@pytest.mark.parametrize("make_loop", LOOPS, ids=lambda make: make.__module__)
def test_a_read_that_may_not_wait_gives_what_has_arrived_and_the_next_one_waits_again(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """As in a process that got no processor time for long. The timer is due at once, and a loop may run it as no timer."""

    async def read_twice() -> list[bytes | None]:
        more = asyncio.Event()
        async with serving(ScriptedApi()) as api, open_session(Access(host=api.url), FakeClock()) as session:
            api.script("/api/v1/x", watch(b"one\n", then=more))
            async with session.reads.stream("/api/v1/x", {}) as stream:
                await until(lambda: stream.buffered)
                first = await stream.read(-1.0)
                asyncio.get_running_loop().call_later(0.05, more.set)
                return [first, await stream.read(60.0)]

    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert runner.run(read_twice()) == [b"one\n", b""]


async def test_a_read_may_wait_longer_than_the_one_before_it(api: ScriptedApi, session: Session) -> None:
    """The timer of the first read ends while the second waits."""
    more = asyncio.Event()
    api.script("/api/v1/x", watch(b"one\n", then=more))
    async with session.reads.stream("/api/v1/x", {}) as stream:
        assert await stream.read(0.05) == b"one\n"
        asyncio.get_running_loop().call_later(0.1, more.set)
        assert await stream.read(60.0) == b""


async def test_a_read_may_wait_for_less_time_than_the_one_before_it(api: ScriptedApi, session: Session) -> None:
    api.script("/api/v1/x", watch(b"one\n"))
    async with session.reads.stream("/api/v1/x", {}) as stream:
        assert await stream.read(600.0) == b"one\n"
        assert await stream.read(0.02) is None


async def test_others_have_their_turn_before_bytes_that_wait_are_read(api: ScriptedApi, session: Session) -> None:
    api.script("/api/v1/x", watch(b"one\n"))
    async with session.reads.stream("/api/v1/x", {}) as stream:
        await until(lambda: stream.buffered)
        turns = list[str]()
        asyncio.get_running_loop().call_soon(turns.append, "another")
        assert await stream.read(5.0) == b"one\n"
        assert turns == ["another"]


class Reader:
    """Handles chunks where they arrive, but not ``left``; notes each with whether a task was running."""

    def __init__(self, left: bytes = b"") -> None:
        self.left = left
        self.handled: list[tuple[bytes, bool]] = []

    def handle(self, chunk: bytes) -> bool:
        if chunk == b"bad\n":
            raise ValueError("a bad chunk")
        if chunk == self.left:
            return False
        self.handled.append((chunk, asyncio.current_task() is not None))
        return True

    def has_handled(self, count: int) -> bool:
        return len(self.handled) >= count


async def chunks_after_the_first(
    api: ScriptedApi, session: Session, reader: Reader, *chunks: bytes, then: Any = END, patience: float = 60.0
) -> bytes | None:
    """What a stream returns that has begun to wait before these chunks are sent, one by one."""
    more = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        await more.wait()
        for number, chunk in enumerate(chunks):
            await response.write(chunk)
            if chunk not in (reader.left, b"bad\n"):
                await until(partial(reader.has_handled, number + 1))
        if then is CUT:
            assert request.transport is not None
            request.transport.abort()
        elif then is not END:
            await then.wait()
        return response

    api.script("/api/v1/x", answer)
    async with session.reads.stream("/api/v1/x", {}) as stream:
        assert await stream.read(60.0) == b"first\n"
        asyncio.get_running_loop().call_later(0.01, more.set)
        return await stream.read_unhandled(lambda: patience, reader.handle)


async def test_a_chunk_is_handled_where_it_arrives_and_wakes_no_task(api: ScriptedApi, session: Session) -> None:
    reader = Reader(left=b"three\n")
    assert await chunks_after_the_first(api, session, reader, b"one\n", b"two\n", b"three\n") == b"three\n"
    assert reader.handled == [(b"one\n", False), (b"two\n", False)]


@pytest.mark.parametrize("chunks", [[], [b"one\n"]], ids=["at once", "after a chunk"])
async def test_chunks_that_are_handled_where_they_arrive_have_an_end(
    api: ScriptedApi, session: Session, chunks: list[bytes]
) -> None:
    assert await chunks_after_the_first(api, session, Reader(), *chunks) == b""
    with pytest.raises(Unreachable):
        await chunks_after_the_first(api, session, Reader(), *chunks, then=CUT)
    started = asyncio.get_running_loop().time()
    held = asyncio.Event()
    assert await chunks_after_the_first(api, session, Reader(), *chunks, then=held, patience=0.05) is None
    assert asyncio.get_running_loop().time() - started >= 0.05
    held.set()


async def test_each_chunk_that_is_handled_where_it_arrives_ends_the_silence(api: ScriptedApi, session: Session) -> None:
    waits, more = chain([0.05], repeat(60.0)), asyncio.Event()
    api.sends_late = True
    api.script("/api/v1/x", watch(b"one\n", then=more))
    async with session.reads.stream("/api/v1/x", {}) as stream:
        asyncio.get_running_loop().call_later(0.1, more.set)
        assert await stream.read_unhandled(lambda: next(waits), Reader().handle) == b""


async def test_an_error_where_a_chunk_arrives_is_raised_by_the_task_that_reads(
    api: ScriptedApi, session: Session
) -> None:
    with pytest.raises(ValueError, match="a bad chunk"):
        await chunks_after_the_first(api, session, Reader(), b"one\n", b"bad\n")


async def test_writes_do_not_wait_for_reads(api: ScriptedApi, clock: FakeClock) -> None:
    """Even when every connection for reading is held by a stream."""
    api.script("/api/v1/pods", *(held(page(), asyncio.Event()) for _ in range(40)))
    api.script("/api/v1/x", body(b"{}"))
    async with open_session(Access(host=api.url), clock) as session:
        reads = [asyncio.create_task(session.reads.call("GET", "/api/v1/pods")) for _ in range(40)]
        assert await session.writes.call("POST", "/api/v1/x", body={}) == b"{}"
        for read in reads:
            read.cancel()
        await asyncio.gather(*reads, return_exceptions=True)


async def test_closing_ends_what_is_in_flight(api: ScriptedApi, clock: FakeClock) -> None:
    async with open_session(Access(host=api.url), clock) as session:
        call = asyncio.create_task(session.reads.call("GET", "/api/v1/x"))
        await until(lambda: api.requests)
    with pytest.raises(Unreachable):
        await call
    with pytest.raises(Unreachable, match="closed"):
        await session.reads.call("GET", "/api/v1/x")


async def test_a_call_needs_no_thread(api: ScriptedApi, session: Session) -> None:
    """A burst of writes would pay for each; the client's own session goes to one twice."""
    api.script("/api/v1/x", body(b"{}"))
    threads = ThreadPoolExecutor(thread_name_prefix="none-of-ours")
    asyncio.get_running_loop().set_default_executor(threads)
    await session.writes.call("POST", "/api/v1/x", body={})
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("none-of-ours")]


@pytest.mark.parametrize(("left_out", "sees"), [("", ["/api/v1/x"]), ("away.invalid", [])])
async def test_a_proxy_of_the_surroundings_is_gone_through_unless_the_server_is_left_out(
    api: ScriptedApi, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, left_out: str, sees: list[str]
) -> None:
    monkeypatch.setenv("http_proxy", api.url)
    monkeypatch.setenv("no_proxy", left_out)
    api.script("/api/v1/x", body(b"{}"))
    async with open_session(Access(host="http://away.invalid"), clock) as session:
        with suppress(Unreachable):
            await session.reads.call("GET", "/api/v1/x")
    assert [seen.path for seen in api.requests] == sees


ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
MISSING = b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}"
LONG = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b" " * 50_000
LAST = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n" + ANSWER
NO_HTTP = b"SSH-2.0-OpenSSH_9.2\r\n\r\n"


@dataclass
class Peer:
    """A server that gives the next answer to each request; an empty one closes the connection. Counts connections."""

    answers: list[bytes]
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                answer = self.answers.pop(0)
                if not answer:
                    break
                writer.write(answer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def speaking(*answers: bytes, prefix: str = "") -> AsyncIterator[tuple[Peer, Connection]]:
    """A peer with these answers, and a connection to it."""
    peer = Peer([*answers])
    async with await asyncio.start_server(peer.serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        async with open_session(Access(host=f"http://{host}:{port}{prefix}"), FakeClock()) as session:
            yield peer, session.writes


async def test_one_connection_serves_calls_one_after_the_other_whatever_their_answers() -> None:
    async with speaking(ANSWER, MISSING, INTERIM, ANSWER) as (peer, connection):
        await connection.call("PATCH", "/a", body={"a": 1})
        with pytest.raises(NotFound):
            await connection.call("DELETE", "/b")
        assert await connection.call("GET", "/c") == b"{}"
        await connection.call("GET", "/d")
    assert [each.split()[:2] for each in peer.requests] == [
        [b"PATCH", b"/a"],
        [b'{"a":1}DELETE', b"/b"],
        [b"GET", b"/c"],
        [b"GET", b"/d"],
    ]
    assert peer.connections == 1


@pytest.mark.parametrize("first", [LONG, LAST], ids=["a body that is not read to its end", "the server says so"])
async def test_a_connection_is_not_used_again_where(first: bytes) -> None:
    async with speaking(first, ANSWER) as (peer, connection):
        with pytest.raises(TooLarge) if first is LONG else nullcontext():
            await connection.call("GET", "/a", largest=1000)
        await connection.call("GET", "/b")
    assert peer.connections == 2


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_what_may_be_repeated_is_repeated_once_when_the_server_has_closed_the_connection(method: str) -> None:
    async with speaking(b"", ANSWER, b"", b"") as (peer, connection):
        assert await connection.call(method, "/a") == b"{}"
        with pytest.raises(Unreachable):
            await connection.call(method, "/a")
    assert len(peer.requests) == 4


@pytest.mark.parametrize("method", ["PATCH", "POST"])
async def test_what_may_have_happened_is_not_repeated(method: str) -> None:
    async with speaking(b"") as (peer, connection):
        with pytest.raises(Unreachable):
            await connection.call(method, "/a", body={})
    assert len(peer.requests) == 1


async def test_what_is_no_http_is_unreachable() -> None:
    async with speaking(NO_HTTP) as (_, connection):
        with pytest.raises(Unreachable, match=r"PATCH /a: .*"):
            await connection.call("PATCH", "/a", body={})


async def test_a_server_below_a_path_is_reached_there() -> None:
    async with speaking(ANSWER, prefix="/clusters/one/") as (peer, connection):
        await connection.call("GET", "/api/v1/x", query={"limit": "5"})
    assert peer.requests[0].startswith(b"GET /clusters/one/api/v1/x?limit=5 HTTP/1.1\r\nHost: 127.0.0.1:")


async def test_a_redirect_is_followed(api: ScriptedApi) -> None:
    moved = body("", 307, headers={"Location": "/there"})
    api.script("/here", moved, moved)
    api.script("/there", body("{}"))
    async with open_session(Access(host=api.url), FakeClock()) as session:
        assert await session.writes.call("PATCH", "/here", body={"a": 1}) == b"{}"
    assert api.requests[-1].body == {"a": 1}
