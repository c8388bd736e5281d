"""Streams of decisions as server-sent events.

https://html.spec.whatwg.org/multipage/server-sent-events.html
A stream has no queue. It knows the number of the last decision that it has sent, and reads the next ones from the log, whose size is
limited. So a client that reads slowly, or comes back later, gets what the log still has, and the number of decisions that it missed.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from aiohttp import Payload, web
from aiohttp.abc import AbstractStreamWriter

from extender.telemetry.decision_log import DecisionLog, LoggedDecision

MOST_STREAMS: Final = 64
POLL_SECONDS: Final = 0.25
COMMENT_SECONDS: Final = 15.0  # seconds without an event. A proxy may close a connection that is silent for a minute
_PAUSE_SECONDS: Final = 0.005  # between the writes of a stream that catches up
_EVENTS_A_WRITE: Final = 64  # some 20 KB
_KEPT_FRAMES: Final = 1024  # encoded once for all streams
_RETRY: Final = b"retry: 2000\n\n"  # milliseconds until a browser connects again


class DecisionStreams:
    """All open streams, and the encoded events that they share. ``rejected``: how many streams were refused, as too many were open."""

    def __init__(self, log: DecisionLog) -> None:
        self.log = log
        self.open = 0
        self.rejected = 0
        self.is_closed = False
        self._frames: dict[int, bytes] = {}

    async def close(self, _: web.Application) -> None:
        """Ends all streams within `POLL_SECONDS`: called on shutdown, which waits for them."""
        self.is_closed = True

    def frames(self, after: int) -> list[bytes]:
        """The next events after the decision of this number. O(events)."""
        return [
            self._frames.get(number) or self._frame(number, decision)
            for number, decision in enumerate(self.log.after(after, _EVENTS_A_WRITE), after + 1)
        ]

    def _frame(self, number: int, decision: LoggedDecision) -> bytes:
        frame = b"id: %d\nevent: decision\ndata: %s\n\n" % (number, msgspec.json.encode(decision))
        self._frames[number] = frame
        if len(self._frames) > _KEPT_FRAMES:
            del self._frames[next(iter(self._frames))]
        return frame


class DecisionEvents(Payload):
    """The body of one stream, written until its client has gone or the service ends. ``position``: the last one sent."""

    def __init__(self, streams: DecisionStreams, request: web.Request, position: int) -> None:
        super().__init__(streams, content_type="text/event-stream")
        self._streams = streams
        self._request = request
        self._position = position

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Never called: the framework calls it to log or repeat a body, and a stream has no end."""
        raise TypeError(f"a stream is not read as text ({encoding}, {errors})")

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Writes events. Waits while the client does not read. After too long the server closes the connection."""
        streams = self._streams
        streams.open += 1
        try:
            await _send(writer, _RETRY)
            quiet = 0.0
            while not streams.is_closed and self._is_connected():
                events = self._next()
                quiet = 0.0 if events else quiet + POLL_SECONDS
                if quiet >= COMMENT_SECONDS:
                    events, quiet = b":\n\n", 0.0
                if events:
                    await _send(writer, events)
                await asyncio.sleep(_PAUSE_SECONDS if self._position < streams.log.number else POLL_SECONDS)
        finally:
            streams.open -= 1

    def _is_connected(self) -> bool:
        transport = self._request.transport
        return transport is not None and not transport.is_closing()

    def _next(self) -> bytes:
        # The log dropped decisions before this stream sent them: one event with their number takes their place, and its id lets a
        # browser that comes back continue after them.
        missed = self._streams.log.first - 1 - self._position
        if missed > 0:
            self._position += missed
            return b'id: %d\nevent: missed\ndata: {"count":%d}\n\n' % (self._position, missed)
        frames = self._streams.frames(self._position)
        self._position += len(frames)
        return b"".join(frames)


async def _send(writer: AbstractStreamWriter, data: bytes) -> None:
    await writer.write(data)
    await writer.drain()
