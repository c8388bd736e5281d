"""Short calls over connections that stay open: which request goes where, and when a connection is used again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field

import pytest

from extender.kube.credentials import Access
from extender.kube.errors import NotFound, TooLarge, Unreachable
from extender.kube.session import Connection, open_session
from tests.fakes import FakeClock
from tests.kube.scripted import ScriptedApi, body

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
        """One connection."""
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
