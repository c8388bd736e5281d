"""Listening sockets of an address."""

import asyncio
import socket
from typing import Any, Final

from extender.model.units import Address

_BACKLOG: Final = 4096  # as far as net.core.somaxconn allows; a scheduler may open thousands of connections at once


async def listening_sockets(address: Address) -> list[socket.socket]:
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
