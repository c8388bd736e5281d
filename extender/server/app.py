"""The application: its routes and its collaborators, and the listening on a socket. Decides nothing.

Called by the composition root and by tests, each with collaborators of their own.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from extender.model.units import Address
from extender.server import health, verbs
from extender.server.collaborators import COLLABORATORS, Collaborators, Readiness, Verbs
from extender.server.middleware import answer_errors
from extender.server.tls import ServerTls
from extender.settings import Settings
from extender.telemetry.metrics import Metrics

# kube-scheduler's client keeps an idle connection for 90 s. A server that closed first would now and then meet a
# POST on its way, which Go does not repeat.
KEEPALIVE_SECONDS = 3600.0
LINGERING_SECONDS = 2.0  # for a client that still sends to read why it was refused
_LOOK_SECONDS = 0.01


def make_app(
    settings: Settings, decisions: Verbs, readiness: Readiness, metrics: Metrics, version: str
) -> web.Application:
    """The application with its routes. It owns none of what it is given and starts nothing."""
    app = web.Application(middlewares=[answer_errors], client_max_size=settings.server.max_body_bytes)
    collaborators = Collaborators(settings, decisions, readiness, metrics, version)
    app[COLLABORATORS] = collaborators
    metrics.report_in_flight(lambda: collaborators.in_flight)
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

    Without `tls` it is plain HTTP. Raises OSError when the address cannot be had. On leaving, requests in flight are
    finished first.
    """
    runner = web.AppRunner(
        app,
        access_log=None,
        keepalive_timeout=KEEPALIVE_SECONDS,
        lingering_time=LINGERING_SECONDS,
        auto_decompress=False,  # 500 KB may inflate to 500 MB, on any path and before a handler is asked
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, address.host or None, address.port, ssl_context=tls.context if tls else None)
        await site.start()
        host, port = runner.addresses[0][:2]
        scheme = "https" if tls else "http"
        yield f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        await site.stop()
        await _finished(app[COLLABORATORS])
    finally:
        await runner.cleanup()


async def _finished(app: Collaborators) -> None:
    """Return when nothing is in flight; no request lasts longer than its deadline.

    The framework waits for handlers, too, but once it has begun to it drops what still arrives of their bodies.
    """
    while app.in_flight:  # noqa: ASYNC110 - counted for every request, waited for once in a life
        await asyncio.sleep(_LOOK_SECONDS)
