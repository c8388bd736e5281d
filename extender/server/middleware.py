"""Wraps every request: its number, its time limit, its metrics, and the one place that turns an error into an answer.

1. kube-scheduler drops the body of any status but 200. So filter answers errors about the pod with status 200 and the field
   `Error`, which becomes part of the pod's condition. The text is the same each time, because each new text would update the pod
   and thereby requeue it.
2. Not ready and overloaded do not concern the pod: status 503 for every verb.
3. Where no decision is possible in time, or the index is too old, the settings choose between an error and an answer that passes
   every node, as if there were no extender. Both are counted, and logged at intervals.
"""

import itertools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from time import perf_counter
from typing import Final, Literal, cast

from aiohttp import web

from extender.server.collaborators import COLLABORATORS, Collaborators
from extender.server.failures import Failure, Late, Stale, failure_of, moved, not_ready, overloaded
from extender.server.request_checks import (
    DEADLINE,
    Deadline,
    check_client,
    check_encoding,
    check_same_site,
    check_verb,
    read_body,
    redirects_of,
)
from extender.server.transport.connections import JSONAnswer
from extender.telemetry.logs import request_id
from extender.wire.extender_v1 import encode_filter_error

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Policy = Literal["error", "pass"]

_LOG = logging.getLogger(__name__)
_REQUEST_IDS = itertools.count(1)
LARGE_BYTES: Final = 2**17  # of a body; from here on it may take more than 5 ms to decode, or to decide
_LONGEST_PATH = 200  # characters of a client's path in the log
_OK: Final = 200


@dataclass(eq=False, slots=True)
class VerbCall:
    """One request of a verb while it is answered.

    - ``body``: empty before it is read, and again after the decision (memory).
    - ``pass_all``: builds the answer that passes every node. Set by handlers whose answer decides where a pod may go.
    """

    request: web.Request
    app: Collaborators
    body: bytes = b""
    pass_all: Callable[[], bytes] | None = None


VerbHandler = Callable[[VerbCall], Awaitable[bytes]]
"""Returns the JSON that the scheduler reads."""


class VerbEndpoint:
    """One verb: answers its requests, within the limits, timed and counted."""

    def __init__(self, verb: str, path: str, handler: VerbHandler, app: Collaborators) -> None:
        self.path = path
        self.verb = verb
        self._handler = handler
        self._app = app
        self._metrics = app.metrics.verbs[verb]
        # A bind takes no slot of the others: it waits for the API server, and must not block the requests that depend on it.
        self._takes_slot = verb != "bind"
        self._binds = 0

    async def answer(self, request: web.Request) -> web.StreamResponse | JSONAnswer:
        """Answers every request: with the handler's answer, or with the answer for its error."""
        started = perf_counter()
        request_id.set(next(_REQUEST_IDS))
        call = VerbCall(request, self._app)
        status, response = _OK, None
        try:
            body = await self._in_time(call)
        except Exception as error:  # noqa: BLE001 - the outermost handler: an error that passed it would not be answered
            status, body, response = self._without_decision(error, call)
        self._metrics.record_answer(status, perf_counter() - started, request.content.total_bytes, len(body))
        request_id.set(0)
        return response or JSONAnswer(body)

    async def routed(self, request: web.Request) -> web.StreamResponse:
        """As `answer`, called through the framework's routes: for paths in another form, such as with a query."""
        answer = await self.answer(request)
        return answer.response() if isinstance(answer, JSONAnswer) else answer

    async def _in_time(self, call: VerbCall) -> bytes:
        """The handler's answer within the time of a request. Raises Late, or TimeoutError where the request did not arrive.

        The handler holds a slot of requests in flight, or of bindings. Raises Failure where no slot is free.
        """
        app, request = self._app, call.request
        limits, readiness = app.settings.server, app.readiness
        # 1. Cheap checks, before a byte of the body is read.
        check_verb(request, limits)
        # A stale index answers too: the settings choose between an error and an answer that passes every node (`_fall_back`).
        answers = readiness.is_ready or readiness.is_stale
        # A standby waits for its turn (3) only where replicas change behind a Service, and only with a current index.
        if not answers and (app.verbs.is_handed_over is None or not readiness.is_current):
            raise not_ready(readiness.checks())
        held = app.bodies.acquire(request)
        app.verbs.traffic.accepted += answers
        try:
            with Deadline(app.deadlines):
                # 2. The body, before a slot is taken: incomplete requests must not block complete ones.
                call.body = await read_body(request, limits.max_body_bytes, "server.maxBodyBytes", app.bodies, held)
                # 3. The leader: waits until this replica leads, or sends the client to the replica that does.
                if not answers:
                    await self._await_leader(call)
                # 4. A turn for a large body, then a slot. No await between the test and the slot: else too many would get one.
                if len(call.body) >= LARGE_BYTES:
                    await app.turns.take()
                if self._takes_slot and app.in_flight >= limits.max_in_flight:
                    raise overloaded(f"server.maxInFlight ({limits.max_in_flight}) requests are being answered")
                answer = await self._in_slot(call)
        except TimeoutError:
            # Complete in time: the extender was too slow (Late). Else the client was, which is its own failure.
            if request.content.at_eof():
                raise Late(limits) from None
            raise
        finally:
            app.verbs.traffic.accepted -= answers
            app.bodies.release(held)
            call.body = b""  # the call may live until the garbage collector finds it
        # 5. The decision may have waited: if another replica leads by now, this answer may contradict the leader's.
        if call.pass_all is not None and not readiness.may_answer:
            raise not_ready(readiness.checks())
        return answer

    async def _await_leader(self, call: VerbCall) -> None:
        """Returns once this replica leads. Raises Failure: `moved` where another replica leads, `unavailable` where none does in time."""
        app, redirects = call.app, redirects_of(call.request)
        if app.verbs.is_handed_over is not None and await app.verbs.is_handed_over(redirects):
            raise moved(self.path, redirects)
        if not (app.readiness.is_ready or app.readiness.is_stale):
            raise not_ready(app.readiness.checks())

    async def _in_slot(self, call: VerbCall) -> bytes:
        if not self._takes_slot:
            return await self._in_bind_slot(call)
        app = call.app
        app.in_flight += 1
        app.verbs.traffic.begin()
        try:
            return await self._handler(call)
        finally:
            app.in_flight -= 1
            app.verbs.traffic.end()

    async def _in_bind_slot(self, call: VerbCall) -> bytes:
        most = call.app.settings.server.max_binds_in_flight
        if self._binds >= most:
            raise overloaded(f"server.maxBindsInFlight ({most}) pods are being bound")
        self._binds += 1
        try:
            return await self._handler(call)
        finally:
            self._binds -= 1

    def _without_decision(self, error: Exception, call: VerbCall) -> tuple[int, bytes, web.Response | None]:
        """The answer to a request without a decision: the fallback of the settings, else the answer for the error.

        Returns status and body, and the response if its status is not 200.
        """
        if isinstance(error, Stale | Late) and (passing := self._fall_back(call, error)) is not None:
            return _OK, passing, None
        failure = _log_failure(error, call.request, call.app, self.path)
        if self.verb == "preempt":
            call.app.verbs.preempt_refused()  # kube-scheduler does not repeat it, so the pod needs a requeue
        if failure.reason != "moved":  # a call that is answered elsewhere has not failed
            self._metrics.record_failure(failure.reason)
        if self.verb == "filter" and failure.concerns_the_pod:
            return _OK, encode_filter_error(failure.text), None
        response = _as_json(failure)
        return response.status, cast(bytes, response.body), response

    def _fall_back(self, call: VerbCall, cause: Stale | Late) -> bytes | None:
        """The answer that passes every node, if the settings choose it for this cause; else None."""
        app, stale = call.app, isinstance(cause, Stale)
        policy: Policy = app.settings.kube.on_stale if stale else app.settings.server.on_deadline
        passing = call.pass_all if policy == "pass" else None
        reason, answer = "stale" if stale else "deadline", "pass" if passing else "error"
        app.metrics.record_fallback(self.verb, reason, answer)
        app.undecided.warn(verb=self.verb, reason=reason, answer=answer, cause=str(cause))
        return passing() if passing else None


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers every request that is no verb: with the handler's answer, or with the answer for its error."""
    route = request.match_info.route
    if route.name is not None:  # a verb: `VerbEndpoint` answers its errors itself
        return await handler(request)
    app = request.app[COLLABORATORS]
    try:
        check_client(request, app.settings.server)
        check_encoding(request)
        check_same_site(request)
        deadline = request[DEADLINE] = Deadline(app.deadlines)
        with deadline:
            return await handler(request)
    except Exception as error:  # noqa: BLE001 - the outermost handler: an error that passed it would not be answered
        return _as_json(_log_failure(error, request, app, route.resource.canonical if route.resource else ""))


def _log_failure(error: Exception, request: web.Request, app: Collaborators, route: str) -> Failure:
    """The failure for an error, which is logged at its level. ``route``: the path of the route, empty without one.

    Rejections are logged once for each kind and then counted, because any client of the port can cause any number of them.
    """
    failure = failure_of(error, app.settings.server)
    fields = {"path": request.path[:_LONGEST_PATH], "reason": failure.reason, "problem": failure.text}
    if failure.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        _LOG.error("request failed", extra=fields, exc_info=error)
    elif failure.is_temporary or isinstance(error, Late):  # its fallback logs the latter
        _LOG.debug("request rejected", extra=fields)
    else:
        app.rejected.warn((failure.reason, route), **fields)
    return failure


def _as_json(failure: Failure) -> web.Response:
    """A JSON error with the status of the failure, for all requests but filter."""
    response = failure.answer()
    if failure.reason in {"not_ready", "moved"}:
        response.force_close()  # behind a Service only a new connection reaches the replica that is ready
    return response
