"""Whether the one who asked still waits for the answer."""

import asyncio
import select
from typing import Final

from aiohttp import web

_TURNS: Final = 3  # of the loop: one begins to look, the next reads, and TLS takes what was read apart


class Abandoned(Exception):  # noqa: N818 (as above)
    """Raised when the client has hung up: it has given the pod up for now, so nothing must be decided."""


async def check_caller(request: web.Request) -> None:
    """Raise Abandoned where the client does not wait for the answer any more. One system call where it does (1 µs).

    A question may have lain unread for longer than the scheduler waits (extenders[].httpTimeout). Then it has put the
    pod back, may have asked again by another connection, and an answer now would make us count a pod that never comes.
    Its end of the connection lies behind the question, in the socket, and the loop has not read that yet.
    """
    transport = request.transport
    turns = _TURNS if transport is not None and _is_readable(transport) else 0
    while transport is not None and not transport.is_closing():
        if not turns:
            return
        turns -= 1
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
