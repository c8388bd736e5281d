"""When two pod specs are equal to the API server: not as JSON, but as the Go structs that it decodes.

An absent field is equal to null, to an empty list or map, and to the zero value of a field that is no pointer. Quantities
are equal by value ("1" and "1000m"). An empty object is equal to an absent one only where the struct is no pointer.
"""

from __future__ import annotations

from typing import Any, Final

from extender.model.policies import JsonObject
from extender.model.resources import QuantityError, parse_quantity

# Fields of pods by type, from k8s.io/kubernetes/pkg/apis/core/types.go.
_MAPS: Final = frozenset(
    {
        "nodeSelector",
        "limits",
        "requests",
        "overhead",
        "matchLabels",
        "labels",
        "annotations",
        "volumeAttributes",
        "options",
    }
)
_PLAIN_STRUCTS: Final = frozenset({"resources", "preference", "podAffinityTerm", "metadata", "spec"})
_PLAIN_ZEROS: Final = frozenset(
    {
        "stdin", "stdinOnce", "tty", "readOnly", "hostNetwork", "hostPID", "hostIPC", "hostPort", "containerPort", "weight",
        "maxSkew", "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold", "partition",
    }
)  # fmt: skip
_QUANTITY_MAPS: Final = frozenset({"limits", "requests", "overhead"})
_QUANTITIES: Final = frozenset({"sizeLimit", "divisor"})


def comparable_spec(spec: JsonObject) -> dict[str, Any]:
    """A copy of a pod spec in a form in which equal specs are equal values. O(size)."""
    found = _fields(spec)
    # Both names are read, and the security context of a pod is never nil: it holds hostNetwork and its like.
    account = found.pop("serviceAccount", None)
    if account is not None:
        found.setdefault("serviceAccountName", account)
    if found.get("securityContext") == {}:
        del found["securityContext"]
    if isinstance(spec.get("resources"), dict):  # a pointer here, and none in a container
        found.setdefault("resources", {})
    return found


def comparable(value: Any, name: str = "") -> Any:
    """A value of the field ``name`` in that form; None where it is equal to an absent one."""
    match value:
        case None | "" | []:
            return None
        case bool() | int() if not value and name in _PLAIN_ZEROS:
            return None
        case list():
            return [comparable(each) or {} if isinstance(each, dict) else each for each in value]
        case dict():
            fields = _quantities(value) if name in _QUANTITY_MAPS else value if name in _MAPS else _fields(value)
            return None if not fields and name in _MAPS | _PLAIN_STRUCTS else fields
        case str() if name in _QUANTITIES:
            return _quantity(value)
        case _:
            return value


def _fields(value: JsonObject) -> dict[str, Any]:
    pairs = ((name, comparable(each, name)) for name, each in value.items())
    return {name: each for name, each in pairs if each is not None}


def _quantities(value: JsonObject) -> dict[str, Any]:
    return {name: _quantity(text) for name, text in value.items()}


def _quantity(text: Any) -> Any:
    try:
        return parse_quantity(str(text), milli=True)
    except QuantityError:
        return text
