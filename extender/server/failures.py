"""What can go wrong with a request: the status, the metric's label, and the text of the answer.

A failure is raised where it is detected. `failure_of` translates the errors of other packages. Rejected nodes are no failure but an
answer.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import web

from extender.model.answers.explanations import NoAnswerCause, NotExplained
from extender.model.answers.what_if import NotComputed
from extender.settings.connections import Server
from extender.wire.errors import WireError

_UNEXPECTED: Final = "the extender failed on this request; see its log"
_LATER: Final = {"Retry-After": "1"}
_FOR_THE_CLIENT_ONLY: Final = {
    "not_ready",
    "moved",
    "overloaded",
    "unauthenticated",
    "forbidden",
    "no_length",
    "not_json",
}


REDIRECTS: Final = "redirects"  # the parameter of a call that another replica has redirected


class ErrorAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The one form of errors. ``field`` names the field or the parameter at fault, where there is one."""

    error: str
    field: str = ""


class Failure(Exception):  # noqa: N818 (an answer, not an error)
    """One failed request. ``path``: the path of the field at fault, or empty. Texts name settings by their path."""

    def __init__(
        self, status: int, reason: str, text: str, path: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.text = text
        self.path = path
        self.headers = headers

    @property
    def concerns_the_pod(self) -> bool:
        """Whether the text belongs in the condition of the pod. Otherwise it concerns only the client."""
        return self.reason not in _FOR_THE_CLIENT_ONLY

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may succeed in a moment."""
        return self.status in {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TEMPORARY_REDIRECT}

    def answer(self) -> web.Response:
        """The failure as an `ErrorAnswer`."""
        body = msgspec.json.encode(ErrorAnswer(self.text, self.path))
        return web.Response(status=self.status, body=body, content_type="application/json", headers=self.headers)


class Stale(Failure):
    """The index is too old for a decision; the text names the kinds."""

    def __init__(self, text: str) -> None:
        super().__init__(HTTPStatus.SERVICE_UNAVAILABLE, "stale", f"cannot decide: {text}", headers=_LATER)


class Late(Failure):
    """A request that was read has not been decided within its time."""

    def __init__(self, limits: Server) -> None:
        text = f"not decided within server.requestTimeout ({limits.request_timeout})"
        super().__init__(HTTPStatus.GATEWAY_TIMEOUT, "deadline", text)


def unavailable(text: str) -> Failure:
    """This replica must not answer, or cannot."""
    text = f"not ready: {text}; /readyz?verbose lists the checks"
    return Failure(HTTPStatus.SERVICE_UNAVAILABLE, "not_ready", text, headers=_LATER)


def not_ready(checks: Mapping[str, str]) -> Failure:
    """The readiness checks that fail; only their names, so that the text stays the same."""
    return unavailable(", ".join(name for name, problem in checks.items() if problem))


def moved(path: str, redirects: int) -> Failure:
    """Another replica answers now. The redirect makes the client open a new connection to the same address, which reaches it.

    kube-scheduler's client sends the body again (net/http follows 307 up to ten times). The location is relative, because a proxy
    may add a path. ``redirects``: how often the call was redirected before; the location has the next number.
    """
    headers = {"Location": f"{path.rpartition('/')[2] or '/'}?{REDIRECTS}={redirects + 1}"}
    return Failure(HTTPStatus.TEMPORARY_REDIRECT, "moved", "another replica leads", headers=headers)


def overloaded(text: str) -> Failure:
    """The settings allow no more requests in flight, or no more memory for bodies. The text says which."""
    return Failure(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded", f"overloaded: {text}", headers=_LATER)


def abandoned() -> Failure:
    """The client has closed the connection: its scheduling attempt is over, so nothing must be decided."""
    return Failure(HTTPStatus.REQUEST_TIMEOUT, "abandoned", "the client did not wait for the answer")


def forbidden(text: str) -> Failure:
    """The client must not have this."""
    return Failure(HTTPStatus.FORBIDDEN, "forbidden", text)


def failure_of(error: Exception, limits: Server) -> Failure:
    """The failure for an error."""
    if isinstance(error, Failure):
        return error
    match error:
        case NotExplained():
            return _of_people(error)
        case WireError():
            return Failure(HTTPStatus.BAD_REQUEST, "malformed", f"cannot read the request: {error}", error.path)
        case web.HTTPException():
            allow = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
            return Failure(error.status, "http", error.reason, headers=allow)
        case TimeoutError():
            text = f"the request did not arrive within server.requestTimeout ({limits.request_timeout})"
            return Failure(HTTPStatus.REQUEST_TIMEOUT, "timeout", text)
        case web.RequestPayloadError() | ConnectionError():
            return Failure(HTTPStatus.BAD_REQUEST, "broken_body", "the request's body broke off or is badly encoded")
    return Failure(HTTPStatus.INTERNAL_SERVER_ERROR, "unexpected", _UNEXPECTED)


def _of_people(error: NotExplained) -> Failure:
    """The failure for an explanation, a page or a what-if."""
    text = str(error)
    match error.cause:
        case NoAnswerCause.UNKNOWN:
            return Failure(HTTPStatus.NOT_FOUND, "unknown", text)
        case NoAnswerCause.BUSY:
            return Failure(HTTPStatus.TOO_MANY_REQUESTS, "busy", text, headers=_LATER)
        case NoAnswerCause.TOO_EXPENSIVE:
            text = f"the what-if {text}" if isinstance(error, NotComputed) else text
            return Failure(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_expensive", text)
        case NoAnswerCause.UNAVAILABLE:
            return Failure(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", text, headers=_LATER)
        case NoAnswerCause.FAILED:
            return Failure(HTTPStatus.INTERNAL_SERVER_ERROR, "unexpected", _UNEXPECTED)
