"""Connections: accepted within limits, watched while they are open, and closed when nothing comes of them.

The framework's own server accepts whatever comes and waits for ever on a handshake, on the head of a request and for an
answer to be taken. Here each of these has server.requestTimeout, and `seats` says who may stay. The time for bodies and
for decisions is kept by `middleware`, which has an answer to give.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

from aiohttp import web

from extender.model.units import Address
from extender.server.failures import Failure
from extender.server.seats import Seat, Seats, Stage, peer_of
from extender.telemetry.repeated import RepeatedWarnings

Job = Callable[[], Awaitable[None]]

_LOG = logging.getLogger(__name__)
_BACKLOG: Final = 512
_AT_ONCE: Final = 32
_SWEEP_SECONDS: Final = 0.25
_EXHAUSTED_SECONDS: Final = 0.1  # where the process has no file descriptors left
_CLOSING_SECONDS: Final = 2.0  # for the other side to answer the end of a TLS session
_LONGEST_PROBLEM: Final = 100


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """At most `most` connections, and `per_peer` of one peer; `seconds` for a handshake, a head, and taking an answer.

    `waiting_bytes` is how much of answers may wait to be taken, all in all.
    """

    most: int
    per_peer: int
    seconds: float
    waiting_bytes: int


class Connection(web.RequestHandler):
    """One connection of the framework, which tells its seat what it is doing."""

    __slots__ = ("_hall", "seat")

    def __init__(self, server: web.Server, hall: "Connections", seat: Seat, **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._hall = hall
        self.seat = seat

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """From now on the head of a request is waited for."""
        super().connection_made(transport)
        stream = cast(asyncio.WriteTransport, transport)
        self.seat.close, self.seat.waiting_bytes = stream.abort, stream.get_write_buffer_size
        self.seat.enter(Stage.SILENT, self._loop.time())

    def connection_lost(self, exc: BaseException | None) -> None:
        """Its seat is free."""
        self._hall.seats.leave(self.seat)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """The first byte after an answer begins the head of the next request."""
        if self.seat.stage is Stage.IDLE:
            self.seat.enter(Stage.SILENT, self._loop.time())
        super().data_received(data)

    def pause_writing(self) -> None:
        """The client does not take its answer as fast as it is written."""
        super().pause_writing()
        self.seat.blocked = self._loop.time()
        self._hall.bound_answers()

    def resume_writing(self) -> None:
        """It has taken most of it."""
        super().resume_writing()
        self.seat.blocked = None

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Once the answer is written the next request is waited for."""
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self.seat.enter(Stage.IDLE, self._loop.time())

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What is no HTTP is answered in our form, without the bytes that came, and logged as other refusals are."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        told = (message or "").partition("\n")[0][:_LONGEST_PROBLEM].rstrip(": ") or type(exc).__name__
        self._hall.told.tell(("no HTTP", type(exc).__name__), problem=told, status=status)
        response = web.Response(
            status=status, body=Failure(status, "no_http", told).body(), content_type="application/json"
        )
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """The framework's own complaints, which any client can cause: each kind once, then counted."""
        error = kw.get("exc_info")
        self._hall.told.tell(("framework", args[0]), problem=str(args[0]), error=type(error).__name__)


def enter_stage(request: web.Request, stage: Stage) -> None:
    """Say what is done for a request; nothing where the application is served by the framework's own server."""
    if isinstance(request.protocol, Connection):
        request.protocol.seat.enter(stage, asyncio.get_running_loop().time())


class Connections:
    """Accepts on an address and holds what it has accepted within the limits."""

    def __init__(self, server: web.Server, limits: ConnectionLimits, options: dict[str, Any]) -> None:
        self.seats = Seats(limits.most, limits.per_peer)
        self.told = RepeatedWarnings(_LOG, "connection closed")
        self._server = server
        self._limits = limits
        self._options = options
        self._handshakes: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def accepting(self, address: Address, tls: ssl.SSLContext | None) -> AsyncIterator[tuple[str, int]]:
        """Accept until the block is left; yields the host and the port. Raises OSError when the address cannot be had."""
        sockets = await _sockets(address)
        loop = asyncio.get_running_loop()
        sweep = loop.create_task(_for_ever(self._sweep))
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
        """Close connections whose answers are not taken, beyond what may wait."""
        for seat in self.seats.beyond(self._limits.waiting_bytes):
            self._close(seat, "answers that are not taken hold too much")

    def _accept(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Take in some of those that wait; the others when those have had their turn."""
        loop = asyncio.get_running_loop()
        for _ in range(_AT_ONCE):
            try:
                client, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no file descriptor is left
                self.told.tell("accept", problem=f"cannot accept: {error.strerror}")
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
        seat, leaving = self.seats.take(peer_of(address), loop.time())
        if leaving is not None:
            self._close(leaving, "a newer one takes its place")
        if seat is None:
            client.close()
            self.told.tell("full", problem="every connection is being answered")
            return
        task = loop.create_task(self._open(client, seat, tls))
        self._handshakes.add(task)
        task.add_done_callback(partial(self._opened, client, seat))
        seat.close = partial(_end, task)

    async def _open(self, client: socket.socket, seat: Seat, tls: ssl.SSLContext | None) -> None:
        """Make it a connection of the framework; with TLS after the handshake, within its time."""
        loop = asyncio.get_running_loop()
        within = (
            {"ssl_handshake_timeout": self._limits.seconds, "ssl_shutdown_timeout": _CLOSING_SECONDS} if tls else {}
        )
        connection = Connection(self._server, self, seat, **self._options)
        await loop.connect_accepted_socket(lambda: connection, client, ssl=tls, **within)

    def _opened(self, client: socket.socket, seat: Seat, task: asyncio.Task[None]) -> None:
        """The connection stands, or its handshake has failed, or it was closed before it began."""
        self._handshakes.discard(task)
        if task.cancelled() or task.exception() is not None:
            self.seats.leave(seat)
            client.close()

    async def _sweep(self) -> None:
        """Close what has had its time."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            for seat in self.seats.overdue(loop.time(), self._limits.seconds):
                self._close(seat, "nothing came, or nothing was taken, in time")

    def _close(self, seat: Seat, problem: str) -> None:
        self.told.tell(problem, problem=problem, peer=seat.peer, connections=len(self.seats))
        self.seats.leave(seat)
        seat.close()


def _end(task: asyncio.Task[None]) -> None:
    """Close a connection that is in its handshake."""
    task.cancel()


async def _for_ever(job: Job) -> None:
    """Run a job that has no end; an error that it did not foresee must not leave the service deaf."""
    while True:
        try:
            await job()
        except Exception:  # noqa: BLE001 - the edge of a job that must not end
            _LOG.exception("watching connections failed, and goes on")
            await asyncio.sleep(_EXHAUSTED_SECONDS)


async def _sockets(address: Address) -> list[socket.socket]:
    """Listening sockets, one for each address that the host stands for. Raises OSError, and then none is open."""
    loop = asyncio.get_running_loop()
    places = await loop.getaddrinfo(
        address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    found: list[socket.socket] = []
    try:
        for family, kind, protocol, _, place in dict.fromkeys(places):
            listener = socket.socket(family, kind, protocol)
            found.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            _bind(listener, place)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
    except OSError:
        for listener in found:
            listener.close()
        raise
    return found


def _bind(listener: socket.socket, place: tuple[Any, ...]) -> None:
    """Raises OSError with the address in its text."""
    try:
        listener.bind(place)
    except OSError as error:
        problem = (error.strerror or "").lower()
        raise OSError(error.errno, f"error while attempting to bind on address {place[:2]}: {problem}") from None
