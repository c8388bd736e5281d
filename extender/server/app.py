"""The application: its routes and its collaborators, and listening on a socket.

Called by `compose` and by tests, each with their own collaborators.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from aiohttp import web

from extender.model.units import Address
from extender.server import health, verbs
from extender.server.collaborators import COLLABORATORS, Collaborators, Verbs
from extender.server.middleware import VerbEndpoint, answer_errors
from extender.server.page.handler import add_page
from extender.server.request_checks import BodyMemory, Deadlines
from extender.server.transport.connections import ConnectionLimits, DirectHandler, listening_within
from extender.server.v1.operations import OPERATIONS
from extender.settings.configuration import Settings
from extender.tasks.readiness import Readiness
from extender.telemetry import catalogue
from extender.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from extender.server.transport.tls import (
        ServerTls,  # with what reads certificates, 9 MB that plain HTTP does not need
    )

_DIRECT: Final[web.AppKey[Mapping[str, DirectHandler]]] = web.AppKey("DIRECT")  # what answers the verbs, by path
_BODIES_AT_ONCE = 4  # of the largest size, in memory from their first byte until they are answered


def make_app(
    settings: Settings, decisions: Verbs, readiness: Readiness, metrics: Metrics, version: str
) -> web.Application:
    """The application with its routes. It starts nothing."""
    app = web.Application(middlewares=[answer_errors], client_max_size=settings.server.max_body_bytes)
    bodies = BodyMemory(_BODIES_AT_ONCE * settings.server.max_body_bytes)
    deadlines = Deadlines(settings.server.request_timeout)
    collaborators = Collaborators(settings, decisions, readiness, metrics, version, bodies, deadlines)
    app[COLLABORATORS] = collaborators
    streams = collaborators.streams
    app.on_shutdown.append(streams.close)
    metrics.report(catalogue.DECISION_STREAMS, lambda: streams.open)
    metrics.report(catalogue.DECISION_STREAMS_REJECTED, lambda: streams.rejected)
    metrics.report(catalogue.REQUESTS_IN_FLIGHT, lambda: bodies.requests)
    metrics.report(catalogue.READY, lambda: {name: float(not problem) for name, problem in readiness.checks().items()})
    metrics.report(catalogue.CONFIG, lambda: {(str(settings.mode), str(settings.placement)): 1})
    paths = settings.server.paths
    handlers = {"filter": verbs.filter_nodes, "prioritize": verbs.prioritize_nodes, "preempt": verbs.preempt_pods}
    endpoints = [VerbEndpoint(verb, getattr(paths, verb), handler, collaborators) for verb, handler in handlers.items()]
    if paths.bind:
        endpoints.append(VerbEndpoint("bind", paths.bind, verbs.bind_pod, collaborators))
    for endpoint in endpoints:
        # A route with a name is a verb: the middleware passes it on. All other routes are answered inside the middleware.
        app.router.add_post(endpoint.path, endpoint.routed, name=endpoint.verb)
    app[_DIRECT] = {endpoint.path: endpoint.answer for endpoint in endpoints}
    for operation in OPERATIONS:
        app.router.add_route(operation.method, operation.path, operation.handler)
    if settings.server.page:
        add_page(app.router)
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
    """Serves on an address until the block is left; yields the base URL, with the real port where 0 was asked for.

    Without `tls` it is plain HTTP. Raises OSError when the address is not available. On leaving, requests in
    flight are finished first.
    """
    server, bodies = app[COLLABORATORS].settings.server, app[COLLABORATORS].bodies
    limits = ConnectionLimits(server, server.request_timeout, server.max_body_bytes)
    context = tls.context if tls else None
    async with listening_within(app, address, context, limits, lambda: bodies.requests, app[_DIRECT]) as url:
        yield url
