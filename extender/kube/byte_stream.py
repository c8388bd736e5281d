"""The bytes of one watch: reads them, and counts the bytes that have arrived and are not handled yet.

A process without processor time reads nothing, so a chunk that is read now may have been sent long ago. The time of
reading does not show how current a reflector is. But once all bytes that were unread at a moment are handled,
everything that had arrived by that moment is known. Two methods of `Backlog` use this: ``note_handled`` (up to when
everything is known) and ``wait_until_handled`` (a request waits for the events that arrived before it).

A socket that holds many bytes may have stopped its sender (TCP flow control), which then has more to send.
"""

from __future__ import annotations

import asyncio
import fcntl
import select
import socket
import termios
from array import array
from collections import Counter
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import Any, Final, Protocol

import aiohttp
from aiohttp.connector import Connection

from extender.kube.errors import NO_CONNECTION, KubeError, Unreachable

_SENDER_MAY_WAIT: Final = 32 * 1024  # bytes; half of the smallest receive window that Linux offers
# Bytes of the receive buffer of a watch. Linux doubles the value, for its own bookkeeping.
_SOCKET_BYTES: Final = 2**17
_BUSY_ITERATIONS: Final = 100  # of the event loop; a chunk is read and handled within a few iterations
_POLL_SECONDS: Final = 0.001
_FEW_BYTES: Final = 2**12
# The shortest average line that an API server sends: events in JSON, each in a chunk.
_BYTES_OF_A_LINE: Final = 16


# What the client raises, apart from cancellation. aiohttp's timeouts are TimeoutErrors.
TRANSLATED: Final = (TimeoutError, aiohttp.ClientError, OSError, asyncio.IncompleteReadError)


def translate(doing: str, error: BaseException) -> KubeError:
    """``Unreachable`` for an error of ``TRANSLATED``. ``doing`` begins the text: "GET /api/v1/pods"."""
    if isinstance(error, TimeoutError):
        return Unreachable(f"{doing}: timed out")
    if isinstance(error, aiohttp.ClientConnectorError):
        return Unreachable(f"{doing}: {error}", reason=NO_CONNECTION)
    return Unreachable(f"{doing}: {type(error).__name__}: {error}")


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Translates what the block raises. Cancellation and ``KubeError`` pass through."""
    try:
        yield
    except TRANSLATED as error:
        raise translate(doing, error) from error


class GuardedConnector(aiohttp.TCPConnector):
    """Makes connections whose received data passes a `_TinyPartsGuard`."""

    async def connect(self, *args: Any, **more: Any) -> Connection:
        """Called by the client's session for each request."""
        connection = await super().connect(*args, **more)
        transport, parser = connection.transport, connection.protocol
        if transport is not None and parser is not None and transport.get_protocol() is parser:
            transport.set_protocol(_TinyPartsGuard(transport, parser))
        return connection


class _TinyPartsGuard(asyncio.Protocol):
    """Drops a connection that sends chunks, or interim answers, of a few bytes each.

    Each chunk costs 3 to 15 µs, and a socket returns up to 256 KiB at once. Counting the line ends of so much JSON
    takes 10 µs.
    """

    def __init__(self, transport: asyncio.Transport, parser: asyncio.Protocol) -> None:
        self._transport = transport
        self._parser = parser
        self._parse = parser.data_received
        self.is_lost = False
        # Called after the parser has received something, or the connection is lost.
        self.on_received: Callable[[], None] | None = None

    # Called by the event loop.

    def data_received(self, data: bytes) -> None:
        # Line ends count the parts: each chunk and each interim answer has one.
        if len(data) > _FEW_BYTES and data.count(b"\n") * _BYTES_OF_A_LINE > len(data):
            self._transport.abort()
            return
        self._parse(data)
        if self.on_received is not None:
            self.on_received()

    def eof_received(self) -> bool | None:
        return self._parser.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._parser.connection_lost(exc)
        self.is_lost = True
        if self.on_received is not None:
            self.on_received()

    def pause_writing(self) -> None:
        self._parser.pause_writing()

    def resume_writing(self) -> None:
        self._parser.resume_writing()


class ByteStream:
    """The body of a long answer, chunk by chunk.

    ``descriptor`` is the descriptor of its socket; negative without a socket.

    One timer limits all reads, because a timer for each read costs as much as decoding an event.
    """

    def __init__(self, response: aiohttp.ClientResponse, doing: str) -> None:
        self._response = response
        self._content = response.content
        self._doing = doing
        self._given = 0
        transport = response.connection.transport if response.connection is not None else None
        protocol = transport.get_protocol() if transport is not None else None
        self._guard = protocol if isinstance(protocol, _TinyPartsGuard) else None
        connected = transport.get_extra_info("socket") if transport is not None else None
        self.descriptor: int = -1 if connected is None else connected.fileno()
        self._socket = connected
        self._loop = asyncio.get_running_loop()
        self._deadline = inf  # of the read that is waiting
        self._timer: asyncio.TimerHandle | None = None
        self._ends_at = inf  # when the timer is due; uvloop's timer does not say so at once
        self._is_silent = False

    @property
    def buffered(self) -> int:
        """How many bytes were received and not returned yet."""
        return self._content.total_bytes - self._given

    def unread(self) -> int:
        """How many bytes have arrived and were not returned yet, here or in the kernel. Takes 1 µs."""
        return self.buffered + _bytes_in(self.descriptor)

    def shorten(self) -> None:
        """From now on at most about half a megabyte arrives ahead of handling; the rest waits at the API server.

        Idempotent.

        A request waits for all bytes that arrived before it. Linux lets a receive buffer grow beyond 6 MiB: then 10,000
        events in a burst delayed an answer for 150 to 190 ms. During a list no request waits, and a large buffer saves
        4 % of the processor time.
        """
        if self._socket is not None:
            # The transport closes the socket when the connection ends. The next read says that it has ended.
            with suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BYTES)
            self._socket = None

    async def read(self, patience: float) -> bytes | None:
        """The bytes that have arrived, up to half a megabyte; ``b""`` at the end; None after ``patience`` seconds.

        After None nothing more can be read. Raises ``Unreachable`` when the connection breaks. Other tasks run before
        it returns.
        """
        if self.buffered:
            await asyncio.sleep(0)  # a read of buffered bytes does not wait, so other tasks would not run
        self._set_deadline(patience)
        try:
            chunk = await self._content.readany()
        except (RuntimeError, *TRANSLATED) as error:  # RuntimeError: the connection broke between two reads
            if self._is_silent:
                return None
            raise translate(self._doing, error) from error
        finally:
            self._deadline = inf
        self._given += len(chunk)
        return chunk

    async def read_unhandled(self, patience: Callable[[], float], handle: Callable[[bytes], bool]) -> bytes | None:
        """As `read`, but calls ``handle`` with each chunk in the step in which it arrives. So it wakes no task.

        Returns the first chunk that ``handle`` does not handle. Raises what ``handle`` raises. ``patience`` returns the
        seconds to wait for the next chunk.

        To wake the task for each chunk takes as long as decoding and applying an event.
        """
        # What is buffered has arrived while no chunk was handled. The task handles it, as other tasks run in between.
        if self._guard is not None and not self.buffered and not self._has_ended:
            waiter: asyncio.Future[bytes | None] = self._loop.create_future()

            def receive() -> None:
                try:
                    while self.buffered and not waiter.done():
                        chunk = self._content.read_nowait()
                        self._given += len(chunk)
                        if not handle(chunk):
                            waiter.set_result(chunk)
                        self._set_deadline(patience())
                    if self._has_ended and not waiter.done():
                        waiter.set_result(None)
                except Exception as error:  # noqa: BLE001 (raised by the task that waits)
                    if not waiter.done():
                        waiter.set_exception(error)

            self._set_deadline(patience())
            self._guard.on_received = receive
            try:
                chunk = await waiter
            finally:
                self._guard.on_received, self._deadline = None, inf
            if chunk is not None:
                return chunk
        return await self.read(patience())

    @property
    def _has_ended(self) -> bool:
        """Whether a read would return or raise at once, although no bytes are buffered."""
        content = self._content
        return content.is_eof() or content.exception() is not None or (self._guard is not None and self._guard.is_lost)

    def _set_deadline(self, patience: float) -> None:
        self._deadline = self._loop.time() + patience
        # The timer is moved only to an earlier deadline. When it is due it looks for the current one.
        if self._timer is None or self._ends_at > self._deadline:
            self._arm()

    def close(self) -> None:
        """Stops the timer. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self.close()
        self._ends_at = self._deadline
        self._timer = self._loop.call_at(self._deadline, self._expire)

    def _expire(self) -> None:
        """Ends the read that has waited too long; otherwise waits for the deadline of the current read."""
        self._timer = None
        if self._deadline == inf:
            return
        if self._loop.time() < self._deadline:
            self._arm()
            return
        self._is_silent = True
        self._response.close()
        if self._guard is not None and self._guard.on_received is not None:
            self._guard.on_received()  # a connection whose other side is gone may end much later


_SIZE: Final = array("i", [0])  # filled by the system call and read at once, on one thread


def _bytes_in(descriptor: int) -> int:
    """How many bytes the kernel's buffer of a socket holds; 0 if it is closed."""
    if descriptor < 0:
        return 0
    try:
        fcntl.ioctl(descriptor, termios.FIONREAD, _SIZE)
    except OSError:
        return 0
    return _SIZE[0]


class StreamSockets:
    """The sockets of all streams of a session. One system call shows which of them have unread bytes or have ended."""

    def __init__(self) -> None:
        self._poll = select.poll()
        # Counted, because the number of a closed socket may be reused before the old stream has ended.
        self._users: Counter[int] = Counter()

    def add(self, descriptor: int) -> None:
        """A stream begins."""
        if descriptor >= 0:
            self._users[descriptor] += 1
            self._poll.register(descriptor, select.POLLIN)

    def discard(self, descriptor: int) -> None:
        """A stream has ended."""
        if descriptor >= 0:
            self._users[descriptor] -= 1
            if not self._users[descriptor]:
                del self._users[descriptor]
                self._poll.unregister(descriptor)

    def readable(self) -> list[int]:
        """The descriptors of these sockets. O(streams) in the kernel: 1 µs."""
        return [descriptor for descriptor, _ in self._poll.poll(0)]


class _Stream(Protocol):
    """The part of a stream that `Backlog` uses."""

    descriptor: int

    @property
    def buffered(self) -> int:
        """How many bytes were received and not returned yet."""

    def unread(self) -> int:
        """The buffered bytes and the bytes in the kernel."""


class Backlog:
    """Counts the bytes of one stream after another."""

    def __init__(self) -> None:
        self._stream: _Stream | None = None
        self._received = 0
        self._handled = 0
        self._mark: tuple[int, float] | None = None

    def begin(self, stream: _Stream) -> None:
        """A stream begins."""
        self._stream = stream

    def end(self) -> None:
        """The stream has ended: its unread bytes will not be read."""
        self._stream = None
        self._mark = None
        self._handled = self._received

    @property
    def is_behind(self) -> bool:
        """Whether bytes have arrived that are not handled. One system call while a stream is open."""
        return self._handled < self._received or self.unread() > 0

    def may_be_behind(self, readable: Container[int]) -> bool:
        """`is_behind` without a system call; it may be true although only frames have arrived. Read for every request.

        ``readable``: the sockets with unread bytes, of `StreamSockets`.
        """
        stream = self._stream
        return self._handled < self._received or (
            stream is not None and (stream.buffered > 0 or stream.descriptor in readable)
        )

    def unread(self) -> int:
        """How many bytes have arrived and were not read."""
        return self._stream.unread() if self._stream is not None else 0

    def note_received(self, size: int, now: float) -> None:
        """A chunk of this size was read at this time."""
        self._received += size
        unread = self.unread()
        # A mark is (number of the last byte that had arrived, time). Only one is kept. With a full socket no mark is
        # set, because the sender may hold bytes back.
        if self._mark is None and unread < _SENDER_MAY_WAIT:
            self._mark = (self._received + unread, now)

    def note_handled(self) -> float | None:
        """All bytes read so far are handled.

        Returns the time up to which everything is known; None if it has not changed.

        Bytes in the socket include frames of HTTP and TLS, so a mark may lie beyond all data. So a mark also counts as
        reached once no byte is unread.
        """
        self._handled = self._received
        if self._mark is None or (self._handled < self._mark[0] and self.unread()):
            return None
        (_, moment), self._mark = self._mark, None
        return moment

    async def wait_until_handled(self) -> None:
        """Returns once all bytes that have arrived by now are handled, or the stream has ended.

        Polls at each iteration of the loop, later every millisecond, because bytes without data (frames) wake no
        reader.
        """
        goal, iterations = self._received + self.unread(), _BUSY_ITERATIONS
        while self._handled < goal and self.is_behind:
            await asyncio.sleep(0 if iterations > 0 else _POLL_SECONDS)
            iterations -= 1
