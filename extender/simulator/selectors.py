"""Label selectors inside plain objects: `matchLabels` and `matchExpressions`.

A second implementation on purpose: the API server and the oracle share no code with the service that they test.
"""

import re
from collections.abc import Mapping

from extender.simulator.json_objects import JsonObject

# Go's strconv.ParseInt, base 10, 64 bits; Python's int() would take blanks and underscores, too.
_INTEGER = re.compile(r"[+-]?[0-9]+")
_LARGEST = 2**63 - 1


def selects(selector: JsonObject | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches: absent matches nothing, empty matches everything."""
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
    if max(abs(ours), abs(bound)) > _LARGEST:
        return False
    return ours > bound if operator == "Gt" else ours < bound
