"""Whether the client still waits for the answer."""

import asyncio
import select
from typing import Final

from aiohttp import web

_LOOP_ITERATIONS: Final = 3  # of the event loop: one polls, the next reads, and TLS decrypts


class Abandoned(Exception):  # noqa: N818 (as above)
    """Raised when the client has closed the connection: its scheduling attempt is over, so nothing must be decided."""


async def check_caller(request: web.Request) -> None:
    """Raise Abandoned where the client does not wait for the answer any more. One system call where it does (1 µs).

    A request may have been unread for longer than the scheduler waits (extenders[].httpTimeout). Then the pod is back in
    the queue, and may have been sent again by another connection; an answer now would assume a pod that is never bound.
    The end of the connection follows the request in the socket, and the event loop has not read it yet.
    """
    transport = request.transport
    iterations = _LOOP_ITERATIONS if transport is not None and _is_readable(transport) else 0
    while transport is not None and not transport.is_closing():
        if not iterations:
            return
        iterations -= 1
        await asyncio.sleep(0)
    raise Abandoned


def _is_readable(transport: asyncio.Transport) -> bool:
    """Whether anything lies unread in the socket; the end of the connection counts."""
    connected = transport.get_extra_info("socket")
    if connected is None or (number := connected.fileno()) < 0:
        return False
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(0))
