"""The one list of the endpoints for people and tools: the application routes it, and the OpenAPI document is built from it."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import orjson
from aiohttp import web

from extender.features.execution import endpoint
from extender.server.collaborators import COLLABORATORS
from extender.server.openapi import Operation, document_of
from extender.server.v1 import decisions, explain, pages, what_if
from extender.server.v1.answers import check_parameters


async def openapi(request: web.Request) -> web.Response:
    """`GET /v1/openapi.json`: the endpoints under /v1, for generators of clients and for reading."""
    check_parameters(request)
    return web.Response(body=_document(request.app[COLLABORATORS].version), content_type="application/json")


OPERATIONS: Final = (
    *pages.OPERATIONS,
    *explain.OPERATIONS,
    *decisions.OPERATIONS,
    *what_if.OPERATIONS,
    *endpoint.OPERATIONS,
    Operation("getOpenapi", "GET", "/v1/openapi.json", openapi, "This document.", dict[str, Any]),
)


@cache
def _document(version: str) -> bytes:
    return orjson.dumps(document_of(OPERATIONS, version))
