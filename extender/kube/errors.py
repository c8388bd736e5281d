"""The errors of API server calls, and the mapping from HTTP answers to them. `byte_stream` maps client exceptions.

This package raises no other errors. Callers act on the class: they drop the object, read it again, wait, or give up.
Status codes and their meaning: https://kubernetes.io/docs/reference/using-api/api-concepts/ and API conventions.
"""

# ruff: noqa: N818 - named for what happened, as a caller's `except` reads best

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from extender.wire.objects.kinds import decode_status

NO_CONNECTION: Final = (
    # no reason of the API: the server accepted no connection, so the next answer may be from a new server
    "NoConnection"
)
DEFAULT_RETRY_AFTER: Final = 1.0
LONGEST_RETRY_AFTER: Final = 60.0
FORBIDDEN_SECONDS: Final = 5.0
"""For how long a 403 is repeated. An API server that has just started forbids every request until it has read the roles.

That takes it less than a second. A permission that is missing is missing for longer.
"""
_BUDGET_CAUSE: Final = "DisruptionBudget"
_MESSAGE_LENGTH: Final = 500  # proxies answer whole HTML pages


class KubeError(Exception):
    """An error of a call to the API server. ``status`` is 0 without an answer; ``reason`` is the reason of the API."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "", retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class NotFound(KubeError):
    """Raised on 404: the object does not exist, or the resource is not served."""


class Conflict(KubeError):
    """Raised on 409: it exists already, its resourceVersion has changed, or the UID belongs to another object."""


class Rejected(KubeError):
    """Raised on every other 4xx: the same request would fail again (permissions, validation, unknown media type)."""


class Throttled(KubeError):
    """Raised on 429 and 503: retry, not before ``retry_after`` seconds."""


class OverBudget(Throttled):
    """Raised on a 429 of the Eviction API: a disruption budget forbids it, until the budget changes."""


class Expired(KubeError):
    """Raised on 410: the resourceVersion or continue token is too old; a new list is needed."""


class Unreachable(KubeError):
    """Raised without a usable answer: no connection, timeout, a broken connection, or a 5xx.

    A write may have happened.
    """


class TooLarge(KubeError):
    """Raised when an answer exceeds the caller's limit. A request for fewer objects may succeed."""


class BadAccess(KubeError):
    """Raised at start, when the kubeconfig or the service account cannot be read or used."""


def is_forbidden(error: KubeError) -> bool:
    """Whether the error is a 403: the roles forbid the request, or an admission plugin does. O(1)."""
    return error.status == HTTPStatus.FORBIDDEN


def may_be_made(error: KubeError) -> bool:
    """Whether a write with this error may have happened, or may still happen.

    A proxy answers 503 for a lost connection.
    """
    if isinstance(error, Throttled):
        return error.status == HTTPStatus.SERVICE_UNAVAILABLE
    return isinstance(error, Unreachable | TooLarge) and error.reason != NO_CONNECTION


_BY_STATUS: Final[dict[int, type[KubeError]]] = {
    404: NotFound,
    409: Conflict,
    410: Expired,
    429: Throttled,
    503: Throttled,
}


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> KubeError:
    """The error for an answer other than 2xx. Its text is the Status message, or the beginning of the body."""
    failure = decode_status(body)
    kind = _class_of(status, failure.message)
    if status == HTTPStatus.TOO_MANY_REQUESTS and _BUDGET_CAUSE in failure.causes:
        kind = OverBudget
    text = failure.message or body[:_MESSAGE_LENGTH].decode(errors="replace").strip() or "no message"
    wait = _retry_after(headers, failure.retry_after_seconds)
    if issubclass(kind, Throttled):
        wait = wait or DEFAULT_RETRY_AFTER
    return kind(f"{status} {text[:_MESSAGE_LENGTH]}", status=status, reason=failure.reason, retry_after=wait)


def _class_of(status: int, message: str) -> type[KubeError]:
    if status == HTTPStatus.UNPROCESSABLE_ENTITY and "metadata.uid" in message:
        return Conflict  # a patch for an earlier pod of this name: the API server takes it as a change of the UID
    is_ours = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
    return _BY_STATUS.get(status, Rejected if is_ours else Unreachable)


def _retry_after(headers: Mapping[str, str], from_body: int) -> float:
    """Seconds to wait, at most a minute: the date or the day that a proxy sends must not stop the watch for so long."""
    header = headers.get("Retry-After", "")
    seconds = float(header) if header.isascii() and header.isdigit() else float(from_body)
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER)
