"""The OpenAPI document of the endpoints for people and tools, built from the operations that the application routes.

The schemas are generated from the types of the encoded answers. https://spec.openapis.org/oas/v3.1.0
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec
from aiohttp import web

from extender.model.policies import JsonObject
from extender.server.failures import ErrorAnswer

_JSON: Final = "application/json"
_SCHEMAS: Final = "#/components/schemas/{name}"

# What an error means, by its status: errors of any request, and errors of some operations.
_OF_ANY_REQUEST: Final[Mapping[int, str]] = {
    400: "A parameter or the body is malformed. `field` names it.",
    401: "A client certificate is needed.",
    403: "The client's certificate lacks the role. Without a client CA: the client is on another machine. Or a page of another site asked for it.",
    408: "The request did not arrive in time.",
    411: "The body comes in chunks. It needs a Content-Length.",
    415: "The body is compressed, or is not declared as JSON.",
    500: "The extender failed on the request. Its log says why.",
}
_OF_SOME_REQUESTS: Final[Mapping[int, str]] = {
    404: "The pod or the node is not known.",
    413: "The body, or the work for the answer, is above its limit.",
    429: "Too many answers are being computed already.",
    503: "This replica does not answer now. /readyz says why.",
}
_RETRIED: Final = frozenset({429, 503})


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a path or of a query."""

    name: str
    place: Literal["path", "query", "header"]
    description: str
    schema: Mapping[str, object] = field(default_factory=lambda: {"type": "string"})
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path, with its handler.

    - ``answer``: the type of the encoded answer; for a stream of events (``media_type``) the type of an event's data.
    - ``errors``: the statuses that this operation may have, beside the statuses of any request.
    - ``body``: the schema of the request's body, None without one.
    """

    name: str
    method: Literal["GET", "POST"]
    path: str
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    summary: str
    answer: Any  # a type form, as msgspec takes it
    parameters: Sequence[Parameter] = ()
    body: Mapping[str, object] | None = None
    errors: frozenset[int] = frozenset()
    media_type: str = _JSON


def document_of(operations: Sequence[Operation], version: str) -> JsonObject:
    """The document. ``version``: the extender's version. About 2 ms."""
    schemas, components = msgspec.json.schema_components(
        [ErrorAnswer, *(operation.answer for operation in operations)], ref_template=_SCHEMAS
    )
    for component in components.values():
        component["description"] = _readable(component["description"])
    error, *answers = schemas
    paths: dict[str, JsonObject] = {}
    for operation, answer in zip(operations, answers, strict=True):
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, answer, error)
    about = {
        "title": "placement-extender",
        "version": version,
        "description": "Why pods are pending, and what was decided. Verbs of kube-scheduler are not part of this document.",
    }
    return {"openapi": "3.1.0", "info": about, "paths": paths, "components": {"schemas": components}}


def _operation(operation: Operation, answer: JsonObject, error: JsonObject) -> JsonObject:
    described: JsonObject = {"operationId": operation.name, "summary": operation.summary}
    if operation.parameters:
        described["parameters"] = [_parameter(parameter) for parameter in operation.parameters]
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": {_JSON: {"schema": operation.body}}}
    if operation.media_type != _JSON:
        answer = {"type": "string", "contentMediaType": _JSON, "contentSchema": answer}
    responses: JsonObject = {
        "200": {"description": "The answer.", "content": {operation.media_type: {"schema": answer}}}
    }
    texts = {**_OF_ANY_REQUEST, **{status: _OF_SOME_REQUESTS[status] for status in operation.errors}}
    for status, text in sorted(texts.items()):
        responses[str(status)] = {"description": text, "content": {_JSON: {"schema": error}}}
        if status in _RETRIED:
            after = {"description": "Seconds to wait before the next try.", "schema": {"type": "integer"}}
            responses[str(status)]["headers"] = {"Retry-After": after}
    return {**described, "responses": responses}


def _readable(docstring: str) -> str:
    """The docstring of a value as CommonMark, with the names of fields as they are encoded."""
    text = inspect.cleandoc(docstring)
    return re.sub(r"``(\w+)``", lambda match: f"`{re.sub('_(.)', lambda letter: letter[1].upper(), match[1])}`", text)


def _parameter(parameter: Parameter) -> JsonObject:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.is_required or parameter.place == "path",
        "description": parameter.description,
        "schema": dict(parameter.schema),
    }
