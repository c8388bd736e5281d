"""The errors of the simulated API server, with the texts and bodies of a real one.

Raised by the store and its operations, converted to HTTP answers by `apiserver/server.py`.
"""

from collections.abc import Sequence

from extender.simulator.apiserver.kinds import ServedKind
from extender.simulator.json_objects import JsonObject

CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class ApiError(Exception):
    """Raised for a request that the API server rejects; `status` is the `v1.Status` body, `code` the HTTP status."""

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
        # Go omits empty fields, so tests must fail for a client that requires them.
        for name, value in (("reason", reason), ("details", details)):
            if not value:
                del self.status[name]


def not_found(kind: ServedKind, name: str) -> ApiError:
    """404: no such object."""
    details = {"name": name, "kind": kind.plural, **({"group": kind.group} if kind.group else {})}
    return ApiError(404, "NotFound", f'{kind.qualified} "{name}" not found', details=details)


def already_exists(kind: ServedKind, name: str) -> ApiError:
    """409: an object with this name exists."""
    details = {"name": name, "kind": kind.plural, **({"group": kind.group} if kind.group else {})}
    return ApiError(409, "AlreadyExists", f'{kind.qualified} "{name}" already exists', details=details)


def conflict(kind: ServedKind, name: str, problem: str) -> ApiError:
    """409: a precondition does not hold."""
    message = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {problem}'
    # AlreadyExists is a 409 too, so clients have to read the reason.
    return ApiError(409, "Conflict", message, details={"name": name, "kind": kind.plural})


def stale(kind: ServedKind, name: str) -> ApiError:
    """409: the resourceVersion is not the latest."""
    problem = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(kind, name, problem)


def bad_request(message: str) -> ApiError:
    """400: the request is malformed."""
    return ApiError(400, "BadRequest", message)


def invalid(message: str, *, field: str = "", kind: str = "") -> ApiError:
    """422: the request is well formed but not valid."""
    causes = [{"reason": "FieldValueForbidden", "message": message, "field": field}]
    return ApiError(422, "Invalid", message, details={"kind": kind, "causes": causes})


def invalid_fields(kind: ServedKind, name: str, errors: Sequence[tuple[str, str, str]]) -> ApiError:
    """422: an object with errors in its fields, each a field, a reason and a message; each is a cause."""
    causes = [{"reason": reason, "message": message, "field": field} for field, reason, message in errors]
    texts = [f"{field}: {message}" for field, _, message in errors]
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = {"name": name, "kind": kind.kind, **({"group": kind.group} if kind.group else {}), "causes": causes}
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    return ApiError(422, "Invalid", f'{qualified} "{name}" is invalid: {listed}', details=details)


def expired(message: str, *, continue_token: str = "") -> ApiError:
    """410: the requested version is older than the history."""
    return ApiError(410, "Expired", message, metadata={"continue": continue_token} if continue_token else None)


def too_large_version(requested: int, current: int) -> ApiError:
    """504: a resourceVersion that has not been reached yet."""
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    return ApiError(504, "Timeout", message, details=details)


def malformed_version(text: str) -> ApiError:
    """500, as from a real API server: a resourceVersion that is not a number."""
    message = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
    return ApiError(500, "", message)


def too_many_requests(message: str, retry_after: int, *, cause: str = "") -> ApiError:
    """429, with the seconds to wait; 0 gives none."""
    details: JsonObject = {"retryAfterSeconds": retry_after} if retry_after else {}
    if cause:
        details["causes"] = [{"reason": cause}]
    return ApiError(429, "TooManyRequests", message, details=details or None)


def success(code: int = 201) -> JsonObject:
    """The body of the answer to a binding, an eviction and some deletions."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}
