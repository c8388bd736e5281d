"""Accepts connections within limits, and closes those that make no progress.

The framework's server accepts every connection and waits without limit for a handshake, for the head of a request and for
the client to read its answer. Here each of these ends after server.requestTimeout, and `connection_slots` decides which
connection is closed. `middleware` limits the time of bodies and decisions, where an error can still be answered.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, cast

from aiohttp import HttpVersion11, StreamReader, hdrs, web
from aiohttp.helpers import rfc822_formatted_time

from extender.model.units import Address
from extender.server.failures import Failure
from extender.server.transport.connection_slots import ConnectionSlot, ConnectionSlots, Stage, peer_of
from extender.server.transport.sockets import listening_sockets
from extender.server.transport.turns import Turns
from extender.telemetry.logs import RepeatedWarnings

Job = Callable[[], Awaitable[None]]

_LOG = logging.getLogger(__name__)
_AT_ONCE: Final = 8  # connections that are accepted in one iteration of the event loop
_HANDSHAKES: Final = 2  # that begin in one iteration; each takes 1 to 2 ms
_SWEEP_SECONDS: Final = 0.25
_EXHAUSTED_SECONDS: Final = 0.1  # where the process has no file descriptors left
_CLOSING_SECONDS: Final = 2.0  # for the other side to answer the end of a TLS session
_LONGEST_PROBLEM: Final = 100
_SHORT_ANSWER: Final = 2**14  # bytes; 500 node names
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nDate: %s\r\n\r\n%s"
_HEAD_PIECE: Final = 2**10  # bytes that are parsed at once while a head is not complete; most are shorter
_BODY_PIECE: Final = 2**14  # after that


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """At most `most` connections, and `per_peer` of one peer; `seconds` for a handshake, a head, and reading an answer.

    `waiting_bytes` is the total size of unread answers.
    """

    most: int
    per_peer: int
    seconds: float
    waiting_bytes: int


class Answer:
    """JSON with status 200, written with its head by one call where the connection stays open and nothing waits before it."""

    __slots__ = ("body",)

    keep_alive = True  # read by the framework

    def __init__(self, body: bytes) -> None:
        self.body = body

    def response(self) -> web.Response:
        """The same as a response of the framework."""
        return web.Response(body=self.body, content_type="application/json")

    def encoded(self) -> bytes:
        """Head and body."""
        return _HEAD % (len(self.body), rfc822_formatted_time().encode(), self.body)


DirectHandler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse | Answer]]


def dispatching(direct: Mapping[str, DirectHandler], routed: DirectHandler) -> DirectHandler:
    """What answers a request: for a POST the direct handler of its path, else the application by its routes.

    A request with an expectation is left to the application, which has to answer that first.
    """

    def answer(request: web.Request) -> Awaitable[web.StreamResponse | Answer]:
        is_direct = request.method == hdrs.METH_POST and hdrs.EXPECT not in request.headers
        return ((is_direct and direct.get(request.raw_path)) or routed)(request)

    return answer


class Connection(web.RequestHandler):
    """One connection of the framework, which reports its stage to its slot."""

    __slots__ = ("_connections", "_is_rejected", "_unread", "slot")

    def __init__(self, server: web.Server, connections: "Connections", slot: ConnectionSlot, **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._connections = connections
        self.slot = slot
        self._is_rejected = False
        self._unread: StreamReader | None = None

    def enter(self, stage: Stage) -> None:
        """The connection enters another stage. Called several times for each request."""
        self.slot.stage, self.slot.since = stage, self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The head of a request is expected from now on."""
        super().connection_made(transport)
        stream = cast(asyncio.WriteTransport, transport)
        self.slot.close, self.slot.waiting_bytes = stream.abort, stream.get_write_buffer_size
        self.enter(Stage.SILENT)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Frees its slot."""
        self._connections.slots.release(self.slot)
        super().connection_lost(exc)
        if self._unread is not None:
            self._unread.feed_eof()  # else the task would wait for the rest of the body, which cannot arrive

    def data_received(self, data: bytes) -> None:
        """Parses what has arrived. The first byte after an answer begins the head of the next request.

        The parser gets the data in pieces, so that it can stop at the head of a request whose body is in chunks. A chunk
        costs 3 µs, and one read of a socket returns up to 256 KiB. The bytes of a body with a length cost almost nothing.
        """
        slot = self.slot
        if slot.stage is Stage.IDLE:
            self.enter(Stage.SILENT)
        start, may_be_whole = 0, slot.stage is Stage.SILENT and _HEAD_PIECE < len(data) <= _BODY_PIECE
        while len(data) - start > _HEAD_PIECE:
            end = start + (_piece(data[start : start + _HEAD_PIECE]) if slot.stage is Stage.SILENT else _BODY_PIECE)
            self._parse(data[start:end])
            start = end
        if start < len(data) or not may_be_whole:  # an empty piece lets the parser go on with what it held back
            self._parse(data[start:])

    def _parse(self, data: bytes) -> None:
        """Feeds the parser, unless the connection is closed, or will be because its request is in chunks."""
        if self._is_rejected or self.transport is None:
            return
        super().data_received(data)
        if not self._messages:
            return
        if self.slot.stage is Stage.SILENT:
            # A complete head is no longer silent: its handler has yet to begin, and would act for a connection that is closed.
            self.enter(Stage.READING)
        self._is_rejected = getattr(self._messages[-1][0], "chunked", False)

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 (the framework's signature)
        """Called for each piece of a body that is read. Unless reading is paused, the parser holds nothing back."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def pause_writing(self) -> None:
        """The client does not read its answer as fast as it is written."""
        super().pause_writing()
        self.slot.blocked = self._loop.time()
        self._connections.bound_answers()

    def resume_writing(self) -> None:
        """The client has read most of its answer."""
        super().resume_writing()
        self.slot.blocked = None

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse | Answer, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Writes the answer. After it the connection is idle, or is closed where its request is in chunks."""
        try:
            if isinstance(resp, Answer):
                if self._write_at_once(request, resp):
                    return cast(web.StreamResponse, resp), False
                resp = resp.response()
            if self._is_rejected:
                resp.force_close()  # what follows is not parsed
            return await super().finish_response(request, resp, start_time)
        finally:
            self.enter(Stage.IDLE)
            if not request.content.is_eof():
                self._unread = request.content

    def _write_at_once(self, request: web.BaseRequest, answer: Answer) -> bool:
        """Writes a short answer, unless the framework must: it closes connections, and waits for clients that do not read."""
        transport, slot = self.transport, self.slot
        if (
            transport is None
            or transport.is_closing()
            or slot.blocked is not None
            or self._is_rejected
            or self._upgraded
            or len(answer.body) > _SHORT_ANSWER
            or request.version != HttpVersion11
            or not request.keep_alive
        ):
            return False
        transport.write(answer.encoded())
        return True

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answers input that is not HTTP with a JSON error, without the bytes of the client, and logs it as other rejections."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        problem = (message or "").partition("\n")[0][:_LONGEST_PROBLEM].rstrip(": ") or type(exc).__name__
        self._connections.warnings.warn(("no HTTP", type(exc).__name__), problem=problem, status=status)
        response = web.Response(
            status=status, body=Failure(status, "no_http", problem).body(), content_type="application/json"
        )
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Logs the framework's errors, which any client can cause: each kind once, then counted."""
        error = kw.get("exc_info")
        self._connections.warnings.warn(("framework", args[0]), problem=str(args[0]), error=type(error).__name__)


def _piece(start: bytes) -> int:
    """How many bytes to parse at once of data that starts so: few, unless it holds a whole head of a body with a length."""
    folded = start.lower()
    return _BODY_PIECE if b"\r\n\r\n" in folded and b"transfer-encoding" not in folded else _HEAD_PIECE


def enter_stage(request: web.Request, stage: Stage) -> None:
    """Reports the stage of a request; does nothing under the framework's own server."""
    if isinstance(request.protocol, Connection):
        request.protocol.enter(stage)


class Connections:
    """Accepts on an address and keeps the connections within the limits."""

    def __init__(self, server: web.Server, limits: ConnectionLimits, options: dict[str, Any]) -> None:
        self.slots = ConnectionSlots(limits.most, limits.per_peer)
        self.warnings = RepeatedWarnings(_LOG, "connection closed")
        self._server = server
        self._limits = limits
        self._options = options
        self._handshakes: set[asyncio.Task[None]] = set()
        self._turns = Turns(_HANDSHAKES)

    @asynccontextmanager
    async def accepting(self, address: Address, tls: ssl.SSLContext | None) -> AsyncIterator[tuple[str, int]]:
        """Accepts until the block is left; yields the host and the port. Raises OSError when the address is not available."""
        sockets = await listening_sockets(address)
        loop = asyncio.get_running_loop()
        sweep = loop.create_task(_run_repeatedly(self._sweep))
        for each in sockets:
            loop.add_reader(each, self._accept, each, tls)
        try:
            yield sockets[0].getsockname()[:2]
        finally:
            for each in sockets:
                loop.remove_reader(each)
                each.close()
            ending = [sweep, *self._handshakes]
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    def bound_answers(self) -> None:
        """Closes connections with unread answers beyond the limit."""
        for slot in self.slots.beyond(self._limits.waiting_bytes):
            self._close(slot, "unread answers hold too much memory")

    def _accept(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Accepts a number of waiting connections, then lets other tasks run."""
        loop = asyncio.get_running_loop()
        for _ in range(_AT_ONCE):
            try:
                client, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no file descriptor is left
                self.warnings.warn("accept", problem=f"cannot accept: {error.strerror}")
                loop.remove_reader(listener)
                loop.call_later(_EXHAUSTED_SECONDS, self._resume, listener, tls)
                return
            client.setblocking(False)
            self._admit(client, address[0], tls)

    def _resume(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        if listener.fileno() >= 0:  # else it was closed in the meantime
            asyncio.get_running_loop().add_reader(listener, self._accept, listener, tls)

    def _admit(self, client: socket.socket, address: str, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        slot, closed = self.slots.acquire(peer_of(address), loop.time())
        if closed is not None:
            self._close(closed, "a newer one takes its place")
        if slot is None:
            client.close()
            self.warnings.warn("full", problem="every connection is being answered")
            return
        task = loop.create_task(self._open(client, slot, tls))
        self._handshakes.add(task)
        task.add_done_callback(partial(self._opened, client, slot))
        slot.close = partial(_end, task)

    async def _open(self, client: socket.socket, slot: ConnectionSlot, tls: ssl.SSLContext | None) -> None:
        """Makes it a connection of the framework, with TLS after the handshake and within its time limit.

        The event loop reads from every connection that has data in the same iteration. So a connection gets its TLS only in
        its turn, and takes a turn only when its client has begun the handshake: one that says nothing holds up no other.
        """
        loop = asyncio.get_running_loop()
        if tls:
            await _readable(client)
            await self._turns.take()
        within = (
            {"ssl_handshake_timeout": self._limits.seconds, "ssl_shutdown_timeout": _CLOSING_SECONDS} if tls else {}
        )
        connection = Connection(self._server, self, slot, **self._options)
        await loop.connect_accepted_socket(lambda: connection, client, ssl=tls, **within)

    def _opened(self, client: socket.socket, slot: ConnectionSlot, task: asyncio.Task[None]) -> None:
        """The connection is open, or its handshake has failed, or it was closed before."""
        self._handshakes.discard(task)
        if task.cancelled() or task.exception() is not None:
            self.slots.release(slot)
            client.close()

    async def _sweep(self) -> None:
        """Closes overdue connections."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            for slot in self.slots.overdue(loop.time(), self._limits.seconds):
                self._close(slot, "no request, or no reading of the answer, in time")

    def _close(self, slot: ConnectionSlot, problem: str) -> None:
        self.warnings.warn(problem, problem=problem, peer=slot.peer, connections=len(self.slots))
        self.slots.release(slot)
        slot.close()


def _end(task: asyncio.Task[None]) -> None:
    """Closes a connection that is in its handshake."""
    task.cancel()


async def _readable(client: socket.socket) -> None:
    """Returns when the client has sent something, or has closed. `ConnectionSlots.overdue` limits the time."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(client, _resolve, ready)
    try:
        await ready
    finally:
        loop.remove_reader(client)


def _resolve(ready: asyncio.Future[None]) -> None:
    """Called again until the reader is removed."""
    if not ready.done():
        ready.set_result(None)


async def _run_repeatedly(job: Job) -> None:
    """Runs a job without an end, again after each error: without it the service would accept no connections."""
    while True:
        try:
            await job()
        except Exception:  # noqa: BLE001 - the edge of a job that must not end
            _LOG.exception("watching connections failed, and goes on")
            await asyncio.sleep(_EXHAUSTED_SECONDS)
