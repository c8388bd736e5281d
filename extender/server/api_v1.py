"""The endpoints for people and tools: why a pod is pending, and the OpenAPI document of them.

`OPERATIONS` is the one list of them: the application routes it, and the document is built from it. Errors have the form of
all errors, `ErrorAnswer`.

Clients that may change the service may ask: those with a certificate of the role admin, or without a client CA those on
this machine.
"""

from functools import cache
from typing import Any, Final

import msgspec
import orjson
from aiohttp import web

from extender.model.explanations import Explanation
from extender.model.objects import Pod
from extender.server import health
from extender.server.collaborators import COLLABORATORS, Collaborators, Explainer
from extender.server.failures import NotReady
from extender.server.openapi import Operation, Parameter, document_of
from extender.server.request_checks import read_body
from extender.telemetry.decision_log import DecisionPage
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


async def openapi(request: web.Request) -> web.Response:
    """`GET /v1/openapi.json`: what this module serves, for generators of clients and for reading."""
    for name in request.query:
        raise WireError(name, "is no parameter; there is none")
    return web.Response(body=_document(request.app[COLLABORATORS].version), content_type="application/json")


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


_NODE_PARAMETER: Final = Parameter(_NODE, "query", "A node of which every obstacle is told.")
_POD_SCHEMA: Final = {
    "type": "object",
    "description": "A Pod of the Kubernetes API v1, as `kubectl apply` takes it. Defaults of the API server are not applied.",
    "required": ["metadata", "spec"],
    "properties": {
        "kind": {"const": "Pod"},
        "metadata": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string", "minLength": 1}},
        },
        "spec": {"type": "object"},
    },
}

OPERATIONS: Final = (
    Operation(
        "explainPod",
        "GET",
        "/v1/explain/{namespace}/{pod}",
        explain_pod,
        "Why a pod that exists is pending, and what would help.",
        Explanation,
        (
            Parameter("namespace", "path", "The namespace of the pod."),
            Parameter("pod", "path", "The name of the pod."),
            _NODE_PARAMETER,
        ),
        errors=frozenset({404, 413, 429, 503}),
    ),
    Operation(
        "explainGivenPod",
        "POST",
        "/v1/explain",
        explain_given_pod,
        "Where a pod that need not exist could go now, and what would help.",
        Explanation,
        (_NODE_PARAMETER,),
        _POD_SCHEMA,
        frozenset({404, 413, 429, 503}),
    ),
    Operation(
        "listDecisions",
        "GET",
        "/debug/decisions",
        health.decisions,
        "The last answers about pods, the latest first.",
        DecisionPage,
        (
            Parameter("namespace", "query", "Only pods of this namespace."),
            Parameter("pod", "query", "Only pods of this name."),
            Parameter(
                "limit",
                "query",
                "How many.",
                {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": health.MOST_DECISIONS,
                    "default": health.USUAL_DECISIONS,
                },
            ),
        ),
    ),
    Operation(
        "getOpenapi",
        "GET",
        "/v1/openapi.json",
        openapi,
        "This document.",
        dict[str, Any],
    ),
)


@cache
def _document(version: str) -> bytes:
    return orjson.dumps(document_of(OPERATIONS, version))
