"""Bodies of requests: read as they are, never inflated, and never beyond a limit.

The framework would inflate a body before a handler sees it; `app.listening` switches that off, and what comes
compressed is refused here before it is read.
"""

from typing import Final

from aiohttp import hdrs, web

from extender.server.failures import Compressed, TooLarge

_IDENTITY: Final = "identity"
_LONGEST_ENCODING: Final = 40  # characters of a client's header in an answer and in the log


def check_encoding(request: web.Request) -> None:
    """Raise Compressed where the body is in any form but its own: https://www.rfc-editor.org/rfc/rfc9110#section-8.4 ."""
    for value in request.headers.getall(hdrs.CONTENT_ENCODING, ()):
        if value.strip().lower() != _IDENTITY:
            raise Compressed(value[:_LONGEST_ENCODING])


async def read_body(request: web.Request, limit: int, setting: str = "") -> bytes:
    """The whole body. Raises Compressed, or TooLarge as soon as it is known to exceed `limit` bytes.

    `setting` is where the limit comes from, for the text of the error.
    """
    too_large = TooLarge(f"{setting} ({limit})" if setting else f"{limit} bytes")
    check_encoding(request)
    if (request.content_length or 0) > limit:
        raise too_large  # told before a byte of it is read
    pieces: list[bytes] = []
    size = 0
    while piece := await request.content.readany():
        size += len(piece)
        if size > limit:
            raise too_large
        pieces.append(piece)
    return b"".join(pieces)
