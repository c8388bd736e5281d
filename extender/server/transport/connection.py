"""One connection: parses what arrives, answers the verbs, and tells its slot what it waits for.

It derives from the framework's connection, which answers everything but the verbs. The minor version of the framework is
fixed (pyproject.toml), as this reads what it keeps to itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol, TypeAlias, cast

from aiohttp import HttpVersion11, StreamReader, hdrs, web
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import RawRequestMessage, StreamWriter

from extender.server.failures import Failure
from extender.server.transport.connection_slots import ConnectionSlot, ConnectionSlots, Stage
from extender.telemetry.logs import RepeatedWarnings

_LONGEST_PROBLEM: Final = 100
_SHORT_ANSWER: Final = 2**14  # bytes; 500 node names
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nDate: %s\r\n\r\n%s"
_HEAD_PIECE: Final = 2**10  # bytes that are parsed at once while a head is not complete; most are shorter
_BODY_PIECE: Final = 2**14  # after that


class Answer:
    """JSON with status 200, written with its head by one call where the connection stays open and nothing waits before it."""

    __slots__ = ("body",)

    def __init__(self, body: bytes) -> None:
        self.body = body

    def response(self) -> web.Response:
        """The same as a response of the framework."""
        return web.Response(body=self.body, content_type="application/json")

    def encoded(self) -> bytes:
        """Head and body."""
        return _HEAD % (len(self.body), rfc822_formatted_time().encode(), self.body)


DirectHandler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse | Answer]]
"""Answers every request, also with its errors: it raises nothing but a cancellation."""


class AllConnections(Protocol):
    """What one connection needs of all of them; implemented by `Connections`."""

    direct: Mapping[str, DirectHandler]
    slots: ConnectionSlots
    warnings: RepeatedWarnings

    def bound_answers(self) -> None:
        """Closes connections with unread answers beyond the limit."""

    def make_room(self, peer: str) -> bool:
        """Closes a connection for one that is about to be answered. Whether there was one to close."""


class Connection(web.RequestHandler):
    """One connection of the framework, which answers the direct handlers' requests itself, and reports its stage to its slot."""

    __slots__ = ("_connections", "_is_rejected", "_unread", "slot")

    def __init__(self, server: web.Server, connections: AllConnections, slot: ConnectionSlot, **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._connections = connections
        self.slot = slot
        self._is_rejected = False
        self._unread: StreamReader | None = None

    def enter(self, stage: Stage) -> None:
        """The connection enters another stage. Called several times for each request."""
        slot = self.slot
        slot.stage, slot.since = stage, self._loop.time()
        if slot.is_apart and stage is not Stage.DECIDING:
            self._connections.slots.rejoin(slot)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The head of a request is expected from now on."""
        super().connection_made(transport)
        stream = cast(asyncio.WriteTransport, transport)
        self.slot.close, self.slot.waiting_bytes = stream.abort, stream.get_write_buffer_size
        self.enter(Stage.SILENT)

    @property
    def is_readable(self) -> bool:
        """Whether anything lies unread in the socket; the end of the connection counts."""
        return bool(self.slot.is_readable())

    def connection_lost(self, exc: BaseException | None) -> None:
        """Frees its slot."""
        self._connections.slots.release(self.slot)
        self.slot.is_readable = _never  # its descriptor may soon be that of another socket
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
        if self._messages:
            self._is_rejected = getattr(self._messages[-1][0], "chunked", False)
        self._advance()

    def _advance(self) -> None:
        """Enters the stage of the request that is answered now, or next.

        Not only when its handler begins, or goes on: before that the connection could be closed for a new one, and the handler
        would act for a client that has heard of a failure.
        """
        stage = self.slot.stage
        if stage is Stage.DECIDING:
            return
        if self._current_request is not None:
            body = self._current_request.content
        elif self._messages:
            body = self._messages[0][1]
        else:
            return
        if body.is_eof():
            self.enter(Stage.DECIDING)
        elif stage is not Stage.READING:  # a body that trickles does not begin anew with each piece
            self.enter(Stage.READING)

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

    async def start(self) -> None:
        """Answers requests until the connection ends, one after the other. The framework's task of the connection.

        Those of direct handlers are answered in this task. From the first other one on the framework answers all of them. It
        makes a task for each, and before Python 3.12 that takes two more iterations of the event loop: 6 of 50 µs.
        """
        while (found := await self._next_direct()) is not None:
            if not await self._answer(*found):
                break
        else:
            await super().start()
            return
        if not self._force_close and self.transport is not None:
            self._task_handler = None
            self.transport.close()

    async def _next_direct(self) -> tuple[DirectHandler, RawRequestMessage, StreamReader] | None:
        """Waits for a request, and takes it where it has a direct handler; None where the framework has to answer it.

        A request with an expectation is left to the framework, which answers that first. Of requests that came together one
        is answered in each iteration of the event loop: hundreds of them must not hold up other connections.
        """
        if self._messages:
            await asyncio.sleep(0)
        elif not self._force_close:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._force_close or self._parser is None:
            return None
        message, body = self._messages[0]
        if not isinstance(message, RawRequestMessage) or message.method != hdrs.METH_POST or message.upgrade:
            return None
        handler = self._connections.direct.get(message.path)
        if handler is None or hdrs.EXPECT in message.headers:
            return None
        self._messages.popleft()
        self._parser.message_consumed()
        if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
            self._resume_reading_if_drained()
        return handler, message, body

    async def _answer(self, handler: DirectHandler, message: RawRequestMessage, body: StreamReader) -> bool:
        """Answers one request. Whether the connection stays open for the next."""
        loop, task = self._loop, self._task_handler
        assert self._request_factory is not None and task is not None  # noqa: S101, PT018 (for the type checker: only a lost connection has none)
        request = self._request_factory(message, body, self, StreamWriter(self, loop), task)
        self._request_in_progress, self._current_request = True, request
        try:
            is_kept = await self._write(request, await handler(cast(web.Request, request)))
            await self._read_rest(body)
        except ConnectionError:
            return False  # the client has left
        except Exception as error:  # noqa: BLE001 - of the framework: handlers answer their own
            self.log_exception("Unhandled exception", exc_info=error)
            self.force_close()
            return False
        except BaseException:
            self.force_close()
            raise
        finally:
            self._request_in_progress, self._current_request = False, None
            if self._handler_waiter is not None:
                self._handler_waiter.set_result(None)
        if not is_kept or self._close or self._force_close:
            return False
        self._next_keepalive_close_time = loop.time() + self._keepalive_timeout
        if self._keepalive_handle is None:
            self._keepalive_handle = loop.call_at(self._next_keepalive_close_time, self._process_keepalive)
        return True

    async def _write(self, request: web.BaseRequest, answer: web.StreamResponse | Answer) -> bool:
        """Writes an answer. Whether the connection may stay open after it."""
        if isinstance(answer, Answer):
            if self._write_at_once(request, answer):
                self._rest(request)
                return True
            answer = answer.response()
        _, is_lost = await self.finish_response(request, answer, None)
        return not is_lost and bool(answer.keep_alive)

    async def _read_rest(self, body: StreamReader) -> None:
        """Reads what the handler has left of a body, for a moment: a client that still sends could not read its answer."""
        if body.is_eof():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._lingering_time):
                while not body.is_eof():
                    await body.readany()
        if not body.is_eof():
            self.close()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Writes the answer. After it the connection is idle, or is closed: for a request in chunks, or for lack of room."""
        try:
            if self._is_rejected or not self._has_room():
                resp.force_close()  # what follows is not parsed, or has no place
            return await super().finish_response(request, resp, start_time)
        finally:
            self._rest(request)

    def _rest(self, request: web.BaseRequest) -> None:
        """The request is answered. The next one may have come already."""
        self._current_request = None
        self.enter(Stage.IDLE)
        if not request.content.is_eof():
            self._unread = request.content
        self._advance()

    def _has_room(self) -> bool:
        """Whether the connection may stay open for the next request once this one is answered: it counts again then."""
        connections, peer = self._connections, self.slot.peer
        return not self.slot.is_apart or connections.slots.has_room(peer) or connections.make_room(peer)

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
            or not self._has_room()
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


def _never() -> bool:
    """Nothing lies unread in a socket that is closed."""
    return False


def _piece(start: bytes) -> int:
    """How many bytes to parse at once of data that starts so: few, unless it holds a whole head of a body with a length."""
    folded = start.lower()
    return _BODY_PIECE if b"\r\n\r\n" in folded and b"transfer-encoding" not in folded else _HEAD_PIECE


def enter_stage(request: web.Request, stage: Stage) -> None:
    """Reports the stage of a request; does nothing under the framework's own server."""
    if isinstance(request.protocol, Connection):
        request.protocol.enter(stage)


def is_readable(request: web.BaseRequest) -> bool:
    """Whether anything lies unread in the client's socket; unknown, so not, under the framework's own server."""
    return isinstance(request.protocol, Connection) and request.protocol.is_readable
