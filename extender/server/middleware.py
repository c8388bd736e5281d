"""Wraps every request: its number, its time limit, its metrics, and the one place that turns an error into an answer.

kube-scheduler drops the body of any status but 200. So filter answers errors about the pod with status 200 in the
field `Error`, which becomes part of the pod's condition. The text is the same each time, since every new text updates the
pod and thereby requeues it. Not ready and overloaded do not concern the pod: they are 503 for every verb.

Where no decision was possible in time, or the index is too old for one, the settings choose between the verb's error and an
answer that passes everything, as if there were no extender. Each is counted, and logged at intervals.
"""

import itertools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from time import perf_counter
from typing import Final, Literal

from aiohttp import web

from extender.server.collaborators import COLLABORATORS, Collaborators
from extender.server.failures import Failure, Late, NotReady, Overloaded, Stale, failure_of
from extender.server.request_checks import DEADLINE, Deadline, check_client, check_encoding, check_same_site, read_body
from extender.telemetry.logs import request_id
from extender.wire.extender_v1 import encode_filter_error

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Policy = Literal["error", "pass"]

_LOG = logging.getLogger(__name__)
_REQUEST_IDS = itertools.count(1)
LARGE_BYTES: Final = 2**17  # of a body; from here on it may take more than 5 ms to decode, or to decide
_LONGEST_PATH = 200  # characters of a client's path in the log


@dataclass(frozen=True, slots=True)
class PassAll:
    """Builds the answer that passes everything."""

    answer: Callable[[], web.Response]


BODY: Final = web.RequestKey("BODY", bytes)  # the bytes that a handler decodes
PASS_ALL: Final = web.RequestKey("PASS_ALL", PassAll)  # set by handlers whose answer decides where a pod may go


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers every request: with the handler's answer, or with that for its error."""
    verb = request.match_info.route.name
    if verb is not None:
        return await _answer_verb(request, handler, verb)
    app = request.app[COLLABORATORS]
    try:
        check_client(request, app.settings.server.tls)
        check_encoding(request)
        check_same_site(request)
        deadline = request[DEADLINE] = Deadline(app.deadlines)
        with deadline:
            return await handler(request)
    except Exception as error:  # noqa: BLE001 - the outermost handler: an error that passed it would not be answered
        return _as_json(_log_failure(error, request))


async def _answer_verb(request: web.Request, handler: Handler, verb: str) -> web.StreamResponse:
    """One verb's request, within the limits, timed and counted."""
    started = perf_counter()
    request_id.set(next(_REQUEST_IDS))
    app = request.app[COLLABORATORS]
    try:
        response = await _in_time(handler, request, app)
    except Exception as error:  # noqa: BLE001 - the outermost handler: an error that passed it would not be answered
        response = _without_decision(error, request, app, verb)
    app.metrics.verbs[verb].record_answer(
        response.status, perf_counter() - started, request.content.total_bytes, response.content_length or 0
    )
    request_id.set(0)
    return response


async def _in_time(handler: Handler, request: web.Request, app: Collaborators) -> web.StreamResponse:
    """The handler's answer within the time that a request has. Raises Late, or TimeoutError where it never arrived."""
    limits, readiness = app.settings.server, app.readiness
    check_client(request, limits.tls)
    if not (readiness.is_ready or readiness.is_stale):
        raise NotReady(_missing(app))
    held = app.bodies.acquire(request)
    try:
        with Deadline(app.deadlines):
            # Before a slot is taken: incomplete requests must not block complete ones.
            body = await read_body(request, limits.max_body_bytes, "server.maxBodyBytes", app.bodies, held)
            if len(body) >= LARGE_BYTES:
                await app.turns.take()
            request[BODY] = body
            del body
            response = await _in_slot(handler, request, app)
    except TimeoutError:
        if request.content.at_eof():
            raise Late(f"server.requestTimeout ({limits.request_timeout}) is over") from None
        raise
    finally:
        app.bodies.release(held)
        request.pop(BODY, None)  # the request object may live until the garbage collector finds it
    if PASS_ALL in request and not readiness.may_answer:  # another replica may lead by now
        raise NotReady(_missing(app))
    return response


async def _in_slot(handler: Handler, request: web.Request, app: Collaborators) -> web.StreamResponse:
    """The handler's answer, while it holds one of the slots of requests in flight. Raises Overloaded.

    A bind takes no slot: it waits for the API server, and must not block the requests that depend on it.
    """
    most = app.settings.server.max_in_flight
    slot = int(request.match_info.route.name != "bind")
    if slot and app.in_flight >= most:
        raise Overloaded(f"server.maxInFlight ({most}) requests are being answered")
    app.in_flight += slot
    try:
        return await handler(request)
    finally:
        app.in_flight -= slot


def _without_decision(error: Exception, request: web.Request, app: Collaborators, verb: str) -> web.StreamResponse:
    """The fallback of the settings where no decision was possible, else the answer for the error."""
    if isinstance(error, Stale | Late) and (response := _fall_back(request, app, verb, error)) is not None:
        return response
    failure = _log_failure(error, request)
    app.metrics.verbs[verb].record_failure(failure.reason)
    return _as_filter_error(failure) if verb == "filter" and failure.concerns_the_pod else _as_json(failure)


def _fall_back(request: web.Request, app: Collaborators, verb: str, cause: Stale | Late) -> web.Response | None:
    """The answer that passes everything, if the settings choose it; None where the cause is the answer."""
    stale = isinstance(cause, Stale)
    policy: Policy = app.settings.kube.on_stale if stale else app.settings.server.on_deadline
    passing = request.get(PASS_ALL) if policy == "pass" else None
    reason, answer = "stale" if stale else "deadline", "pass" if passing else "error"
    app.metrics.record_fallback(verb, reason, answer)
    app.undecided.warn(verb=verb, reason=reason, answer=answer, cause=str(cause))
    return passing.answer() if passing else None


def _missing(app: Collaborators) -> str:
    """The readiness checks that fail; only their names, so that the text stays the same."""
    return ", ".join(name for name, problem in app.readiness.checks().items() if problem)


def _log_failure(error: Exception, request: web.Request) -> Failure:
    """The failure for an error, logged at a level that fits.

    Rejections are logged once for each kind and then counted: any client of the port can cause any number of them.
    """
    app = request.app[COLLABORATORS]
    failure = failure_of(error, app.settings.server)
    fields = {"path": request.path[:_LONGEST_PATH], "reason": failure.reason, "problem": failure.text}
    if failure.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        _LOG.error("request failed", extra=fields, exc_info=error)
    elif failure.is_temporary or isinstance(error, Late):  # its fallback logs the latter
        _LOG.debug("request rejected", extra=fields)
    else:
        resource = request.match_info.route.resource
        app.rejected.warn((failure.reason, resource and resource.canonical), **fields)
    return failure


def _as_filter_error(failure: Failure) -> web.Response:
    """A filter result with an error, which the scheduler shows in the condition of the pod."""
    return web.Response(body=encode_filter_error(failure.text), content_type="application/json")


def _as_json(failure: Failure) -> web.Response:
    """A JSON error with the status of the failure, for all requests but filter."""
    response = web.Response(
        status=failure.status, body=failure.body(), content_type="application/json", headers=failure.headers
    )
    if failure.reason == "not_ready":
        response.force_close()  # behind a Service only a new connection reaches the replica that is ready
    return response
