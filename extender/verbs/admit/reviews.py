"""AdmissionReviews: reading the request, and building the responses that an API server understands.

https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#webhook-request-and-response
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from extender.model.policies import JsonObject
from extender.verbs.admit.json_patch import Operation
from extender.wire.policies.field_errors import FieldError

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"

# The API server cuts off what is longer: at 256 characters a warning, and at 4,096 all of them. Clients show them on one line.
_LONGEST_WARNING: Final = 250
_ALL_WARNINGS: Final = 4000
_LONGEST_NOTE: Final = 4000
_LONGEST_MESSAGE: Final = 4000

MALFORMED: Final = 400
FORBIDDEN: Final = 403
INVALID: Final = 422
FAILED: Final = 500
_REASONS: Final = {
    MALFORMED: "BadRequest",
    FORBIDDEN: "Forbidden",
    INVALID: "Invalid",
    FAILED: "InternalError",
}


class ReviewError(ValueError):
    """Raised for a body that is no AdmissionReview v1 with a request; the text names the field."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is read of a request. ``obj`` is the object as it would be stored, ``old`` the one before an update."""

    uid: str
    kind: JsonObject
    operation: str
    namespace: str
    obj: JsonObject
    old: JsonObject
    subresource: str = ""
    dry_run: bool = False

    @property
    def name(self) -> str:
        """The object's name, or how it begins where the API server will complete it."""
        metadata = self.obj["metadata"]
        return str(metadata.get("name") or metadata.get("generateName") or "")


def uid_of(review: Any) -> str:
    """The UID that a response must repeat; empty where there is none to read."""
    request = review.get("request") if isinstance(review, dict) else None
    uid = request.get("uid") if isinstance(request, dict) else None
    return uid if isinstance(uid, str) else ""


def read_review(review: Any) -> Request:
    """The request of an AdmissionReview; raises `ReviewError`."""
    if not isinstance(review, dict):
        raise ReviewError("expected an AdmissionReview, got no JSON object")
    version, kind = review.get("apiVersion"), review.get("kind")
    if (version, kind) != (API_VERSION, KIND):
        raise ReviewError(f"expected {API_VERSION} {KIND}, got {str(version)[:60]} {str(kind)[:60]}")
    request = _object(review.get("request"), "request")
    if not uid_of(review):
        raise ReviewError("request.uid: is missing")
    operation, old = str(request.get("operation") or ""), request.get("oldObject")
    obj = request.get("object")
    if obj is None and operation in ("DELETE", "CONNECT"):
        obj = {}
    obj = _object(obj, "request.object")
    metadata = _object(obj.get("metadata", {}), "request.object.metadata")
    return Request(
        uid=uid_of(review),
        kind=_object(request.get("kind"), "request.kind"),
        operation=operation,
        namespace=str(request.get("namespace") or ""),
        obj=obj if obj.get("metadata") is metadata else {**obj, "metadata": metadata},
        old=old if isinstance(old, dict) else {},
        subresource=str(request.get("subResource") or ""),
        dry_run=request.get("dryRun") is True,
    )


def _object(value: Any, path: str) -> JsonObject:
    if not isinstance(value, dict):
        raise ReviewError(f"{path}: {'is missing' if value is None else 'expected an object'}")
    return value


def allowed(
    uid: str, *, patch: Sequence[Operation] = (), warnings: Iterable[str] = (), notes: Mapping[str, str] | None = None
) -> JsonObject:
    """A review that lets the object pass, with a JSON patch where there is one. ``notes`` become audit annotations."""
    response: JsonObject = {"uid": uid, "allowed": True}
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(list(patch))).decode()
    return _review(response, warnings, notes)


def read_patch(response: JsonObject) -> list[Operation]:
    """The operations of a response; empty where it changes nothing."""
    found: list[Operation] = orjson.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    return found


def denied(
    uid: str, code: int, message: str, *, warnings: Iterable[str] = (), notes: Mapping[str, str] | None = None
) -> JsonObject:
    """A review that refuses the object, with a Status whose reason follows from the code."""
    status = {"code": code, "reason": _REASONS[code], "message": _cut(message, _LONGEST_MESSAGE), "status": "Failure"}
    return _review({"uid": uid, "allowed": False, "status": status}, warnings, notes)


def invalid(request: Request, errors: Sequence[FieldError], warnings: Iterable[str] = ()) -> JsonObject:
    """A review that refuses an object for its fields, as the API server reports an invalid object."""
    texts = "; ".join(map(str, errors))
    kind, group = str(request.kind.get("kind")), str(request.kind.get("group"))
    review = denied(request.uid, INVALID, f'{kind}.{group} "{request.name}" is invalid: {texts}', warnings=warnings)
    review["response"]["status"]["details"] = {
        "name": request.name,
        "group": group,
        "kind": kind,
        "causes": [{"reason": str(each.type), "message": each.message, "field": each.field} for each in errors],
    }
    return review


def _review(response: JsonObject, warnings: Iterable[str], notes: Mapping[str, str] | None) -> JsonObject:
    if shown := short_warnings(warnings):
        response["warnings"] = shown
    if notes:
        response["auditAnnotations"] = {name: _cut(text, _LONGEST_NOTE) for name, text in notes.items()}
    return {"apiVersion": API_VERSION, "kind": KIND, "response": response}


def short_warnings(warnings: Iterable[str]) -> list[str]:
    """As many as an API server shows, each once and on one line; the last one says how many were left out."""
    texts = list(dict.fromkeys(_cut(" ".join(text.split()), _LONGEST_WARNING) for text in warnings))
    shown: list[str] = []
    room = _ALL_WARNINGS
    for number, text in enumerate(texts):
        room -= len(text)
        if room < _LONGEST_WARNING and number < len(texts) - 1:
            return [*shown, f"{len(texts) - number} more warnings are left out"]
        shown.append(text)
    return shown


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
