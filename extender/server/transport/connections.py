"""Accepts connections within limits, and stands between their sockets and the framework, which alone parses HTTP.

1. The framework's own server accepts every connection. It waits without limit for a handshake, for the head of a request, and for the
   client to read its answer. Here each of these ends after server.requestTimeout, and `connection_slots` chooses the connection to close.
2. `middleware` limits the time of bodies and decisions, because there an error can still be answered.
3. `ServerConnection` passes on all bytes unchanged, but after a head it waits until the framework has called the handler, and after a
   body until the request is answered. So the framework sees one request at a time, and no byte of a body in chunks. The only thing that
   is looked for in the bytes is the empty line that ends a head; the length of the body is known from the framework's request.
"""

import asyncio
import logging
import select
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache, partial
from time import monotonic
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

from aiohttp import HttpVersion11, hdrs, web

from extender.model.units import Address
from extender.server.failures import Failure
from extender.server.transport.connection_slots import ConnectionSlot, ConnectionSlots, Stage, peer_of
from extender.server.transport.turns import Turns
from extender.settings.connections import Server
from extender.telemetry.logs import RepeatedWarnings

_LOG = logging.getLogger(__name__)
_BACKLOG: Final = 4096  # as far as net.core.somaxconn allows; a scheduler may open thousands of connections at once
_AT_ONCE: Final = 8  # connections that are accepted in one iteration of the event loop
_HANDSHAKES: Final = 2  # that begin in one iteration; each takes 1 to 2 ms
_SWEEP_SECONDS: Final = 0.25
_EXHAUSTED_SECONDS: Final = 0.1  # where the process has no file descriptors left
_LEFT: Final[int] = getattr(select, "POLLRDHUP", 0)  # Linux only
_REPLACED: Final = "a newer connection takes its place"
_CLOSING_SECONDS: Final = 2.0  # for the other side to answer the end of a TLS session
LINGERING_SECONDS: Final = 2.0  # so that a client that still sends can read the error
_LONGEST_PROBLEM: Final = 100
_SHORT_ANSWER: Final = 2**14  # bytes; 500 node names
# Bytes. Read, decoded, decided, encoded and encrypted in one step, 7 MiB took 40 to 66 ms of processor. A longer answer is written in a
# step of its own. Not in pieces: with pieces the allocator kept twice the memory (158 MiB after six rounds of 60 answers, 78 without).
_LONG_ANSWER: Final = 2**18
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nDate: %s\r\n\r\n%s"
_NO_HTTP: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
)
_EMPTY_LINE: Final = b"\r\n\r\n"
_LONGEST_HEAD: Final = 2**16  # bytes; the framework takes 128 lines of 8 KiB
_WITH_BODY: Final = 2**17  # bytes of a head and a body that are passed on together; parsed in 3 ms if they are not HTTP
_MOST_HELD: Final = 2**16  # bytes that arrive after a request, before it is answered
_READ_AHEAD: Final = 2**16  # bytes of a body that the framework holds; twice that before it stops reading
_WAITING_ANSWERS: Final = 4  # of the largest size may be unread
_POLL_SECONDS: Final = 0.01
_BEGINNING: Final = 3  # iterations in which the framework calls the handler of a complete request


class JSONAnswer:
    """JSON with status 200. Head and body are written by one call if the connection stays open and no bytes wait before them."""

    __slots__ = ("body",)

    def __init__(self, body: bytes) -> None:
        self.body = body

    def response(self) -> web.Response:
        """The answer as a response of the framework."""
        return web.Response(body=self.body, content_type="application/json")

    def encoded(self) -> bytes:
        """Head and body."""
        return _HEAD % (len(self.body), _date(int(monotonic())), self.body)


DirectHandler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse | JSONAnswer]]
"""Answers every request, errors included. It raises nothing but a cancellation."""


@lru_cache(maxsize=1)
def _date(_second: int) -> bytes:
    """The time of day, made once in each second."""
    return formatdate(usegmt=True).encode()


class _Written(web.StreamResponse):
    """What the framework gets in place of an answer that is written already."""

    keep_alive = True

    async def prepare(self, _request: web.BaseRequest) -> None:
        """The head is written."""

    async def write_eof(self, _data: bytes = b"") -> None:
        """The body is written."""


class FrameworkTransport:
    """The transport that the framework's protocol sees: the transport of the socket, but errors are answered in one form."""

    def __init__(self, connection: "ServerConnection", transport: asyncio.Transport) -> None:
        self.connection = connection
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        """Everything but writing. Looked up once, because a request calls five methods."""
        method = getattr(self._transport, name)
        setattr(self, name, method)
        return method

    def write(self, data: bytes) -> None:
        """Writes a part of an answer. While no request is handled it is the framework's answer to bytes that are not HTTP."""
        if self.connection.request is not None:
            self._transport.write(data)
        elif self.connection.takes_more:
            self.connection.takes_more = False
            text = data.partition(_EMPTY_LINE)[2].decode(errors="replace")  # later lines repeat the bytes of the client
            problem = text.partition("\n")[0][:_LONGEST_PROBLEM].rstrip(": ")
            body = cast(bytes, Failure(400, "no_http", problem or "no HTTP").answer().body)
            self._transport.write(_NO_HTTP % (len(body), body))

    def writelines(self, parts: Iterable[bytes]) -> None:
        """Writes parts of an answer."""
        if self.connection.request is not None:
            self._transport.writelines(parts)
        else:
            self.write(b"".join(parts))


class ServerConnection(ConnectionSlot, asyncio.Protocol):
    """The protocol of one socket.

    The framework calls the handler within `_BEGINNING` iterations after the end of a head. So a connection is closed for another one only
    after these iterations (`Connections.replace`).
    """

    transport: asyncio.Transport

    def __init__(self, connections: "Connections", peer: str, poll: "select.poll | None" = None) -> None:
        super().__init__(peer, monotonic())
        self.handshake: asyncio.Task[None] | None = None
        self.request: web.BaseRequest | None = None
        self.requests = 0  # that have begun
        self.takes_more = True  # bytes of this request, and further requests
        self._connections = connections
        self._poll = poll
        self._head = 0  # bytes of a head that is not complete
        self._tail = b""  # the last bytes of a head that is not complete
        self._waits = False  # the head is complete, and the handler is not called yet
        self._body = 0  # bytes of the body that were passed on; once the handler is called, the bytes that are to come
        self._held = b""  # bytes that are not passed on yet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The head of a request is expected from now on."""
        self.handshake = None
        self.transport = cast(asyncio.Transport, transport)
        self.stage, self.since = Stage.SILENT, monotonic()
        self._http = self._connections.server()
        self._http.connection_made(cast(asyncio.Transport, FrameworkTransport(self, self.transport)))

    def connection_lost(self, exc: BaseException | None) -> None:
        """Frees its slot."""
        self._connections.slots.release(self)
        self._poll = None  # the descriptor may soon belong to another socket
        self.takes_more = False
        self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read its answer as fast as it is written."""
        self._http.pause_writing()
        self.blocked = monotonic()
        self._connections.bound_answers()

    def resume_writing(self) -> None:
        """The client has read most of its answer."""
        self._http.resume_writing()
        self.blocked = None

    def data_received(self, data: bytes) -> None:
        """Passes on bytes, or keeps them until the request before them is answered. If there are too many, the client waits."""
        if not self.takes_more:
            return
        if self._held or self._waits or self.stage is Stage.DECIDING:
            self._held += data
            if len(self._held) > _MOST_HELD:
                self.transport.pause_reading()
        elif self.request is None:
            self._pass_head(data)
        else:
            self._pass_body(data)

    def _pass_head(self, data: bytes) -> None:
        """Passes on bytes up to an empty line, which ends the head. What follows waits until the handler is called."""
        if self.stage is Stage.IDLE:
            self.stage, self.since = Stage.SILENT, monotonic()
        end = self._empty_line(data)
        self._head += len(data if self._head else data.lstrip(b"\r\n"))
        if self._head > _LONGEST_HEAD and not end:  # the framework limits single lines only
            self._connections.close(self, "a head of more than 64 KiB")
            return
        self._tail = data[-3:] if self._head and not end else b""
        if end:
            self._waits = True
            # A short body without line ends is passed on with its head: it holds no chunks and no further request.
            if len(data) > _WITH_BODY or data.find(b"\r", end) >= 0:
                data, self._held = data[:end], data[end:]
            self._head, self._body = 0, len(data) - end
        self._http.data_received(data)

    def _empty_line(self, data: bytes) -> int:
        """Where the first empty line ends; 0 without one. Empty lines before a request do not count, and one may be split over two reads."""
        if self._tail and (split := (self._tail + data[:4]).find(_EMPTY_LINE)) >= 0:
            return split + len(_EMPTY_LINE) - len(self._tail)
        begin = 0 if self._head else len(data) - len(data.lstrip(b"\r\n"))
        end = data.find(_EMPTY_LINE, begin)
        return end + len(_EMPTY_LINE) if end >= 0 else 0

    def _pass_body(self, data: bytes) -> None:
        if self._body < len(data):
            data, self._held = data[: self._body], data[self._body :]
        self._body -= len(data)
        if not self._body:  # before the framework sees the last byte: from now on the connection must not be closed
            self.stage, self.since = Stage.DECIDING, monotonic()
        self._http.data_received(data)

    def _release(self) -> None:
        """Passes on the bytes that wait."""
        data, self._held = self._held, b""
        self.data_received(data)
        if not self._held:
            self.transport.resume_reading()

    def begin(self, request: web.BaseRequest) -> None:
        """The handler of a request is called."""
        is_complete = request.content.is_eof()
        self.request, self.requests, self._waits = request, self.requests + 1, False
        self.stage, self.since = Stage.DECIDING if is_complete else Stage.READING, monotonic()
        if hdrs.TRANSFER_ENCODING in request.headers:  # each chunk costs as much as hundreds of bytes: none is read
            self.takes_more, self._held = False, b""
            self.transport.resume_reading()
        elif not is_complete:
            self._body = (request.content_length or 0) - self._body  # the bytes that are to come
            self._release()

    async def answer(self, request: web.BaseRequest, answer: web.StreamResponse | JSONAnswer) -> web.StreamResponse:
        """Writes the answer, and has the connection closed for lack of room, or after a request in chunks."""
        # The place in the limits is taken before the answer is written: after it the client may send its next request at once.
        may_stay = self.takes_more and (self.is_counted or self._connections.has_room(self))
        if isinstance(answer, JSONAnswer):
            # Not where the framework must write it: to close the connection, or to wait for a slow client.
            if (
                may_stay
                and self.blocked is None
                and len(answer.body) <= _SHORT_ANSWER
                and request.version == HttpVersion11
                and request.keep_alive
                and not self.transport.is_closing()
            ):
                self.transport.write(answer.encoded())
                return _WRITTEN if request.content.is_eof() else await self._discard(request, _WRITTEN)
            if len(answer.body) > _LONG_ANSWER:
                await asyncio.sleep(0)
            answer = answer.response()
        if not may_stay:
            answer.force_close()
        with suppress(ConnectionError):  # the client has left; the framework finds out by itself
            await answer.prepare(request)
            await answer.write_eof()
        return answer if request.content.is_eof() else await self._discard(request, answer)

    def end(self) -> None:
        """The request is answered. The bytes that came after it are passed on in the next iteration."""
        self.request = None
        self.stage, self.since = Stage.IDLE, monotonic()
        if not self.is_counted:
            self._connections.slots.rejoin(self)
        if self._held:
            asyncio.get_running_loop().call_soon(self._release)

    async def _discard(self, request: web.BaseRequest, answer: web.StreamResponse) -> web.StreamResponse:
        """Reads the rest of a body that no handler has read, so that a client that still sends can read the answer."""
        with suppress(TimeoutError, ConnectionError, web.RequestPayloadError):  # the framework closes it then
            async with asyncio.timeout(LINGERING_SECONDS):
                while not request.content.is_eof():
                    await request.content.readany()
        return answer

    def is_readable(self) -> bool:
        """Whether the socket has unread bytes, or the end of the connection. One system call: 0.5 µs."""
        return self._poll is not None and bool(self._poll.poll(0))

    def has_unread(self) -> bool:
        """Whether the socket has unread bytes, and its client has not left."""
        return self._poll is not None and any(
            events & select.POLLIN and not events & _LEFT for _, events in self._poll.poll(0)
        )

    def waiting_bytes(self) -> int:
        """The bytes of its answer that the client has not read."""
        return self.transport.get_write_buffer_size()

    def abort(self) -> None:
        """Closes the connection at once, also in its handshake."""
        if self.handshake is None:
            self.transport.abort()
        else:
            self.handshake.cancel()


_WRITTEN: Final = _Written()


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits beside the settings: seconds for a handshake, for a head and for reading an answer; bytes of the largest answer."""

    settings: Server
    seconds: float
    most_bytes: int


def answering(
    routed: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], direct: Mapping[str, DirectHandler]
) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    """A handler for all requests. A POST to a path of ``direct`` bypasses the framework's routes; ``routed`` answers all others."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        connection = connection_of(request)
        if connection is None:  # the client has left: nothing is carried out for it
            return web.Response(status=408)
        handler = direct.get(request.raw_path) if request.method == hdrs.METH_POST else None
        connection.begin(request)
        try:
            answer: web.StreamResponse | JSONAnswer
            if handler is None or hdrs.EXPECT in request.headers:  # an expectation is answered by the framework first
                answer = await routed(request)
            else:
                answer = await handler(cast(web.Request, request))
            return await connection.answer(request, answer)
        except web.HTTPException as error:
            return await connection.answer(request, error)
        finally:
            connection.end()

    return handle


def connection_of(request: web.BaseRequest) -> ServerConnection | None:
    """The connection of a request. None where its client has left, and under the framework's own server."""
    transport: object = request.transport
    return transport.connection if isinstance(transport, FrameworkTransport) else None


@asynccontextmanager
async def listening_within(
    app: web.Application,
    address: Address,
    tls: ssl.SSLContext | None,
    limits: ConnectionLimits,
    in_flight: Callable[[], int],
    direct: Mapping[str, DirectHandler] = MappingProxyType({}),
) -> AsyncIterator[str]:
    """Serves on an address until the block is left; yields the base URL, with the real port where 0 was asked for.

    Raises OSError when the address is not available. On leaving, the requests that ``in_flight`` counts are finished first. ``direct``: by
    path the handler of POST requests that bypass the framework's routes, because routing takes a tenth of the time of a request.
    """
    async with framework_server(app, limits, direct) as server:
        async with Connections(server, limits).accepting(address, tls) as (host, port):
            scheme = "https" if tls else "http"
            yield f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        # No new connections from here on. The framework waits for handlers too, but meanwhile it drops the rest of their bodies.
        while in_flight():  # noqa: ASYNC110 - one poll per shutdown is cheaper than a signal per request
            await asyncio.sleep(_POLL_SECONDS)


@asynccontextmanager
async def framework_server(
    app: web.Application, limits: ConnectionLimits, direct: Mapping[str, DirectHandler]
) -> AsyncIterator[web.Server]:
    """The framework's factory of protocols for an application, until the block is left."""
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=_FrameworkLog(_LOG),
        keepalive_timeout=limits.settings.idle_timeout,
        lingering_time=0,  # `ServerConnection` reads the rest of bodies
        read_bufsize=_READ_AHEAD,
        auto_decompress=False,  # 500 KB may inflate to 500 MB, on any path and before a handler runs
    )
    await runner.setup()
    assert runner.server is not None  # noqa: S101 (for the type checker: setup makes it)
    runner.server.request_handler = answering(runner.server.request_handler, direct)
    try:
        yield runner.server
    finally:
        await runner.cleanup()


class _FrameworkLog(logging.LoggerAdapter[logging.Logger]):
    """Logs the framework's errors, which any client can cause: each kind once, then counted."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logger)
        self._warnings = RepeatedWarnings(logger, "connection closed")

    def log(self, _level: int, msg: object, *_args: object, exc_info: Any = None, **_: Any) -> None:  # type: ignore[override]
        """One error."""
        lines = str(exc_info or msg).splitlines()[:2]  # later lines repeat the bytes of the client
        problem = " ".join(line.strip() for line in lines)[:_LONGEST_PROBLEM].rstrip(": ")
        self._warnings.warn((msg, type(exc_info)), problem=problem, error=type(exc_info).__name__)


class Connections:
    """Accepts on an address and keeps the connections within the limits. ``server`` makes the framework's protocols."""

    def __init__(self, server: web.Server, limits: ConnectionLimits) -> None:
        self.slots = ConnectionSlots(limits.settings.max_connections, limits.settings.max_connections_per_peer)
        self.server = server
        self._warnings = RepeatedWarnings(_LOG, "connection closed")
        self._limits = limits
        self._handshakes: set[asyncio.Task[None]] = set()
        self._turns = Turns(_HANDSHAKES)

    @asynccontextmanager
    async def accepting(self, address: Address, tls: ssl.SSLContext | None) -> AsyncIterator[tuple[str, int]]:
        """Accepts until the block is left; yields the host and the port. Raises OSError when the address is not available."""
        sockets = await _listening_sockets(address)
        loop = asyncio.get_running_loop()
        sweep = loop.create_task(self._sweep())
        for listener in sockets:
            loop.add_reader(listener, self._accept, listener, tls)
        try:
            yield sockets[0].getsockname()[:2]
        finally:
            for listener in sockets:
                loop.remove_reader(listener)
                listener.close()
            ending = [sweep, *self._handshakes]
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    def bound_answers(self) -> None:
        """Closes connections with unread answers beyond the limit."""
        for slot in self.slots.beyond(_WAITING_ANSWERS * self._limits.most_bytes):
            self.close(slot, "unread answers hold too much memory")

    def has_room(self, connection: ServerConnection) -> bool:
        """Whether a connection may stay open that is about to be answered. It counts towards the limits again then, so it needs a place.

        Only a connection that has been idle since before this request came is closed for it: a scheduler that was answered later may
        have begun its next call already. So after thousands of bindings at once some connections are kept, and the others end with
        their answer.
        """
        peer = connection.peer
        if self.slots.has_room(peer):
            return True
        other = self.slots.first_to_close(peer, monotonic(), since=connection.since)
        if other is not None:
            self.replace(other)
        return other is not None

    def replace(self, slot: ConnectionSlot) -> None:
        """Frees the place of a connection, and closes it unless the framework begins a request of it."""
        connection = cast(ServerConnection, slot)
        self.slots.set_apart(connection)
        if connection.handshake is not None:
            self.close(connection, _REPLACED)
        else:
            connection.transport.pause_reading()
            self._close_unless_begun(connection, connection.requests, _BEGINNING)

    def _close_unless_begun(self, connection: ServerConnection, requests: int, iterations: int) -> None:
        is_complete = connection.stage is Stage.DECIDING
        if is_complete or connection.requests > requests:
            connection.transport.resume_reading()
            if not is_complete:
                self.slots.rejoin(connection)
        elif iterations:
            asyncio.get_running_loop().call_soon(self._close_unless_begun, connection, requests, iterations - 1)
        else:
            self.close(connection, _REPLACED)

    def _accept(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Accepts a number of waiting connections, then lets other tasks run."""
        loop = asyncio.get_running_loop()
        for _ in range(_AT_ONCE):
            try:
                client, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no file descriptor is left
                self._warnings.warn("accept", problem=f"cannot accept: {error.strerror}")
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
        poll = select.poll()
        poll.register(client.fileno(), select.POLLIN | _LEFT)
        connection = ServerConnection(self, peer_of(address), poll)
        closed = self.slots.acquire(connection, monotonic())
        if closed is not None:
            self.replace(closed)
        connection.handshake = task = loop.create_task(self._open(client, connection, tls))
        self._handshakes.add(task)
        task.add_done_callback(partial(self._opened, client, connection))

    async def _open(self, client: socket.socket, connection: ServerConnection, tls: ssl.SSLContext | None) -> None:
        """Makes the socket a connection of the framework; with TLS after a handshake within the time limit.

        The event loop reads every connection with data in one iteration, so thousands of handshakes would block it. Therefore a
        handshake waits for its turn. It takes a turn only after its client has begun, so that a silent client delays no other.
        """
        loop = asyncio.get_running_loop()
        if tls:
            await _readable(client)
            await self._turns.take()
        within = (
            {"ssl_handshake_timeout": self._limits.seconds, "ssl_shutdown_timeout": _CLOSING_SECONDS} if tls else {}
        )
        await loop.connect_accepted_socket(lambda: connection, client, ssl=tls, **within)

    def _opened(self, client: socket.socket, connection: ServerConnection, task: asyncio.Task[None]) -> None:
        """The connection is open, or its handshake has failed, or it was closed before."""
        self._handshakes.discard(task)
        if task.cancelled() or task.exception() is not None:
            self.slots.release(connection)
            client.close()

    async def _sweep(self) -> None:
        """Closes overdue connections. It goes on after an error, because without it the service would soon accept no connections."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            try:
                for slot in self.slots.overdue(monotonic(), self._limits.seconds):
                    self.close(slot, "no request, or no reading of the answer, in time")
            except Exception:  # noqa: BLE001 - the edge of a task that must not end
                _LOG.exception("watching connections failed, and goes on")

    def close(self, slot: ConnectionSlot, problem: str) -> None:
        """Closes a connection at once."""
        self._warnings.warn(problem, problem=problem, peer=slot.peer, connections=len(self.slots))
        self.slots.release(slot)
        cast(ServerConnection, slot).abort()


async def _readable(client: socket.socket) -> None:
    """Returns when the client has sent something, or has closed. `ConnectionSlots.overdue` limits the time."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(client, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(client)


async def _listening_sockets(address: Address) -> list[socket.socket]:
    """Listening sockets, one for each address of the host. Raises OSError; then none of them stays open."""
    loop = asyncio.get_running_loop()
    places = await loop.getaddrinfo(
        address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    with ExitStack() as opened:
        listeners = [
            opened.enter_context(socket.create_server(place[:2], family=family, backlog=_BACKLOG))
            for family, _, _, _, place in dict.fromkeys(places)
        ]
        opened.pop_all()
    for listener in listeners:
        listener.setblocking(False)
    return listeners
