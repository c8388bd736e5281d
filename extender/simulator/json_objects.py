"""API objects as plain JSON mappings: readers and label selectors for the packages of `simulator`.

Does not use the types of `model`, and implements selectors a second time, because the API server and the oracle must not
share bugs with the code that they test.
"""

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]

# As strconv.ParseInt of Go, base 10, 64 bits; int() would also accept blanks and underscores.
_INTEGER = re.compile(r"[+-]?[0-9]+")
_INT64 = range(-(2**63), 2**63)

TOPOLOGY_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


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
    """Whether the pod has finished; kube-scheduler does not watch such pods."""
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}


def is_terminating(pod: JsonObject) -> bool:
    """Whether the pod is being deleted."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def condition_of(obj: JsonObject, kind: str) -> JsonObject | None:
    """The status condition of that type, if the object has it."""
    conditions = obj.get("status", {}).get("conditions") or []
    return next((condition for condition in conditions if condition.get("type") == kind), None)


def set_condition(obj: JsonObject, condition: JsonObject) -> None:
    """Replaces the status condition of the same type; lastTransitionTime changes only with its status."""
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
    """The time `offset` seconds from now in the API's format (RFC 3339, whole seconds, UTC)."""
    return _formatted(int(time.time() + offset))


# Thousands of objects are stamped within one second.
@lru_cache(maxsize=1_000)
def _formatted(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def selects(selector: JsonObject | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches. An absent one matches nothing, an empty one everything."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return all(holds(requirement, labels) for requirement in selector.get("matchExpressions") or [])


def holds(requirement: JsonObject, labels: Mapping[str, str]) -> bool:
    """Whether labels meet one requirement: In, NotIn, Exists, DoesNotExist; Gt and Lt for nodes."""
    key, values = requirement["key"], requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            # A label that is missing satisfies NotIn.
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case "Gt" | "Lt" as operator:
            return _compares(labels.get(key), operator, values)
        case _:
            return False


def _compares(label: str | None, operator: str, values: list[str]) -> bool:
    if label is None or len(values) != 1 or not (_INTEGER.fullmatch(label) and _INTEGER.fullmatch(values[0])):
        return False
    ours, bound = int(label), int(values[0])
    if ours not in _INT64 or bound not in _INT64:
        return False
    return ours > bound if operator == "Gt" else ours < bound
