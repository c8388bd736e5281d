"""Reads bodies of requests, within a limit for each and a limit for all together. Compressed bodies are rejected.

The framework would inflate a body before a handler sees it; `app.listening` switches that off, and a compressed body is
rejected here before it is read.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from aiohttp import hdrs, web

from extender.server.connection_slots import Stage
from extender.server.connections import enter_stage
from extender.server.failures import Compressed, Overloaded, TooLarge

_IDENTITY: Final = "identity"
_LONGEST_ENCODING: Final = 40  # characters of a client's header in an answer and in the log


BODY: Final = web.RequestKey("BODY", bytes)  # the bytes that a handler decodes


@dataclass(eq=False, slots=True)
class HeldBody:
    """The memory of one body."""

    request: web.BaseRequest
    size: int = 0
    is_complete: bool = False
    is_dropped: bool = False


class BodyMemory:
    """The memory that the bodies of all requests hold, until they are answered: at most `most` bytes.

    Where it is used up, the oldest incomplete body is dropped: a body that arrives quickly is never the oldest for long,
    and one that is sent slowly to occupy memory is.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[HeldBody, None] = {}  # the oldest first
        self.size = 0

    @property
    def requests(self) -> int:
        """How many requests are being read or answered."""
        return len(self._held)

    @contextmanager
    def acquire(self, request: web.BaseRequest) -> Iterator[HeldBody]:
        """Memory for one request, released at the end."""
        held = HeldBody(request)
        self._held[held] = None
        try:
            yield held
        finally:
            self._release(held)

    def add(self, held: HeldBody, size: int) -> None:
        """Adds a piece. Raises Overloaded where all other bodies are complete, or where this one was dropped."""
        if held.is_dropped:
            raise Overloaded("the body was not complete when its memory was needed")
        held.size += size
        self.size += size
        while self.size > self._most:
            oldest = next((each for each in self._held if not each.is_complete and each is not held), None)
            if oldest is None:
                raise Overloaded("bodies of requests hold all memory that is set aside for them")
            self._release(oldest)
            oldest.is_dropped = True
            if oldest.request.transport is not None:
                oldest.request.transport.abort()

    def _release(self, held: HeldBody) -> None:
        if held in self._held:
            del self._held[held]
            self.size -= held.size


def check_encoding(request: web.Request) -> None:
    """Raise Compressed where the body has a content coding: https://www.rfc-editor.org/rfc/rfc9110#section-8.4 ."""
    for value in request.headers.getall(hdrs.CONTENT_ENCODING, ()):
        if value.strip().lower() != _IDENTITY:
            raise Compressed(value[:_LONGEST_ENCODING])


async def read_body(request: web.Request, limit: int, setting: str, bodies: BodyMemory, held: HeldBody) -> bytes:
    """The whole body. Raises Compressed, Overloaded, or TooLarge as soon as it is known to exceed `limit` bytes.

    `setting` is where the limit comes from, for the text of the error.
    """
    check_encoding(request)
    too_large = TooLarge(f"{setting} ({limit})" if setting else f"{limit} bytes")
    if (request.content_length or 0) > limit:
        raise too_large  # before a byte of it is read
    enter_stage(request, Stage.READING)
    body = bytearray()  # one block, which goes back to the system; many small ones would stay in the process
    try:
        while piece := await request.content.readany():
            bodies.add(held, len(piece))
            if held.size > limit:
                raise too_large
            body += piece
        held.is_complete = True
        enter_stage(request, Stage.DECIDING)
        return bytes(body)
    finally:
        body.clear()  # the traceback of an error holds this frame until the collector finds it
