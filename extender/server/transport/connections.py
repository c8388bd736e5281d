"""Accepts connections within limits, and closes those that make no progress.

The framework's server accepts every connection and waits without limit for a handshake, for the head of a request and for
the client to read its answer. Here each of these ends after server.requestTimeout, and `connection_slots` decides which
connection is closed. `middleware` limits the time of bodies and decisions, where an error can still be answered.
"""

import asyncio
import logging
import select
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from aiohttp import web

from extender.model.units import Address
from extender.server.transport.connection import Connection
from extender.server.transport.connection_slots import ConnectionSlot, ConnectionSlots, peer_of
from extender.server.transport.sockets import listening_sockets
from extender.server.transport.turns import Turns
from extender.telemetry.logs import RepeatedWarnings

Job = Callable[[], Awaitable[None]]

_LOG = logging.getLogger(__name__)
_AT_ONCE: Final = 8  # connections that are accepted in one iteration of the event loop
_HANDSHAKES: Final = 2  # that begin in one iteration; each takes 1 to 2 ms
_SWEEP_SECONDS: Final = 0.25
_EXHAUSTED_SECONDS: Final = 0.1  # where the process has no file descriptors left
_LEFT: Final[int] = getattr(select, "POLLRDHUP", 0)  # Linux only
_REPLACED: Final = "a newer one takes its place"
_CLOSING_SECONDS: Final = 2.0  # for the other side to answer the end of a TLS session


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """At most `most` connections, and `per_peer` of one peer; `seconds` for a handshake, a head, and reading an answer.

    `waiting_bytes` is the total size of unread answers.
    """

    most: int
    per_peer: int
    seconds: float
    waiting_bytes: int


class Connections:
    """Accepts on an address and keeps the connections within the limits."""

    def __init__(
        self,
        server: web.Server,
        limits: ConnectionLimits,
        options: dict[str, Any],
    ) -> None:
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

    def make_room(self, peer: str) -> bool:
        """Closes a connection for one that is about to be answered, and counts again then. Whether there was one to close.

        None that has just begun to wait: of thousands of bindings that are answered at once some connections are kept, and the
        others end with their answer.
        """
        other = self.slots.first_to_close(peer, asyncio.get_running_loop().time(), begins=False)
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


def _has_unread(poll: select.poll) -> bool:
    """Whether anything lies unread in a socket whose client has not left."""
    return any(events & select.POLLIN and not events & _LEFT for _, events in poll.poll(0))


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
