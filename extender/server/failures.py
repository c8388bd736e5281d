"""What can go wrong with a request, as values: the status, the metric's label, and the text of the answer.

The closed list of failures of the server. Rejected nodes are no failure; they are an answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage

from extender.model.answers import what_if
from extender.model.answers.explanations import Cause, NotExplained
from extender.model.answers.what_if import NotComputed
from extender.settings.connections import Server
from extender.wire.errors import WireError


class NotReady(Exception):  # noqa: N818 (a state, not an error)
    """Raised while this replica must not answer; the text names the readiness checks that fail."""


class NoCertificate(Exception):  # noqa: N818 (an answer, not an error)
    """Raised when a client must show a certificate and shows none."""


class UnknownName(Exception):  # noqa: N818 (an answer, not an error)
    """Raised when a client's certificate is valid, but none of its names has the role that the request needs."""

    def __init__(self, names: str, role: str) -> None:
        super().__init__(names)
        self.names = names
        self.role = role


class NotLocal(Exception):  # noqa: N818 (an answer, not an error)
    """Raised when an unauthenticated client requests a change, or an explanation, from another machine."""


class OtherHost(Exception):  # noqa: N818 (an answer, not an error)
    """Raised when a request on this machine names a host that may be another site's; the text is the name."""


class CrossSite(Exception):  # noqa: N818 (an answer, not an error)
    """Raised when a browser sends a request that a page of another site asked for."""


class NotJson(Exception):  # noqa: N818 (an answer, not an error)
    """Raised when a body is not declared as JSON; the text is what it is declared as."""


class Stale(Exception):  # noqa: N818 (an answer, not an error)
    """Raised when the index is too old for a decision; the text names the kinds."""


class Late(Exception):  # noqa: N818 (an answer, not an error)
    """Raised when a request that was read has not been decided within its time."""


class Abandoned(Exception):  # noqa: N818 (an answer, not an error)
    """Raised when the client has closed the connection: its scheduling attempt is over, so nothing must be decided."""


class Overloaded(Exception):  # noqa: N818 (an answer, not an error)
    """Raised when as many requests as the settings allow are being answered, or hold memory; the text says which."""


class TooLarge(Exception):  # noqa: N818 (an answer, not an error)
    """Raised when a body exceeds its limit; the text is the limit, by its setting where it has one."""


class NoLength(Exception):  # noqa: N818 (an answer, not an error)
    """Raised when a body comes in chunks. Parsing chunks of one byte costs 500 times as much as parsing the bytes."""


class Compressed(Exception):  # noqa: N818 (an answer, not an error)
    """Raised when a body is compressed; the text is the encoding. Inflating one costs up to a thousand times its size."""


class ErrorAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The one form of errors. ``field`` names the field or the parameter at fault, where there is one."""

    error: str
    field: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed request. `path` is that of the field at fault, empty where there is none."""

    status: int
    reason: str
    text: str
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def concerns_the_pod(self) -> bool:
        """Whether the text belongs in the condition of the pod. Otherwise it concerns only the client."""
        return self.reason not in _FOR_THE_CLIENT_ONLY

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may succeed in a moment."""
        return self.status == HTTPStatus.SERVICE_UNAVAILABLE

    def body(self) -> bytes:
        """The failure as an `ErrorAnswer`."""
        return msgspec.json.encode(ErrorAnswer(self.text, self.path))


_LATER = {"Retry-After": "1"}
_FOR_THE_CLIENT_ONLY = {"not_ready", "overloaded", "unauthenticated", "forbidden", "no_length", "not_json"}


def failure_of(error: Exception, limits: Server) -> Failure:
    """The failure for an error. Texts name settings by their path in the configuration file."""
    return (
        _of_state(error, limits)
        or _of_explanation(error)
        or _of_what_if(error)
        or _of_client(error)
        or _of_request(error, limits)
        or _UNEXPECTED
    )


def _of_state(error: Exception, limits: Server) -> Failure | None:
    """Failures of the state of the service, for any request."""
    match error:
        case NotReady():
            text = f"not ready: {error}; /readyz?verbose lists the checks"
            return Failure(HTTPStatus.SERVICE_UNAVAILABLE, "not_ready", text, headers=_LATER)
        case Stale():
            return Failure(HTTPStatus.SERVICE_UNAVAILABLE, "stale", f"cannot decide: {error}", headers=_LATER)
        case Late():
            text = f"not decided within server.requestTimeout ({limits.request_timeout})"
            return Failure(HTTPStatus.GATEWAY_TIMEOUT, "deadline", text)
        case Abandoned():
            return Failure(HTTPStatus.REQUEST_TIMEOUT, "abandoned", "the client did not wait for the answer")
        case Overloaded():
            return Failure(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded", f"overloaded: {error}", headers=_LATER)
    return None


def _of_explanation(error: Exception) -> Failure | None:
    """Failures of explanations."""
    match error:
        case NotExplained(cause=Cause.UNKNOWN):
            return Failure(HTTPStatus.NOT_FOUND, "unknown", str(error))
        case NotExplained(cause=Cause.BUSY):
            return Failure(HTTPStatus.TOO_MANY_REQUESTS, "busy", str(error), headers=_LATER)
        case NotExplained():
            return Failure(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_expensive", str(error))
    return None


def _of_what_if(error: Exception) -> Failure | None:
    """Failures of what-ifs."""
    match error:
        case NotComputed(cause=what_if.Cause.BUSY):
            return Failure(HTTPStatus.TOO_MANY_REQUESTS, "busy", str(error), headers=_LATER)
        case NotComputed(cause=what_if.Cause.TOO_EXPENSIVE):
            return Failure(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_expensive", f"the what-if {error}")
        case NotComputed(cause=what_if.Cause.UNAVAILABLE):
            return Failure(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", str(error), headers=_LATER)
    return None


def _of_client(error: Exception) -> Failure | None:
    """Failures of authentication and authorisation."""
    match error:
        case NoCertificate():
            text = "a client certificate of server.tls.clientCAFile is needed"
            return Failure(HTTPStatus.UNAUTHORIZED, "unauthenticated", text)
        case UnknownName():
            text = f"the client certificate's names ({error.names}) are not among server.tls.clients.{error.role}"
            return Failure(HTTPStatus.FORBIDDEN, "forbidden", text)
        case CrossSite():
            text = "a page of another site asked for this request; only pages of the extender may"
            return Failure(HTTPStatus.FORBIDDEN, "forbidden", text)
        case OtherHost():
            text = f'the host "{error}" is not among server.hosts; http://127.0.0.1 and http://localhost need not be'
            return Failure(HTTPStatus.FORBIDDEN, "forbidden", text)
        case NotLocal():
            text = "without server.tls.clientCAFile only this machine may change anything or ask for explanations"
            return Failure(HTTPStatus.FORBIDDEN, "forbidden", text)
    return None


def _of_request(error: Exception, limits: Server) -> Failure | None:
    """Failures of the request: its path, its method, its body."""
    match error:
        case WireError():
            return Failure(HTTPStatus.BAD_REQUEST, "malformed", f"cannot read the request: {error}", error.path)
        case NoLength():
            text = "request bodies need a Content-Length; Transfer-Encoding is not accepted"
            return Failure(HTTPStatus.LENGTH_REQUIRED, "no_length", text)
        case Compressed():
            text = f'request bodies must not be compressed (Content-Encoding "{error}")'
            accepted = {"Accept-Encoding": "identity"}
            return Failure(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "compressed", text, headers=accepted)
        case NotJson():
            text = f'the body of this request needs the header "Content-Type: application/json", got "{error}"'
            return Failure(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "not_json", text)
        case TooLarge():
            return Failure(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", f"request body is larger than {error}")
        case web.HTTPException():
            allow = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
            return Failure(error.status, "http", error.reason, headers=allow)
        case TimeoutError():
            text = f"the request did not arrive within server.requestTimeout ({limits.request_timeout})"
            return Failure(HTTPStatus.REQUEST_TIMEOUT, "timeout", text)
        case BadHttpMessage() | web.RequestPayloadError() | ConnectionError():
            return Failure(HTTPStatus.BAD_REQUEST, "broken_body", "the request's body broke off or is badly encoded")
    return None


_UNEXPECTED = Failure(
    HTTPStatus.INTERNAL_SERVER_ERROR, "unexpected", "the extender failed on this request; see its log"
)
