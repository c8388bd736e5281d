"""Where pods and pod templates lie in the objects that an API server asks about, and when they may be changed.

A pod and the template of a Job are immutable, so policies are injected when they are created. The other templates are
injected at every update too. Custom resources are configured by the path of their template: `policies.templates`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from extender.model.policies import JsonObject
from extender.verbs.admit.json_patch import pointer

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
# Their controller compares the template with its own, and makes another one as long as they differ.
_COPIES: Final = ("apps/v1/ReplicaSet", "v1/ReplicationController")
_EACH: Final = "*"  # of a list, as in JobSet's /spec/replicatedJobs/*/template/spec/template


def kind_name(kind: JsonObject) -> str:
    """``group/version/Kind``, or ``version/Kind`` for the core group, of a request's `kind`."""
    return "/".join(str(part) for part in (kind.get("group"), kind.get("version"), kind.get("kind")) if part)


def why_not(kind: str, operation: str, obj: JsonObject, templates: Mapping[str, str]) -> str:
    """Why an object is left as it is, empty where it may be changed."""
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


def template_paths(kind: str, obj: JsonObject, templates: Mapping[str, str]) -> list[Path]:
    """Where the pod templates of an object lie; the empty path for a pod. Templates that are missing are left out."""
    if kind == POD:
        return [()]
    path = templates.get(kind) or BUILT_IN[kind]
    parts = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    return [found for found, value in _walk(obj, parts, ()) if isinstance(value, dict)]


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
    return pointer(*map(str, path))


def read(value: Any, path: Path) -> Any:
    """What stands at a path that exists."""
    for name in path:
        value = value[name]
    return value


def written(value: Any, path: Path, new: Any) -> Any:
    """A copy with another value at a path that exists."""
    if not path:
        return new
    name, *rest = path
    copy: Any = list(value) if isinstance(value, list) else dict(value)
    copy[name] = written(copy[name], tuple(rest), new)
    return copy
