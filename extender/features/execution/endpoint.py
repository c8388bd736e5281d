"""`GET /v1/moves`: broken constraints of running pods, and their moves."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from extender.features.execution.answers import MovesAnswer
from extender.model.answers.explanations import NoAnswerCause, NotExplained
from extender.model.answers.pages import MOST_ROWS
from extender.server.collaborators import COLLABORATORS
from extender.server.openapi import Operation, Parameter
from extender.server.v1.answers import Number, check_parameters, index_is_current, shared_answer

_LIMIT: Final = Number("limit", "How many rows.", 1, MOST_ROWS, 100)


async def moves(request: web.Request) -> web.Response:
    """`GET /v1/moves?namespace=NS&limit=N`. Raises NotExplained if nothing is watched here."""
    check_parameters(request, ("namespace", "limit"))
    app, most = request.app[COLLABORATORS], _LIMIT.of(request)
    read, namespace = app.verbs.moves, request.query.get("namespace", "")
    if read is None:
        text = "no constraints of running pods are watched here: policies.enabled or execution.enabled is false"
        raise NotExplained(NoAnswerCause.UNKNOWN, text)
    await index_is_current(app)

    async def compute() -> MovesAnswer:
        return read(namespace, most)

    return await shared_answer(request, compute)


OPERATIONS: Final = (
    Operation(
        "listMoves",
        "GET",
        "/v1/moves",
        moves,
        "Broken constraints of running pods that policies watch: moves under way, planned moves in order, and what no move mends. "
        "Only the leader has any.",
        MovesAnswer,
        (Parameter("namespace", "query", "Only pods of this namespace."), _LIMIT.parameter),
        errors=frozenset({404, 413, 429, 503}),
    ),
)
