"""The errors of the embedded API server, in the words and shapes of the real one.

Raised by the store and its operations, turned into an HTTP answer in one place (`apiserver/server.py`).
"""

from extender.simulator.apiserver.kinds import Kind
from extender.simulator.json_objects import JsonObject

CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class ApiError(Exception):
    """A request that the API server refuses; `status` is the `v1.Status` body and `code` the HTTP status."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: JsonObject | None = None,
        metadata: JsonObject | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.status: JsonObject = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata or {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "details": details,
            "code": code,
        }
        # Go leaves out what is empty; a reader that insists on the fields must not get away with it here.
        for name, value in (("reason", reason), ("details", details)):
            if not value:
                del self.status[name]


def not_found(kind: Kind, name: str) -> ApiError:
    """404: no such object."""
    details = {"name": name, "kind": kind.plural, **({"group": kind.group} if kind.group else {})}
    return ApiError(404, "NotFound", f'{kind.qualified} "{name}" not found', details=details)


def already_exists(kind: Kind, name: str) -> ApiError:
    """409: create of a name that is taken."""
    details = {"name": name, "kind": kind.plural, **({"group": kind.group} if kind.group else {})}
    return ApiError(409, "AlreadyExists", f'{kind.qualified} "{name}" already exists', details=details)


def conflict(kind: Kind, name: str, problem: str) -> ApiError:
    """409: a precondition does not hold."""
    message = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {problem}'
    return ApiError(409, "Conflict", message, details={"name": name, "kind": kind.plural})


def stale(kind: Kind, name: str) -> ApiError:
    """409: the writer has not seen the latest version."""
    problem = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(kind, name, problem)


def bad_request(message: str) -> ApiError:
    """400: the request makes no sense."""
    return ApiError(400, "BadRequest", message)


def invalid(message: str, *, field: str = "", kind: str = "") -> ApiError:
    """422: well formed, but not allowed."""
    causes = [{"reason": "FieldValueForbidden", "message": message, "field": field}]
    return ApiError(422, "Invalid", message, details={"kind": kind, "causes": causes})


def expired(message: str, *, continue_token: str = "") -> ApiError:
    """410: the version asked for lies before the history that is kept."""
    return ApiError(410, "Expired", message, metadata={"continue": continue_token} if continue_token else None)


def too_large_version(asked: int, current: int) -> ApiError:
    """504: a resourceVersion that has not been reached yet."""
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return ApiError(504, "Timeout", message, details=details)


def malformed_version(text: str) -> ApiError:
    """500, as the real server answers it: a resourceVersion that is no number."""
    message = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
    return ApiError(500, "", message)


def too_many_requests(message: str, retry_after: int) -> ApiError:
    """429, with the seconds to wait (0: none given)."""
    return ApiError(
        429, "TooManyRequests", message, details={"retryAfterSeconds": retry_after} if retry_after else None
    )


def success(code: int = 201) -> JsonObject:
    """The body that a binding, an eviction or some deletions are answered with."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}
