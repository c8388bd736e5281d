"""The session of a service whose API server is in this process: its requests, its faults and its streams, without HTTP.

It notes how far the service has handled the events of each kind: to that extent it must know the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, Final, cast

import orjson
from aiohttp import ClientResponse, StreamReader, web
from aiohttp.base_protocol import BaseProtocol

from extender.kube.byte_stream import TRANSLATED, ByteStream, StreamSockets, translate, translated
from extender.kube.errors import NO_CONNECTION, Unreachable, error_of
from extender.kube.session import JSON, NO_QUERY, Body, Connection, Query, Session
from extender.simulator.apiserver.api_errors import ApiError
from extender.simulator.apiserver.fault_points import Call, ConnectionCut, StreamEnd
from extender.simulator.apiserver.kinds import ServedKind, Target, parse_path
from extender.simulator.apiserver.queries import ServedWatch
from extender.simulator.apiserver.server import ApiServer

_LIMIT: Final = 30.0
_READ_AHEAD: Final = 2**17
_HISTORY: Final = 10**8  # more versions than one history has
_INITIAL_END: Final = b"initial-events-end"


class Link:
    """The way to the API server. ``handled``: by kind, the position in its table up to which its events are handled."""

    def __init__(self, api: ApiServer) -> None:
        self.api = api
        self.handled: dict[ServedKind, int] = {}
        self._streams: set[_Stream] = set()
        self._drops = 0
        self._is_down = False

    async def restart(self, down: float, *, new_history: bool) -> None:
        """As `ApiServer.restart`: drops every connection, refuses others for a while, and may begin a new history."""
        self._is_down = True
        self._drops += 1
        for stream in list(self._streams):
            stream.drop()
        if new_history:
            # Far below the last history, so that the versions of both never meet.
            self.api.store.reset_versions(self.api.store.version - _HISTORY)
        await asyncio.sleep(down)
        self._is_down = False

    def check(self) -> None:
        """Raises Unreachable while the server is down."""
        if self._is_down:
            raise Unreachable("connection refused", reason=NO_CONNECTION)

    async def request(self, method: str, path: str, query: Query, body: Body | None, content_type: str) -> web.Response:
        """The answer. Raises OSError where the connection breaks, also after the request was carried out."""
        self.check()
        drops, transport = self._drops, _Transport()
        request = SimpleNamespace(
            method=method, path=path, query=query, headers={}, content_type=content_type, transport=transport
        )
        request.read = _reading(b"" if body is None else orjson.dumps(body))
        answer = await self.api.answer(cast("web.BaseRequest", request))
        if transport.is_aborted or drops != self._drops:
            raise ConnectionResetError("the connection was cut")
        return cast("web.Response", answer)

    async def open(self, call: Call, target: Target) -> ServedWatch:
        """A watch that begins. Raises KubeError, or OSError where the connection breaks."""
        self.check()
        try:
            await self.api.faults.before_answer(call)
            return self.api.open_watch(target, call)
        except ApiError as error:
            raise error_of(error.code, {}, orjson.dumps(error.status)) from error
        except ConnectionCut:
            raise ConnectionResetError("the connection was cut") from None

    async def receive(self, call: Call, watch: ServedWatch, stream: _Stream) -> None:
        """Passes the lines of a watch to its stream until one of them ends."""
        is_known = not watch.wants_initial

        async def write(data: bytes) -> None:
            nonlocal is_known
            is_known = is_known or _INITIAL_END in data
            position = watch.position if is_known else stream.received
            for begin in range(0, len(data), _READ_AHEAD):
                await stream.has_room.wait()
                is_last = begin + _READ_AHEAD >= len(data)
                stream.receive(data[begin : begin + _READ_AHEAD], position if is_last else stream.received)

        self._streams.add(stream)
        try:
            await self.api.send_watch(call, watch, write)
            stream.end(b"")
        except StreamEnd as end:
            stream.end(end.last)
        except ConnectionCut as cut:
            stream.receive(cut.partial, stream.received)
            stream.drop()
        finally:
            self._streams.discard(stream)


class _Transport(asyncio.Transport):
    """Stands for a connection, and notes that it is dropped."""

    is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True

    def pause_reading(self) -> None:
        """Whoever writes here does not wait."""

    def resume_reading(self) -> None:
        """The same."""


class _Protocol(BaseProtocol):
    """Notes that the reader has enough for now."""

    def __init__(self, loop: asyncio.AbstractEventLoop, has_room: asyncio.Event) -> None:
        super().__init__(loop)
        self._has_room = has_room

    def pause_reading(self) -> None:
        self._reading_paused = True
        self._has_room.clear()

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: ARG002, FBT001, FBT002 (as the base)
        self._reading_paused = False
        self._has_room.set()


def _reading(body: bytes) -> Any:
    async def read() -> bytes:
        return body

    return read


class _Stream(ByteStream):
    """The real stream on a body that this process writes. ``fed``: the position in the table of what was written."""

    def __init__(self, link: Link, kind: ServedKind, position: int) -> None:
        loop, self.has_room = asyncio.get_running_loop(), asyncio.Event()
        self.has_room.set()
        protocol = _Protocol(loop, self.has_room)
        protocol.connection_made(_Transport())
        self._body = StreamReader(protocol, _READ_AHEAD, loop=loop)
        response = SimpleNamespace(content=self._body, connection=None, close=self.drop)
        super().__init__(cast("ClientResponse", response), f"GET {kind.plural}")
        self._link, self._kind = link, kind
        self.received = self._read_to = position

    def receive(self, data: bytes, position: int) -> None:
        """Bytes arrive."""
        if data and not self._body.exception():
            self._body.feed_data(data)
            self.received = position

    def end(self, last: bytes) -> None:
        """The last bytes arrive, and the end."""
        self.receive(last, self.received)
        self._body.feed_eof()

    def drop(self) -> None:
        """The connection breaks."""
        self.has_room.set()
        self._body.set_exception(ConnectionResetError("the connection was cut"))

    async def read(self, patience: float) -> bytes | None:
        """As the base; whoever reads on has handled what was read before."""
        self._link.handled[self._kind] = self._read_to
        chunk = await super().read(patience)
        self._read_to = self.received
        return chunk


class InMemoryConnection(Connection):
    """Calls and streams over a link."""

    def __init__(self, link: Link) -> None:
        self.sockets = StreamSockets()
        self._link = link

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Query = NO_QUERY,
        body: Body | None = None,
        content_type: str = JSON,
        limit: float | None = None,
        largest: int = 2**25,
    ) -> bytes:
        """As the base."""
        try:
            async with asyncio.timeout(limit or _LIMIT):
                answer = await self._link.request(method, path, query, body, content_type)
        except TRANSLATED as error:
            raise translate(f"{method} {path}", error) from error
        content = cast("bytes", answer.body or b"")
        assert len(content) <= largest
        if not answer.status // 100 == 2:
            raise error_of(answer.status, cast("Mapping[str, str]", answer.headers), content)
        return content

    @asynccontextmanager
    async def stream(self, path: str, query: Query) -> AsyncIterator[ByteStream]:
        """As the base."""
        target = parse_path(path)
        assert target is not None
        call, link = Call("GET", path, query, target), self._link
        with translated(f"GET {path}"):
            async with asyncio.timeout(_LIMIT):
                watch = await link.open(call, target)
        # What a watch from a version does not send is known; a streaming list replaces all at its end.
        known = link.handled.get(target.kind, 0) if watch.wants_initial or watch.is_expired else watch.position
        stream = _Stream(link, target.kind, known)
        feeding = asyncio.create_task(link.receive(call, watch, stream))
        try:
            yield stream
        finally:
            feeding.cancel()
            stream.close()


class InMemorySession(Session):
    """The session of a service over a link."""

    def __init__(self, link: Link) -> None:
        self.host = "in memory"
        self.reads, self.writes, self.removals = (
            InMemoryConnection(link),
            InMemoryConnection(link),
            InMemoryConnection(link),
        )
