"""Where pods would go if the cluster were changed: nodes, pods, namespaces and policies added, replaced or deleted."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import web

from extender.model.answers.what_if import MOST_PLACED, PLACE_LIMIT, Displaced, WhatIfAnswer
from extender.server.collaborators import COLLABORATORS, Collaborators
from extender.server.failures import abandoned, unavailable
from extender.server.openapi import Operation
from extender.server.request_checks import DEADLINE, read_body
from extender.server.v1.answers import check_parameters, index_is_current
from extender.tasks.what_if.service import WhatIfService

_LOOK_SECONDS: Final = 0.1


async def what_if(request: web.Request) -> web.Response:
    """`POST /v1/whatif`: where pods would go. The answer may take longer than other requests; see `whatIf.seconds`."""
    app = request.app[COLLABORATORS]
    check_parameters(request)
    held = app.bodies.acquire(request)
    try:
        limit = app.settings.server.max_body_bytes
        body = await read_body(request, limit, "server.maxBodyBytes", app.bodies, held)
        what_ifs = await _ready(app)
        app.deadlines.remove(request[DEADLINE])  # it has a budget of its own
        return web.Response(body=await _while_awaited(request, what_ifs, body), content_type="application/json")
    finally:
        app.bodies.release(held)


async def _ready(app: Collaborators) -> WhatIfService:
    await index_is_current(app)
    if app.verbs.what_ifs is None:
        raise unavailable("whatIf.enabled is false")
    return app.verbs.what_ifs


async def _while_awaited(request: web.Request, what_ifs: WhatIfService, body: bytes) -> bytes:
    """The answer. When the client closes the connection the computation ends, and Failure is raised."""
    # The framework does not cancel a handler when the client leaves. A what-if may take long, so the connection is polled.
    task = asyncio.create_task(what_ifs.answer(body))
    try:
        while not task.done():
            await asyncio.wait((task,), timeout=_LOOK_SECONDS)
            if request.transport is None or request.transport.is_closing():
                raise abandoned()
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))


_OBJECT: Final = {
    "type": "object",
    "description": "An object of the Kubernetes API, as `kubectl get -o json` prints it, of a kind that decisions read, or a workload.",
    "required": ["kind", "metadata"],
    "properties": {
        "kind": {"type": "string"},
        "metadata": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string", "minLength": 1}},
        },
    },
}
_REMOVAL: Final = {
    "type": "object",
    "required": ["kind", "name"],
    "properties": {"kind": {"type": "string"}, "name": {"type": "string"}, "namespace": {"type": "string"}},
    "additionalProperties": False,
}
_PLACE: Final = {
    "type": "object",
    "properties": {
        "pending": {"type": "boolean", "default": True, "description": "Whether pending pods are placed as well."},
        "limit": {
            "type": "integer",
            "minimum": 0,
            "maximum": MOST_PLACED,
            "default": PLACE_LIMIT,
            "description": "How many of the pending pods.",
        },
    },
    "additionalProperties": False,
}
_BODY: Final[dict[str, Any]] = {
    "type": "object",
    "description": "Deletions come first, then cordons and drains, then `apply` in its order. Pods are placed by priority, then by creation.",
    "properties": {
        "apply": {
            "type": "array",
            "items": _OBJECT,
            "description": "Added, or put in place of the one of the same name; a workload with its pods.",
        },
        "delete": {"type": "array", "items": _REMOVAL},
        "cordon": {"type": "array", "items": {"type": "string"}, "description": "Names of nodes."},
        "drain": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Names of nodes that are cordoned, and whose pods are evicted.",
        },
        "displaced": {
            "enum": [displaced.value for displaced in Displaced],
            "default": Displaced.PLACE.value,
            "description": "Pods of deleted and drained nodes are placed again, or are gone.",
        },
        "place": _PLACE,
        "moves": {
            "type": "boolean",
            "default": False,
            "description": "Whether the moves that follow are planned: of pods whose constraints a policy watches while they run.",
        },
    },
    "additionalProperties": False,
}

OPERATIONS: Final = (
    Operation(
        "whatIf",
        "POST",
        "/v1/whatif",
        what_if,
        "Where pods would go if the cluster were changed. Changes nothing.",
        WhatIfAnswer,
        body=_BODY,
        errors=frozenset({413, 429, 503}),
    ),
)
