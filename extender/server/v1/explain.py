"""Why a pod is pending, and what would help: for an existing pod, and for a pod in the body of the request."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from extender.model.answers.explanations import Explanation
from extender.model.objects import Pod
from extender.server.collaborators import COLLABORATORS, Collaborators
from extender.server.failures import unavailable
from extender.server.openapi import Operation, Parameter
from extender.server.request_checks import read_body
from extender.server.v1.answers import POD_PARAMETERS, check_parameters, index_is_current, json_answer
from extender.tasks.browse_service import ExplainService
from extender.wire.manifests import decode_manifest

_MOST_BYTES: Final = 256 * 2**10  # of a pod; with the limits of a pod's constraints far less is usual
_NODE: Final = "node"


async def explain_pod(request: web.Request) -> web.Response:
    """`GET /v1/explain/NAMESPACE/POD?node=NODE`: why a pod that exists is pending, and what would help."""
    app = request.app[COLLABORATORS]
    explainer, node = await _ready(app), _node(request)
    return json_answer(await explainer.explain(request.match_info["namespace"], request.match_info["pod"], node))


async def explain_given_pod(request: web.Request) -> web.Response:
    """`POST /v1/explain?node=NODE` with a pod that need not exist: where it could go now."""
    app = request.app[COLLABORATORS]
    node, pod = _node(request), await _given(request, app)
    return json_answer(await (await _ready(app)).explain_given(pod, node))


async def _given(request: web.Request, app: Collaborators) -> Pod:
    held = app.bodies.acquire(request)
    try:
        body = await read_body(request, min(_MOST_BYTES, app.settings.server.max_body_bytes), "", app.bodies, held)
        await app.turns.take()
        return decode_manifest(body, app.settings.limits)
    finally:
        app.bodies.release(held)


async def _ready(app: Collaborators) -> ExplainService:
    """The explaining service, after all events that have arrived are in the index. Raises Failure."""
    await index_is_current(app)
    if app.verbs.explainer is None:
        raise unavailable("nothing explains pods here")
    return app.verbs.explainer


def _node(request: web.Request) -> str:
    check_parameters(request, (_NODE,))
    return request.query.get(_NODE, "")


_NODE_PARAMETER: Final = Parameter(_NODE, "query", "A node whose obstacles are all listed.")
_TEXT_SCHEMA: Final = {"type": "string", "minLength": 1}
_CONTAINER_SCHEMA: Final = {
    "type": "object",
    "required": ["name", "image"],
    "properties": {"name": _TEXT_SCHEMA, "image": _TEXT_SCHEMA},
}
_POD_SCHEMA: Final = {
    "type": "object",
    "description": "A Pod of the Kubernetes API v1, completed and checked as the API server does with a new pod.",
    "required": ["metadata", "spec"],
    "properties": {
        "kind": {"const": "Pod"},
        "metadata": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string", "minLength": 1}},
        },
        "spec": {
            "type": "object",
            "required": ["containers"],
            "properties": {"containers": {"type": "array", "minItems": 1, "items": _CONTAINER_SCHEMA}},
        },
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
        (*POD_PARAMETERS, _NODE_PARAMETER),
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
)
