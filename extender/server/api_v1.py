"""The endpoints for people and tools: why a pod is pending. Errors have the form of all errors, ``{"error", "field"}``.

Whoever may change the service may ask: a client certificate with the role admin, or without a client CA this machine.
"""

from typing import Final

import msgspec
from aiohttp import web

from extender.model.explanations import Explanation
from extender.model.objects import Pod
from extender.server.collaborators import COLLABORATORS, Collaborators, Explainer
from extender.server.failures import NotReady
from extender.server.request_checks import read_body
from extender.wire.errors import WireError
from extender.wire.kinds import decode_manifest

_MOST_BYTES: Final = 256 * 2**10  # of a pod; with the limits of a pod's constraints far less is usual
_NODE: Final = "node"


async def explain_pod(request: web.Request) -> web.Response:
    """`GET /v1/explain/NAMESPACE/POD?node=NODE`: why a pod that exists is pending, and what would help."""
    app = request.app[COLLABORATORS]
    explainer, node = await _ready(app), _node(request)
    return _json(await explainer.explain(request.match_info["namespace"], request.match_info["pod"], node))


async def explain_given_pod(request: web.Request) -> web.Response:
    """`POST /v1/explain?node=NODE` with a pod that need not exist: where it could go now."""
    app = request.app[COLLABORATORS]
    node, pod = _node(request), await _given(request, app)
    return _json(await (await _ready(app)).explain_given(pod, node))


async def _given(request: web.Request, app: Collaborators) -> Pod:
    """The pod in the body. Raises WireError, TooLarge or Overloaded."""
    held = app.bodies.acquire(request)
    try:
        body = await read_body(request, min(_MOST_BYTES, app.settings.server.max_body_bytes), "", app.bodies, held)
        await app.turns.take()
        return decode_manifest(body, app.settings.limits)
    finally:
        app.bodies.release(held)


async def _ready(app: Collaborators) -> Explainer:
    """What explains, once all events that have arrived are in the index. Raises NotReady."""
    if app.verbs.explainer is None or not (app.readiness.is_ready or app.readiness.is_stale):
        raise NotReady(", ".join(name for name, problem in app.readiness.checks().items() if problem))
    if app.verbs.catch_up is not None:
        await app.verbs.catch_up()
    return app.verbs.explainer


def _node(request: web.Request) -> str:
    """The node of the query, empty without one. Raises WireError for another parameter."""
    for name in request.query:
        if name != _NODE:
            raise WireError(name, f'is no parameter; the only one is "{_NODE}"')
    return request.query.get(_NODE, "")


def _json(explanation: Explanation) -> web.Response:
    return web.Response(body=msgspec.json.encode(explanation), content_type="application/json")
