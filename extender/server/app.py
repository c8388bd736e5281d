"""The application: its routes and its collaborators, and listening on a socket.

Called by `compose` and by tests, each with their own collaborators.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from extender.model.units import Address
from extender.server import health, verbs
from extender.server.collaborators import COLLABORATORS, Collaborators, Readiness, Verbs
from extender.server.connections import ConnectionLimits, Connections
from extender.server.middleware import answer_errors
from extender.server.request_checks import BodyMemory, Deadlines
from extender.server.tls import ServerTls
from extender.settings import Server, Settings
from extender.telemetry.metrics import Metrics

_READ_AHEAD = 2**16  # bytes that a connection holds of what no handler reads; twice that before it stops reading
_BODIES_AT_ONCE = 4  # of the largest size, in memory from their first byte until they are answered
_WAITING_ANSWERS = 4  # of the largest size may be unread
LINGERING_SECONDS = 2.0  # so that a client that still sends can read the error
_POLL_SECONDS = 0.01


def make_app(
    settings: Settings, decisions: Verbs, readiness: Readiness, metrics: Metrics, version: str
) -> web.Application:
    """The application with its routes. It starts nothing."""
    app = web.Application(middlewares=[answer_errors], client_max_size=settings.server.max_body_bytes)
    bodies = BodyMemory(_BODIES_AT_ONCE * settings.server.max_body_bytes)
    deadlines = Deadlines(settings.server.request_timeout)
    collaborators = Collaborators(settings, decisions, readiness, metrics, version, bodies, deadlines)
    app[COLLABORATORS] = collaborators
    metrics.report_in_flight(lambda: bodies.requests)
    metrics.report_readiness(readiness.checks)
    metrics.report_settings(settings.mode, settings.placement)
    paths = settings.server.paths
    # The name of a route is the verb: only named routes are limited, timed and counted.
    app.router.add_post(paths.filter, verbs.filter_nodes, name="filter")
    app.router.add_post(paths.prioritize, verbs.prioritize_nodes, name="prioritize")
    app.router.add_post(paths.preempt, verbs.preempt_pods, name="preempt")
    if paths.bind:
        app.router.add_post(paths.bind, verbs.bind_pod, name="bind")
    app.router.add_get("/livez", health.livez)
    app.router.add_get("/healthz", health.livez)
    app.router.add_get("/readyz", health.readyz)
    app.router.add_get("/readyz/{check}", health.readyz_check)
    app.router.add_get("/metrics", health.metrics)
    app.router.add_get("/configz", health.configz)
    app.router.add_get("/version", health.version)
    app.router.add_get("/debug/loglevel", health.log_level)
    app.router.add_put("/debug/loglevel", health.change_log_level)
    return app


@asynccontextmanager
async def listening(app: web.Application, address: Address, tls: ServerTls | None = None) -> AsyncIterator[str]:
    """Serve on an address until the block is left; yields the base URL, with the real port where 0 was asked for.

    Without `tls` it is plain HTTP. Raises OSError when the address is not available. On leaving, requests in flight are
    finished first.
    """
    limits = app[COLLABORATORS].settings.server
    runner = web.AppRunner(app)
    await runner.setup()
    assert runner.server is not None  # noqa: S101 (for the type checker: setup makes it)
    connections = Connections(runner.server, _limits_of(limits), _options(limits))
    try:
        async with connections.accepting(address, tls.context if tls else None) as (host, port):
            scheme = "https" if tls else "http"
            yield f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        await _finished(app[COLLABORATORS])
    finally:
        await runner.cleanup()


def _limits_of(limits: Server) -> ConnectionLimits:
    return ConnectionLimits(
        most=limits.max_connections,
        per_peer=limits.max_connections_per_peer,
        seconds=limits.request_timeout,
        waiting_bytes=_WAITING_ANSWERS * limits.max_body_bytes,
    )


def _options(limits: Server) -> dict[str, Any]:
    """What each connection of the framework is made with."""
    return {
        "access_log": None,
        "keepalive_timeout": limits.idle_timeout,
        "lingering_time": LINGERING_SECONDS,
        "read_bufsize": _READ_AHEAD,
        "auto_decompress": False,  # 500 KB may inflate to 500 MB, on any path and before a handler runs
    }


async def _finished(app: Collaborators) -> None:
    """Return when nothing is being read or answered; no request lasts longer than its deadline.

    The framework waits for handlers, too, but once it has begun to it drops what still arrives of their bodies.
    """
    while app.bodies.requests:  # noqa: ASYNC110 - one poll per shutdown is cheaper than a signal per request
        await asyncio.sleep(_POLL_SECONDS)
