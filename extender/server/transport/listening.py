"""Listening on a socket within limits, for both applications of this server: the scheduler's verbs, and admission."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Final

from aiohttp import web

from extender.model.units import Address
from extender.server.request_checks import BodyMemory
from extender.server.transport.connections import ConnectionLimits, Connections, DirectHandler, answering
from extender.settings.connections import Server

_WAITING_ANSWERS: Final = 4  # of the largest size may be unread
_POLL_SECONDS: Final = 0.01


def listening_limits(server: Server, seconds: float, most_bytes: int | None = None) -> ConnectionLimits:
    """The limits of the settings. ``seconds``: for a handshake, a head and reading an answer; ``most_bytes``: the largest answer."""
    return ConnectionLimits(
        most=server.max_connections,
        per_peer=server.max_connections_per_peer,
        seconds=seconds,
        waiting_bytes=_WAITING_ANSWERS * (most_bytes or server.max_body_bytes),
        idle_seconds=server.idle_timeout,
    )


@asynccontextmanager
async def listening_within(
    app: web.Application,
    address: Address,
    tls: ssl.SSLContext | None,
    limits: ConnectionLimits,
    bodies: BodyMemory,
    direct: Mapping[str, DirectHandler] = MappingProxyType({}),
) -> AsyncIterator[str]:
    """Serves on an address until the block is left; yields the base URL, with the real port where 0 was asked for.

    Raises OSError when the address is not available. On leaving, requests in flight are finished first. ``direct``: by path the
    handler of POST requests that bypass the framework's routes, because routing takes a tenth of the time of a request.
    """
    runner = web.AppRunner(app)
    await runner.setup()
    assert runner.server is not None  # noqa: S101 (for the type checker: setup makes it)
    runner.server.request_handler = answering(runner.server.request_handler, direct)
    connections = Connections(runner.server, limits)
    try:
        async with connections.accepting(address, tls) as (host, port):
            scheme = "https" if tls else "http"
            yield f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        # No new connections from here on. Requests in flight are finished before the framework's cleanup, which drops their bodies.
        await _finished(bodies)
    finally:
        await runner.cleanup()


async def _finished(bodies: BodyMemory) -> None:
    """Returns when nothing is being read or answered; no request lasts longer than its deadline.

    The framework waits for handlers too, but while it waits it drops the rest of their bodies.
    """
    while bodies.requests:  # noqa: ASYNC110 - one poll per shutdown is cheaper than a signal per request
        await asyncio.sleep(_POLL_SECONDS)
