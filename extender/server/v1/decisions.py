"""The last answers about pods, from the decision log: as a page, and as a stream."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from extender.model.answers.explanations import NoAnswerCause, NotExplained
from extender.model.answers.shadow import ShadowPage
from extender.server.collaborators import COLLABORATORS, Collaborators
from extender.server.openapi import Operation, Parameter
from extender.server.v1.answers import Number, check_parameters, json_answer
from extender.server.v1.decision_streams import MOST_STREAMS, DecisionEvents
from extender.telemetry.decision_log import DecisionPage, LoggedDecision
from extender.wire.errors import WireError

_LONGEST_NUMBER: Final = 15
_LAST_EVENT: Final = "Last-Event-ID"

_LIMIT: Final = Number("limit", "How many.", 1, 1000, 100)
_LAST: Final = Number("last", "Begin with this many of the last decisions, as far as they are kept.", 0, 1000, 0)


async def decisions(request: web.Request) -> web.Response:
    """`/debug/decisions?namespace=NS&pod=POD&limit=N`: the last answers, the latest first; 100 without a limit."""
    app = request.app[COLLABORATORS]
    check_parameters(request, ("namespace", "pod", "limit"))
    most = _LIMIT.of(request)
    await app.turns.take()
    latest = app.decisions.latest(request.query.get("namespace", ""), request.query.get("pod", ""), most)
    return json_answer(DecisionPage(latest, len(app.decisions), app.decisions.bytes))


async def shadow(request: web.Request) -> web.Response:
    """`/debug/shadow?limit=N`: decisions compared with kube-scheduler's own plugins. Raises NotExplained where none are compared."""
    app = request.app[COLLABORATORS]
    check_parameters(request, ("limit",))
    most = _LIMIT.of(request)
    if app.verbs.shadow is None:
        raise NotExplained(NoAnswerCause.UNKNOWN, "no decisions are compared here: shadow is false")
    await app.turns.take()
    return json_answer(app.verbs.shadow(most))


async def stream(request: web.Request) -> web.Response:
    """`GET /v1/decisions/stream?last=N`: decisions as they are made. Raises WireError, and NotExplained beyond `MOST_STREAMS`."""
    check_parameters(request, ("last",))
    last, app = _LAST.of(request), request.app[COLLABORATORS]
    position = _position(request, last, app)
    if app.streams.open >= MOST_STREAMS:
        app.streams.rejected += 1
        raise NotExplained(NoAnswerCause.BUSY, f"{MOST_STREAMS} streams are open already")
    # Reverse proxies: nginx would hold events back until its buffer is full.
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return web.Response(body=DecisionEvents(app.streams, request, position), headers=headers)


def _position(request: web.Request, last: int, app: Collaborators) -> int:
    """The number of the decision after which a stream begins. A number above the last one is from an earlier process."""
    log, text = app.decisions, request.headers.get(_LAST_EVENT, "")
    if not text:
        return max(log.number - last, log.first - 1)
    if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER):
        raise WireError(_LAST_EVENT, "expected the id of an event of this stream")
    return int(text) if int(text) <= log.number else log.first - 1


OPERATIONS: Final = (
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
    Operation(
        "getShadow",
        "GET",
        "/debug/shadow",
        shadow,
        "The decisions of offload compared with the decisions of kube-scheduler's own plugins (shadow: true), with the last differences.",
        ShadowPage,
        (_LIMIT.parameter,),
        errors=frozenset({404}),
    ),
    Operation(
        "streamDecisions",
        "GET",
        "/v1/decisions/stream",
        stream,
        "Decisions as they are made, as server-sent events. An event `missed` has the `count` of decisions that are not kept any more.",
        LoggedDecision,
        (
            _LAST.parameter,
            Parameter(
                _LAST_EVENT,
                "header",
                "Continue after the event of this id. A browser sends it.",
                {"type": "string", "pattern": f"^[0-9]{{0,{_LONGEST_NUMBER}}}$"},
            ),
        ),
        errors=frozenset({429}),
        media_type="text/event-stream",
    ),
)
