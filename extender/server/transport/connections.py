"""Accepts connections within limits, passes their requests to the framework one by one, and closes connections without progress.

1. The framework's own server accepts every connection and parses everything that arrives. It waits without limit for a handshake,
   for the head of a request, and for the client to read its answer. Here each of these ends after server.requestTimeout, and
   `connection_slots` chooses the connection to close.
2. `middleware` limits the time of bodies and decisions, because there an error can still be answered.
3. `ServerConnection` derives from the framework's connection and overrides public methods only. The framework sees a request after
   the request before it is answered, and only the head of a request in chunks.
"""

import asyncio
import logging
import select
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
from extender.server.transport.turns import Turns
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
_READ_AHEAD: Final = 2**16  # bytes that a connection holds of what no handler reads; twice that before it stops reading
_LONGEST_PROBLEM: Final = 100
_SHORT_ANSWER: Final = 2**14  # bytes; 500 node names
# Bytes. Read, decoded, decided, encoded and encrypted in one step, 7 MiB took 40 to 66 ms of processor. A longer answer is written in a
# step of its own. Not in pieces: with pieces the allocator kept twice the memory (158 MiB after six rounds of 60 answers, 78 without).
_LONG_ANSWER: Final = 2**18
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nDate: %s\r\n\r\n%s"
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"\r\ncontent-length:"
_CODING: Final = b"\r\ntransfer-encoding:"
_MOST_DIGITS: Final = 18
_LONGEST_HEAD: Final = 2**16  # bytes; the framework takes 128 lines of 8 KiB
_MOST_HELD: Final = 2**16  # bytes that arrive after a request, before it is answered


class JSONAnswer:
    """JSON with status 200. Head and body are written by one call if the connection stays open and no bytes wait before them."""

    __slots__ = ("body",)
    keep_alive = True  # read by the framework

    def __init__(self, body: bytes) -> None:
        self.body = body

    def response(self) -> web.Response:
        """The answer as a response of the framework."""
        return web.Response(body=self.body, content_type="application/json")

    def encoded(self) -> bytes:
        """Head and body."""
        return _HEAD % (len(self.body), rfc822_formatted_time().encode(), self.body)


DirectHandler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse | JSONAnswer]]
"""Answers every request, errors included. It raises nothing but a cancellation."""


class ServerConnection(web.RequestHandler):
    """A connection of the framework that reports its stage to its slot.

    1. The stage follows from the bytes that arrive, not from the start of a handler. Between the two the connection could be closed
       for a new one, and then the handler would act for a client that has seen a failure.
    2. The framework parses the same bytes by itself. Where it sees another request in them than this class, the connection is closed
       in time: a slot whose request has no handler becomes overdue.
    """

    __slots__ = (
        "_asked",
        "_begun",
        "_connections",
        "_held",
        "_is_answered",
        "_is_last",
        "_is_paused",
        "_left",
        "_time",
        "_unread",
        "slot",
    )

    def __init__(self, server: web.Server, connections: "Connections", slot: ConnectionSlot, **options: Any) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(server, loop=loop, **options)
        self.slot = slot
        self._connections = connections
        self._time = loop.time
        self._asked = 0.0  # when the request that is answered now had come whole
        self._begun = b""  # the first part of a head
        self._left = 0  # bytes of the body that are to come
        self._held = bytearray()  # bytes after the request that is answered now
        self._is_answered = False
        self._is_last = False  # nothing is read after this request
        self._is_paused = False
        self._unread: StreamReader | None = None

    def enter(self, stage: Stage) -> None:
        """The connection enters another stage. Called several times for each request."""
        slot = self.slot
        slot.stage, slot.since = stage, self._time()
        if slot.is_apart and stage is not Stage.DECIDING:
            self._connections.slots.rejoin(slot)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The head of a request is expected from now on."""
        super().connection_made(transport)
        stream = cast(asyncio.WriteTransport, transport)
        self.slot.close, self.slot.waiting_bytes = stream.abort, stream.get_write_buffer_size
        self.enter(Stage.SILENT)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Frees its slot."""
        self._connections.slots.release(self.slot)
        self.slot.is_readable = _never  # its descriptor may soon belong to another socket
        super().connection_lost(exc)
        if self._unread is not None:
            self._unread.feed_eof()  # else the task would wait for the rest of the body, which cannot arrive

    def data_received(self, data: bytes) -> None:
        """Passes on the bytes of one request. The first byte after an answer begins the head of the next request.

        The framework would parse everything at once: hundreds of requests that arrived together, or a body in chunks. One read of a
        socket returns up to 256 KiB, and each chunk costs 3 µs.
        """
        if self._is_last:
            return
        stage = self.slot.stage
        if not data:
            super().data_received(data)  # the framework lets its parser go on with what it held back
        elif stage is Stage.DECIDING:
            self._hold(data)
        elif stage is Stage.READING:
            self._pass_body(data, 0)
        else:
            if stage is Stage.IDLE:
                self.enter(Stage.SILENT)
            self._pass_head(data)

    def _pass_head(self, data: bytes) -> None:
        if not self._begun:
            data = data.lstrip(b"\r\n")  # empty lines, which the framework ignores before a request
        before = len(self._begun)
        self._begun += data
        # The end of a head may be split over two reads, so the search begins a few bytes before the new ones.
        end = self._begun.find(_HEAD_END, max(0, before + 1 - len(_HEAD_END)))
        # 1. Too long. The framework limits single lines only, so a client could send any number of them.
        if end < 0 and len(self._begun) > _LONGEST_HEAD:
            self._is_last = True
            self._connections.warnings.warn("head", problem="a head of more than 64 KiB", peer=self.slot.peer)
            self.slot.close()
        elif end < 0:  # 2. Incomplete: the framework keeps it.
            super().data_received(data)
        else:
            end += len(_HEAD_END)
            head, self._begun, self._is_answered = self._begun[:end].lower(), b"", False
            # 3. Chunks are never parsed, so the end of the body is unknown: the head gets its answer, and the connection is closed.
            if _CODING in head:
                self._is_last = True
                self.enter(Stage.READING)
                super().data_received(data[: end - before])
            else:  # 4. With a length, 0 without one: now it is known where the next request begins.
                self._left = _length(head)
                self._pass_body(data, end - before)

    def _pass_body(self, data: bytes, begin: int) -> None:
        end = begin + self._left
        if len(data) < end:
            self._left = end - len(data)
            if self.slot.stage is not Stage.READING:  # a body that trickles does not begin anew with each piece
                self.enter(Stage.READING)
            super().data_received(data)
            return
        self._left, self._asked = 0, self._time()
        # The stage is set before the framework sees the last byte, because that may start the handler. An error may have been answered
        # before the body was complete: then there is nothing to decide.
        self.enter(Stage.IDLE if self._is_answered else Stage.DECIDING)
        super().data_received(data[:end])
        if end < len(data):
            self.data_received(data[end:])  # held, unless it is answered

    def _hold(self, data: bytes) -> None:
        """Keeps bytes that arrive after a request until it is answered. If there are too many, reading pauses and the client waits."""
        self._held += data
        if len(self._held) > _MOST_HELD and self.transport is not None:
            self.transport.pause_reading()

    def _pass_held(self) -> None:
        """The request is answered: passes on the bytes that arrived after it, as the next request."""
        data, self._held = bytes(self._held), bytearray()
        if self.transport is not None and not self.transport.is_closing():
            if len(data) > _MOST_HELD:
                self.transport.resume_reading()
            self.enter(Stage.IDLE)
            self.data_received(data)

    def pause_reading(self) -> None:
        """The body arrives faster than it is read."""
        self._is_paused = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 (the framework's signature)
        """Called for each piece of a body that is read. Does nothing unless reading is paused."""
        if self._is_paused:
            self._is_paused = False
            super().resume_reading(resume_parser)

    def pause_writing(self) -> None:
        """The client does not read its answer as fast as it is written."""
        super().pause_writing()
        self.slot.blocked = self._time()
        self._connections.bound_answers()

    def resume_writing(self) -> None:
        """The client has read most of its answer."""
        super().resume_writing()
        self.slot.blocked = None

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse | JSONAnswer, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Writes the answer. After it the connection is idle, or is closed: for a request in chunks, or for lack of room."""
        try:
            # The place in the limits is taken before the answer is written: after it the client may send its next request at once.
            may_stay = not self._is_last and self._has_room()
            if isinstance(resp, JSONAnswer):
                if may_stay and self._write_at_once(request, resp):
                    return cast(web.StreamResponse, resp), False
                if len(resp.body) > _LONG_ANSWER:
                    await asyncio.sleep(0)
                resp = resp.response()
            if not may_stay:
                resp.force_close()  # what follows is not parsed, or has no place
            return await super().finish_response(request, resp, start_time)
        finally:
            self._is_answered, self.slot.is_handled = True, False
            if not request.content.is_eof():
                self._unread = request.content
            if self._held:  # in the next iteration: hundreds that came together must not hold up other connections
                asyncio.get_running_loop().call_soon(self._pass_held)
            else:
                self.enter(Stage.READING if self._left else Stage.IDLE)  # the rest of a body that no handler has read

    def _has_room(self) -> bool:
        """Whether the connection may stay open after this answer. It counts towards the limits again then, so it needs a place."""
        connections, peer = self._connections, self.slot.peer
        return not self.slot.is_apart or connections.slots.has_room(peer) or connections.make_room(peer, self._asked)

    def _write_at_once(self, request: web.BaseRequest, answer: JSONAnswer) -> bool:
        """Writes a short answer. False where the framework must write it: to close the connection, or to wait for a slow client."""
        transport = self.transport
        if (
            transport is None
            or transport.is_closing()
            or self.slot.blocked is not None
            or len(answer.body) > _SHORT_ANSWER
            or request.version != HttpVersion11
            or not request.keep_alive
            or hdrs.UPGRADE in request.headers
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
        """Answers input that is not HTTP with a JSON error that does not repeat the client's bytes. Logged like other rejections."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        problem = (message or "").partition("\n")[0][:_LONGEST_PROBLEM].rstrip(": ") or type(exc).__name__
        self._connections.warnings.warn(("no HTTP", type(exc).__name__), problem=problem, status=status)
        response = Failure(status, "no_http", problem).answer()
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Logs the framework's errors, which any client can cause: each kind once, then counted."""
        error = kw.get("exc_info")
        self._connections.warnings.warn(("framework", args[0]), problem=str(args[0]), error=type(error).__name__)


def _length(head: bytes) -> int:
    """The Content-Length of a head in lower case. 0 where it is no number: the framework rejects the request then."""
    begin = head.find(_LENGTH) + len(_LENGTH)
    digits = head[begin : head.index(b"\r", begin)].strip() if begin >= len(_LENGTH) else b""
    return int(digits) if digits.isdigit() and len(digits) <= _MOST_DIGITS else 0


def _never() -> bool:
    """A closed socket has no unread bytes."""
    return False


def answering(
    routed: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], direct: Mapping[str, DirectHandler]
) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    """A handler for all requests. A POST to a path of ``direct`` bypasses the framework's routes; ``routed`` answers all others."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if isinstance(request.protocol, ServerConnection):
            request.protocol.slot.is_handled = True
        handler = direct.get(request.raw_path) if request.method == hdrs.METH_POST else None
        if handler is None or hdrs.EXPECT in request.headers:  # an expectation is answered by the framework first
            return await routed(request)
        return cast(web.StreamResponse, await handler(cast(web.Request, request)))

    return handle


def enter_stage(request: web.Request, stage: Stage) -> None:
    """Reports the stage of a request; does nothing under the framework's own server."""
    if isinstance(request.protocol, ServerConnection):
        request.protocol.enter(stage)


def is_readable(request: web.BaseRequest) -> bool:
    """Whether the client's socket has unread bytes. False under the framework's own server, where it is unknown."""
    return isinstance(request.protocol, ServerConnection) and bool(request.protocol.slot.is_readable())


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of connections.

    - `most`: all connections without a complete request; `per_peer`: such connections of one peer.
    - `seconds`: for a handshake, for a head, and for reading an answer.
    - `waiting_bytes`: unread answers together. `idle_seconds`: between two requests of a connection.
    """

    most: int
    per_peer: int
    seconds: float
    waiting_bytes: int
    idle_seconds: float


class Connections:
    """Accepts on an address and keeps the connections within the limits."""

    def __init__(self, server: web.Server, limits: ConnectionLimits) -> None:
        self.slots = ConnectionSlots(limits.most, limits.per_peer)
        self.warnings = RepeatedWarnings(_LOG, "connection closed")
        self._server = server
        self._limits = limits
        self._options: dict[str, Any] = {
            "access_log": None,
            "keepalive_timeout": limits.idle_seconds,
            "lingering_time": LINGERING_SECONDS,
            "read_bufsize": _READ_AHEAD,
            "auto_decompress": False,  # 500 KB may inflate to 500 MB, on any path and before a handler runs
        }
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
        for slot in self.slots.beyond(self._limits.waiting_bytes):
            self._close(slot, "unread answers hold too much memory")

    def make_room(self, peer: str, asked: float) -> bool:
        """Makes room for a connection that is about to be answered and counts again then. Returns whether there is room.

        ``asked``: when the answered request came. Only a connection that has been idle since before that is closed: a scheduler that
        was answered later may have begun its next call already. So after thousands of bindings at once some connections are kept, and
        the others end with their answer.
        """
        other = self.slots.first_to_close(peer, asyncio.get_running_loop().time(), since=asked)
        if other is not None:
            self._close(other, _REPLACED)
        return other is not None

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
            self._close(closed, _REPLACED)
        poll = select.poll()
        poll.register(client.fileno(), select.POLLIN | _LEFT)
        slot.is_readable, slot.has_unread = partial(poll.poll, 0), partial(_has_unread, poll)
        task = loop.create_task(self._open(client, slot, tls))
        self._handshakes.add(task)
        task.add_done_callback(partial(self._opened, client, slot))
        slot.close = partial(_end, task)

    async def _open(self, client: socket.socket, slot: ConnectionSlot, tls: ssl.SSLContext | None) -> None:
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
        connection = ServerConnection(self._server, self, slot, **self._options)
        await loop.connect_accepted_socket(lambda: connection, client, ssl=tls, **within)

    def _opened(self, client: socket.socket, slot: ConnectionSlot, task: asyncio.Task[None]) -> None:
        """The connection is open, or its handshake has failed, or it was closed before."""
        self._handshakes.discard(task)
        if task.cancelled() or task.exception() is not None:
            self.slots.release(slot)
            client.close()

    async def _sweep(self) -> None:
        """Closes overdue connections. It goes on after an error, because without it the service would soon accept no connections."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            try:
                for slot in self.slots.overdue(loop.time(), self._limits.seconds):
                    self._close(slot, "no request, or no reading of the answer, in time")
            except Exception:  # noqa: BLE001 - the edge of a task that must not end
                _LOG.exception("watching connections failed, and goes on")

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


def _has_unread(poll: select.poll) -> bool:
    """Whether a socket has unread bytes, and its client has not left."""
    return any(events & select.POLLIN and not events & _LEFT for _, events in poll.poll(0))


def _resolve(ready: asyncio.Future[None]) -> None:
    """Resolves the future once; the event loop may call it again until the reader is removed."""
    if not ready.done():
        ready.set_result(None)


async def _listening_sockets(address: Address) -> list[socket.socket]:
    """Listening sockets, one for each address of the host. Raises OSError; then none of them stays open."""
    loop = asyncio.get_running_loop()
    places = await loop.getaddrinfo(
        address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    listeners: list[socket.socket] = []
    try:
        for family, kind, protocol, _, place in dict.fromkeys(places):
            listener = socket.socket(family, kind, protocol)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            _bind(listener, place)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _bind(listener: socket.socket, place: tuple[Any, ...]) -> None:
    """Raises OSError with the address in its text."""
    try:
        listener.bind(place)
    except OSError as error:
        problem = (error.strerror or "").lower()
        raise OSError(error.errno, f"error while attempting to bind on address {place[:2]}: {problem}") from None
