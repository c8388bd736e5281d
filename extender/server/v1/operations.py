"""The one list of the endpoints for people and tools: the application routes it, and the OpenAPI document is built from it."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import orjson
from aiohttp import web

from extender.server.collaborators import COLLABORATORS
from extender.server.openapi import Operation, Parameter, document_of
from extender.server.v1 import explain, overview, pages
from extender.server.v1.answers import Number, check_parameters, json_answer
from extender.telemetry.decision_log import DecisionPage

_LIMIT: Final = Number("limit", "How many.", 1, 1000, 100)


async def decisions(request: web.Request) -> web.Response:
    """`/debug/decisions?namespace=NS&pod=POD&limit=N`: the last answers, the latest first; 100 without a limit."""
    app = request.app[COLLABORATORS]
    check_parameters(request, ("namespace", "pod", "limit"))
    most = _LIMIT.of(request)
    await app.turns.take()
    found = app.decisions.latest(request.query.get("namespace", ""), request.query.get("pod", ""), most)
    return json_answer(DecisionPage(found, len(app.decisions), app.decisions.bytes))


async def openapi(request: web.Request) -> web.Response:
    """`GET /v1/openapi.json`: what this room serves, for generators of clients and for reading."""
    check_parameters(request)
    return web.Response(body=_document(request.app[COLLABORATORS].version), content_type="application/json")


OPERATIONS: Final = (
    *overview.OPERATIONS,
    *pages.OPERATIONS,
    *explain.OPERATIONS,
    Operation(
        "listDecisions",
        "GET",
        "/debug/decisions",
        decisions,
        "The last answers about pods, the latest first.",
        DecisionPage,
        (
            Parameter("namespace", "query", "Only pods of this namespace."),
            Parameter("pod", "query", "Only pods of this name."),
            _LIMIT.parameter,
        ),
    ),
    Operation("getOpenapi", "GET", "/v1/openapi.json", openapi, "This document.", dict[str, Any]),
)


@cache
def _document(version: str) -> bytes:
    return orjson.dumps(document_of(OPERATIONS, version))
