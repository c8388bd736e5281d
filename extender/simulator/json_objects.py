"""API objects as plain JSON mappings, and the few readers that all of `simulator` shares.

No typed model enters here: API server and oracle must not share a mistake with the code that they test.
"""

from datetime import UTC, datetime
from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]


def labels_of(obj: JsonObject) -> dict[str, str]:
    """The object's labels; empty when it has none."""
    return obj["metadata"].get("labels") or {}


def name_of(obj: JsonObject) -> str:
    """The object's name."""
    return str(obj["metadata"]["name"])


def namespace_of(obj: JsonObject) -> str:
    """The object's namespace; empty for cluster-wide kinds."""
    return str(obj["metadata"].get("namespace") or "")


def uid_of(obj: JsonObject) -> str:
    """The object's uid; empty before the API server has seen it."""
    return str(obj["metadata"].get("uid") or "")


def node_of(pod: JsonObject) -> str:
    """The node that the pod is bound to; empty while it is pending."""
    return str(pod.get("spec", {}).get("nodeName") or "")


def is_finished(pod: JsonObject) -> bool:
    """Whether the pod has run to its end; the scheduler does not even watch such pods."""
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}


def is_terminating(pod: JsonObject) -> bool:
    """Whether the pod is being deleted."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def condition_of(obj: JsonObject, kind: str) -> JsonObject | None:
    """The status condition of that type, if the object has it."""
    conditions = obj.get("status", {}).get("conditions") or []
    return next((condition for condition in conditions if condition.get("type") == kind), None)


def set_condition(obj: JsonObject, condition: JsonObject) -> None:
    """Put a status condition in place of the one of the same type; lastTransitionTime moves only with the status."""
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    fresh = {"lastProbeTime": None, "lastTransitionTime": timestamp(), **condition}
    for index, old in enumerate(conditions):
        if old.get("type") == condition["type"]:
            if old.get("status") == condition["status"]:
                fresh["lastTransitionTime"] = old.get("lastTransitionTime")
            conditions[index] = fresh
            return
    conditions.append(fresh)


def timestamp(offset: float = 0.0) -> str:
    """The wall clock `offset` seconds from now, as the API server writes it (RFC 3339, whole seconds, UTC)."""
    moment = datetime.fromtimestamp(datetime.now(UTC).timestamp() + offset, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
