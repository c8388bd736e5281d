"""AdmissionReviews: the request, the response that an API server understands, and the pod templates of the object.

https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#webhook-request-and-response
Policies are injected into a pod and into the template of a Job at creation only, because both are immutable. Other templates are
injected at every update too. For a custom resource the setting `policies.templates` gives the path of its template.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import orjson

from extender.model.objects import Node, Pod
from extender.model.policies import JsonObject
from extender.rules.free_resources import static_rejection
from extender.verbs.admit.injected import ANNOTATION, read_records, subtract
from extender.verbs.admit.json_edits import Operation, drop, get, pointer, put
from extender.wire.policies.field_errors import FieldError

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"

# The API server cuts warnings: one at 256 characters, all together at 4,096. Clients show each on one line.
_LONGEST_WARNING: Final = 250
_ALL_WARNINGS: Final = 4000
_LONGEST_NOTE: Final = 4000
_LONGEST_MESSAGE: Final = 4000
_MOST_CAUSES: Final = 100  # errors of one object that the answer names

MALFORMED: Final = 400
FORBIDDEN: Final = 403
TOO_LARGE: Final = 413
INVALID: Final = 422
FAILED: Final = 500
_REASONS: Final = {
    MALFORMED: "BadRequest",
    FORBIDDEN: "Forbidden",
    TOO_LARGE: "RequestEntityTooLarge",
    INVALID: "Invalid",
    FAILED: "InternalError",
}


class ReviewError(ValueError):
    """Raised for a body that is no AdmissionReview v1 with a request; the text names the field."""


@dataclass(frozen=True, slots=True)
class Request:
    """The fields that are read of a request. ``obj``: the object as it would be stored. ``old``: the object before an update."""

    uid: str
    kind: JsonObject
    operation: str
    namespace: str
    obj: JsonObject
    old: JsonObject
    subresource: str = ""
    dry_run: bool = False
    user: str = ""

    @property
    def name(self) -> str:
        """The object's name, or its generateName where the API server completes it."""
        metadata = self.obj["metadata"]
        return str(metadata.get("name") or metadata.get("generateName") or "")


def uid_of(review: Any) -> str:
    """The UID that the response must repeat; empty where it cannot be read."""
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
    operation, old, user = str(request.get("operation") or ""), request.get("oldObject"), request.get("userInfo")
    # A DELETE has only the old object; nothing is injected into it.
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
        user=str(user.get("username") if isinstance(user, dict) else ""),
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
    operations: list[Operation] = orjson.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    return operations


def denied(
    uid: str, code: int, message: str, *, warnings: Iterable[str] = (), notes: Mapping[str, str] | None = None
) -> JsonObject:
    """A review that refuses the object, with a Status whose reason follows from the code."""
    status = {"code": code, "reason": _REASONS[code], "message": _cut(message, _LONGEST_MESSAGE), "status": "Failure"}
    return _review({"uid": uid, "allowed": False, "status": status}, warnings, notes)


def invalid(request: Request, errors: Sequence[FieldError], warnings: Iterable[str] = ()) -> JsonObject:
    """A review that refuses an object for its fields, as the API server reports an invalid object."""
    texts = "; ".join(map(str, errors[:_MOST_CAUSES]))
    kind, group = str(request.kind.get("kind")), str(request.kind.get("group"))
    review = denied(request.uid, INVALID, f'{kind}.{group} "{request.name}" is invalid: {texts}', warnings=warnings)
    review["response"]["status"]["details"] = {
        "name": request.name,
        "group": group,
        "kind": kind,
        "causes": [
            {"reason": str(error.type), "message": error.message, "field": error.field}
            for error in errors[:_MOST_CAUSES]
        ],
    }
    return review


def _review(response: JsonObject, warnings: Iterable[str], notes: Mapping[str, str] | None) -> JsonObject:
    if shown := short_warnings(warnings):
        response["warnings"] = shown
    if notes:
        response["auditAnnotations"] = {name: _cut(text, _LONGEST_NOTE) for name, text in notes.items()}
    return {"apiVersion": API_VERSION, "kind": KIND, "response": response}


def short_warnings(warnings: Iterable[str]) -> list[str]:
    """The warnings that an API server shows: each once and on one line. The last says how many were left out."""
    # A warning becomes a header of the HTTP response, which can have no line break.
    texts = list(dict.fromkeys(_cut(" ".join(text.split()), _LONGEST_WARNING) for text in warnings))
    shown: list[str] = []
    room = _ALL_WARNINGS
    # The last line keeps its room, so that no warning is lost without a sign.
    for number, text in enumerate(texts):
        room -= len(text)
        if room < _LONGEST_WARNING and number < len(texts) - 1:
            return [*shown, f"{len(texts) - number} more warnings are left out"]
        shown.append(text)
    return shown


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


Path = tuple[str | int, ...]

POD: Final = "v1/Pod"
CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"

_TEMPLATE: Final = "/spec/template"
BUILT_IN: Final[Mapping[str, str]] = {
    "v1/ReplicationController": _TEMPLATE,
    "apps/v1/ReplicaSet": _TEMPLATE,
    "apps/v1/Deployment": _TEMPLATE,
    "apps/v1/StatefulSet": _TEMPLATE,
    "apps/v1/DaemonSet": _TEMPLATE,
    "batch/v1/Job": _TEMPLATE,
    "batch/v1/CronJob": "/spec/jobTemplate/spec/template",
}
_IMMUTABLE: Final = (POD, "batch/v1/Job")
# Not injected: the controller of these objects compares the template with its own, and replaces it as long as they differ.
_COPIES: Final = ("apps/v1/ReplicaSet", "v1/ReplicationController")
_EACH: Final = "*"  # of a list, as in JobSet's /spec/replicatedJobs/*/template/spec/template


def kind_name(kind: JsonObject) -> str:
    """``group/version/Kind``, or ``version/Kind`` for the core group, of a request's `kind`."""
    return "/".join(str(part) for part in (kind.get("group"), kind.get("version"), kind.get("kind")) if part)


def why_not(kind: str, operation: str, obj: JsonObject, templates: Mapping[str, str]) -> str:
    """The reason why an object is left unchanged; empty if it may be changed."""
    if kind != POD and kind not in BUILT_IN and kind not in templates:
        return f"{kind} has no pod template that is known; policies.templates names others"
    if operation not in (CREATE, UPDATE):
        return f"nothing is injected at {operation}"
    if operation == UPDATE and kind in _IMMUTABLE:
        return f"{kind} is injected when it is created, as it cannot be changed later"
    if obj["metadata"].get("deletionTimestamp"):
        return "the object is being deleted"
    if kind in _COPIES and controller_of(obj):
        return "its controller compares the template with its own"
    return ""


def controller_of(obj: JsonObject) -> JsonObject:
    """The owner reference of the controller; empty where the object has none."""
    owners = obj["metadata"].get("ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, dict) and owner.get("controller") is True:
            return owner
    return {}


def template_paths(kind: str, obj: JsonObject, templates: Mapping[str, str], most: int) -> list[Path]:
    """The paths of an object's pod templates. The path of a pod is empty. A missing template is left out.

    Raises `TooManyTemplatesError` for more than ``most`` templates, because the policies are applied to each.
    """
    if kind == POD:
        return [()]
    path = templates.get(kind) or BUILT_IN[kind]
    # `~1` before `~0`, as RFC 6901 says: otherwise `~01` would become `/`.
    parts = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    walk = (place for place, value in _walk(obj, parts, ()) if isinstance(value, dict))
    # One more than allowed is enough to know, however many templates the object has.
    paths = list(islice(walk, most + 1))
    if len(paths) > most:
        raise TooManyTemplatesError(f"the object has more than {most} pod templates (policies.maxTemplates)")
    return paths


class TooManyTemplatesError(ValueError):
    """Raised for an object with more pod templates than one review may cost."""


def _walk(value: Any, parts: list[str], done: Path) -> Iterator[tuple[Path, Any]]:
    if not parts:
        yield done, value
        return
    name, *rest = parts
    if name == _EACH and isinstance(value, list):
        for number, item in enumerate(value):
            yield from _walk(item, rest, (*done, number))
    elif isinstance(value, dict) and name in value:
        yield from _walk(value[name], rest, (*done, name))


def path_text(path: Path) -> str:
    """A path as a JSON pointer."""
    return pointer(*map(str, path)) if path else ""


def read(value: Any, path: Path) -> Any:
    """The value at an existing path."""
    for name in path:
        value = value[name]
    return value


def written(value: Any, changes: Mapping[Path, Any]) -> Any:
    """A copy with other values at existing paths. An object on several of the paths is copied once."""
    if () in changes:
        return changes[()]
    below: dict[str | int, dict[Path, Any]] = {}
    for (name, *rest), new in changes.items():
        below.setdefault(name, {})[tuple(rest)] = new
    copy: Any = list(value) if isinstance(value, list) else dict(value)
    for name, inner in below.items():
        copy[name] = written(copy[name], inner)
    return copy


# -- trying out policies without an API server (`extender policy test`)

_OTHER_NODE: Final = "node(s) other than the pod's spec.nodeName"
_SET_LATER: Final = (("status",), ("metadata", "uid"), ("metadata", "resourceVersion"), ("metadata", "managedFields"))


@dataclass(frozen=True, slots=True)
class NodeMatch:
    """The nodes that admit a pod by cordon, taints, node selector and node affinity; and the number of others by reason."""

    matching: tuple[str, ...]
    rejected: Mapping[str, int]

    @property
    def total(self) -> int:
        """How many nodes were looked at."""
        return len(self.matching) + sum(self.rejected.values())


def review_of(obj: JsonObject, namespace: str, user: str = "") -> JsonObject:
    """The AdmissionReview for an object that a user creates. ``namespace``: empty for a cluster-scoped object."""
    group, _, version = str(obj.get("apiVersion") or "").rpartition("/")
    request = {
        "uid": "trial",
        "kind": {"group": group, "version": version, "kind": obj.get("kind")},
        "operation": CREATE,
        "namespace": namespace,
        "object": obj,
        "dryRun": True,
        "userInfo": {"username": user},
    }
    return {"apiVersion": API_VERSION, "kind": KIND, "request": request}


def as_created(pod: JsonObject) -> JsonObject:
    """A pod as it would be created again: without its status, its node and the values that policies injected."""
    was_bound = bool(pod.get("status"))
    for path in _SET_LATER:
        pod = drop(pod, path)
    # A bound pod got its node from the scheduler. A pod of a file with a node name was written so by the user.
    if was_bound:
        pod = drop(pod, ("spec", "nodeName"))
    record = read_records(get(pod, ANNOTATION)).get("")
    if record is not None:
        pod = drop(put(pod, ("spec",), subtract(pod["spec"], record)), ANNOTATION)
    return pod


def match_nodes(pod: Pod, nodes: Iterable[Node]) -> NodeMatch:
    """The nodes that would take the pod if they were empty. O(nodes × (taints + terms))."""
    matching: list[str] = []
    rejected: Counter[str] = Counter()
    for node in nodes:
        if pod.node:
            reason = "" if node.name == pod.node else _OTHER_NODE
        else:
            rejection = static_rejection(pod, node)
            reason = "" if rejection is None else rejection.reason.text
        if reason:
            rejected[reason] += 1
        else:
            matching.append(node.name)
    return NodeMatch(tuple(sorted(matching)), dict(rejected))
