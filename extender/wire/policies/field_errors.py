"""Errors of fields in the types and words of the Kubernetes API, and checks of the scheduling fields of a pod spec.

As https://pkg.go.dev/k8s.io/apimachinery/pkg/util/validation/field: a client shows ``type`` as the reason of a cause. The checks
repeat https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/core/validation/validation.go, for a pod, a template and a
policy alike. Each function adds every error to the collector. O(size of the field).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import orjson

from extender.model.constraints.labels import is_dns_subdomain, is_label_key, is_label_value
from extender.model.policies import JsonObject
from extender.model.units import cut

_LONGEST_VALUE: Final = 100  # characters of a wrong value that are repeated in a message


class ErrorType(StrEnum):
    """The types of a field error that occur here."""

    REQUIRED = "FieldValueRequired"
    DUPLICATE = "FieldValueDuplicate"
    INVALID = "FieldValueInvalid"
    TYPE_INVALID = "FieldValueTypeInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    TOO_MANY = "FieldValueTooMany"
    TOO_LONG = "FieldValueTooLong"


_WORDS: Final = {
    ErrorType.REQUIRED: "Required value",
    ErrorType.DUPLICATE: "Duplicate value",
    ErrorType.INVALID: "Invalid value",
    ErrorType.TYPE_INVALID: "Invalid value",
    ErrorType.NOT_SUPPORTED: "Unsupported value",
    ErrorType.FORBIDDEN: "Forbidden",
    ErrorType.TOO_MANY: "Too many",
    ErrorType.TOO_LONG: "Too long",
}
_NO_VALUE: Final = object()


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error: the field's path, the type, and the text without the path."""

    field: str
    type: ErrorType
    message: str

    def __str__(self) -> str:
        """As the API server writes it: ``spec.nodeName: Invalid value: "A b": ...``."""
        return f"{self.field}: {self.message}"


class Problems:
    """Collects field errors. Each `read…` returns a value of the wanted type, empty where the field has another type."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []

    def add(self, kind: ErrorType, path: str, detail: str, value: object = _NO_VALUE) -> None:
        """Adds one error."""
        shown = "" if value is _NO_VALUE else f": {shorten(value)}"
        self.errors.append(FieldError(path, kind, f"{_WORDS[kind]}{shown}{': ' if detail else ''}{detail}"))

    def invalid(self, path: str, value: object, detail: str) -> None:
        """The value has the right type, and is wrong."""
        self.add(ErrorType.INVALID, path, detail, value)

    def required(self, path: str, detail: str) -> None:
        """A value is missing."""
        self.add(ErrorType.REQUIRED, path, detail)

    def forbidden(self, path: str, detail: str) -> None:
        """There may be no value."""
        self.add(ErrorType.FORBIDDEN, path, detail)

    def too_many(self, path: str, count: int, most: int) -> None:
        """A list is too long."""
        self.add(ErrorType.TOO_MANY, path, f"must have at most {most} items", count)

    def not_supported(self, path: str, value: object, supported: Iterable[str]) -> None:
        """The value is none of the list."""
        listed = ", ".join(f'"{each}"' for each in supported)
        self.add(ErrorType.NOT_SUPPORTED, path, f"supported values: {listed}", value)

    def read_object(self, value: Any, path: str) -> JsonObject:
        """A JSON object; null is an empty one."""
        found: JsonObject = self._read(value, dict, {}, path, "an object")
        return found

    def read_list(self, value: Any, path: str) -> list[Any]:
        """A JSON list; null is an empty one."""
        found: list[Any] = self._read(value, list, [], path, "a list")
        return found

    def read_text(self, value: Any, path: str) -> str:
        """A string; null is an empty one."""
        found: str = self._read(value, str, "", path, "a string")
        return found

    def read_number(self, value: Any, path: str, least: int, most: int) -> int | None:
        """An integer in a range; None where it is null or wrong."""
        if value is None:
            return None
        # In Python true is an integer too.
        if not isinstance(value, int) or isinstance(value, bool):
            self.add(ErrorType.TYPE_INVALID, path, "must be an integer", value)
            return None
        if not least <= value <= most:
            self.invalid(path, value, f"must be in the range {least}-{most}")
            return None
        return value

    def read_choice(self, value: Any, path: str, choices: Iterable[str]) -> str:
        """One of a list of words; empty where it is null or wrong."""
        text = self.read_text(value, path)
        if text and text not in choices:
            self.not_supported(path, text, choices)
            return ""
        return text

    def read_texts(self, value: Any, path: str) -> list[str]:
        """A list of strings. Any other element is an error, and left out."""
        return [item for item, at in self.items(value, path) if self._is_text(item, at)]

    def read_strings(self, value: Any, path: str) -> dict[str, str]:
        """An object of strings. Any other field is an error, and left out."""
        return {k: v for k, v in self.read_object(value, path).items() if self._is_text(v, f"{path}[{k}]")}

    def items(self, value: Any, path: str) -> Iterator[tuple[Any, str]]:
        """The elements of a list with their paths."""
        for number, item in enumerate(self.read_list(value, path)):
            yield item, f"{path}[{number}]"

    def objects(self, value: Any, path: str) -> Iterator[tuple[JsonObject, str]]:
        """The elements of a list of objects with their paths."""
        for item, at in self.items(value, path):
            if isinstance(item, dict):
                yield item, at
            else:
                self.add(ErrorType.TYPE_INVALID, at, "must be an object", item)

    def _is_text(self, value: Any, path: str) -> bool:
        if isinstance(value, str):
            return True
        self.add(ErrorType.TYPE_INVALID, path, "must be a string", value)
        return False

    def _read(self, value: Any, kind: type, empty: Any, path: str, what: str) -> Any:
        if value is None:
            return empty
        if not isinstance(value, kind):
            self.add(ErrorType.TYPE_INVALID, path, f"must be {what}", value)
            return empty
        return value


def shorten(value: object) -> str:
    """A JSON value for a message, cut at 100 characters."""
    return cut(orjson.dumps(value, default=str).decode(), _LONGEST_VALUE)


_QUALIFIED_NAME: Final = "name part must consist of alphanumeric characters, '-', '_' or '.'"
_LABEL_VALUE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)
_SUBDOMAIN: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_NAMESPACE: Final = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'"
_LONGEST_NAMESPACE: Final = 63
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_MOST_WEIGHT: Final = 100
INT32: Final = 2**31 - 1


def check_label_key(found: Problems, key: str, path: str) -> None:
    """A label key: a qualified name."""
    if not is_label_key(key):
        found.invalid(path, key, _QUALIFIED_NAME)


def check_subdomain(found: Problems, name: str, path: str) -> None:
    """A DNS subdomain, as the names of most objects are."""
    if not is_dns_subdomain(name):
        found.invalid(path, name, _SUBDOMAIN)


def check_namespace(found: Problems, name: str, path: str) -> None:
    """The name of a namespace: a DNS label."""
    # A namespace is one DNS label, and a subdomain may have several.
    if "." in name or len(name) > _LONGEST_NAMESPACE or not is_dns_subdomain(name):
        found.invalid(path, name, _NAMESPACE)


def check_labels(found: Problems, value: Any, path: str) -> None:
    """A map of labels. Errors are about the map, as in the API."""
    for key, text in found.read_strings(value, path).items():
        check_label_key(found, key, path)
        if not is_label_value(text):
            found.invalid(path, text, _LABEL_VALUE)


def check_label_selector(found: Problems, value: Any, path: str) -> None:
    """A LabelSelector."""
    selector = found.read_object(value, path)
    check_labels(found, selector.get("matchLabels"), f"{path}.matchLabels")
    for item, at in found.objects(selector.get("matchExpressions"), f"{path}.matchExpressions"):
        operator, values = _requirement(found, item, at)
        if operator in ("In", "NotIn"):
            if not values:
                found.required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
            for number, text in enumerate(values):
                if not is_label_value(text):
                    found.invalid(f"{at}.values[{number}]", text, _LABEL_VALUE)
        elif operator in ("Exists", "DoesNotExist"):
            _forbid_values(found, values, at)
        else:
            found.invalid(f"{at}.operator", operator, "not a valid selector operator")
        check_label_key(found, found.read_text(item.get("key"), f"{at}.key"), f"{at}.key")


def _requirement(found: Problems, item: JsonObject, at: str) -> tuple[str, list[str]]:
    return found.read_text(item.get("operator"), f"{at}.operator"), found.read_texts(item.get("values"), f"{at}.values")


def _forbid_values(found: Problems, values: list[str], at: str) -> None:
    if values:
        found.forbidden(f"{at}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")


def check_affinity(found: Problems, value: Any, path: str) -> None:
    """An Affinity."""
    affinity = found.read_object(value, path)
    _check_node_affinity(found, affinity.get("nodeAffinity"), f"{path}.nodeAffinity")
    for name in ("podAffinity", "podAntiAffinity"):
        parent = found.read_object(affinity.get(name), f"{path}.{name}")
        for term, at in found.objects(parent.get(REQUIRED), f"{path}.{name}.{REQUIRED}"):
            _check_pod_term(found, term, at)
        for weighted, at in found.objects(parent.get(PREFERRED), f"{path}.{name}.{PREFERRED}"):
            _check_weight(found, weighted, at)
            below = f"{at}.podAffinityTerm"
            _check_pod_term(found, found.read_object(weighted.get("podAffinityTerm"), below), below)


def _check_node_affinity(found: Problems, value: Any, path: str) -> None:
    affinity = found.read_object(value, path)
    if affinity.get(REQUIRED) is not None:
        required = found.read_object(affinity[REQUIRED], f"{path}.{REQUIRED}")
        at = f"{path}.{REQUIRED}.nodeSelectorTerms"
        if not found.read_list(required.get("nodeSelectorTerms"), at):
            found.required(at, "must have at least one node selector term")
        for term, below in found.objects(required.get("nodeSelectorTerms"), at):
            _check_node_term(found, term, below)
    for preferred, at in found.objects(affinity.get(PREFERRED), f"{path}.{PREFERRED}"):
        _check_weight(found, preferred, at)
        _check_node_term(found, found.read_object(preferred.get("preference"), f"{at}.preference"), f"{at}.preference")


def _check_weight(found: Problems, item: JsonObject, at: str) -> None:
    if item.get("weight") is None:
        # A missing number is 0 in Go, so the API server reports it as out of range, not as missing.
        found.invalid(f"{at}.weight", 0, f"must be in the range 1-{_MOST_WEIGHT}")
    found.read_number(item.get("weight"), f"{at}.weight", 1, _MOST_WEIGHT)


def _check_node_term(found: Problems, term: JsonObject, path: str) -> None:
    for item, at in found.objects(term.get("matchExpressions"), f"{path}.matchExpressions"):
        _check_node_expression(found, item, at)
    for item, at in found.objects(term.get("matchFields"), f"{path}.matchFields"):
        _check_node_field(found, item, at)


def _check_node_expression(found: Problems, item: JsonObject, at: str) -> None:
    operator, values = _requirement(found, item, at)
    if operator in ("In", "NotIn"):
        if not values:
            found.required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        _forbid_values(found, values, at)
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            found.required(f"{at}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        found.invalid(f"{at}.operator", operator, "not a valid selector operator")
    check_label_key(found, found.read_text(item.get("key"), f"{at}.key"), f"{at}.key")


def _check_node_field(found: Problems, item: JsonObject, at: str) -> None:
    operator, values = _requirement(found, item, at)
    if operator not in ("In", "NotIn"):
        found.invalid(f"{at}.operator", operator, "not a valid selector operator")
    elif len(values) != 1:
        found.required(
            f"{at}.values", "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        )
    key = found.read_text(item.get("key"), f"{at}.key")
    if key != "metadata.name":
        found.invalid(f"{at}.key", key, "not a valid field selector key")
        return
    for number, name in enumerate(values):
        check_subdomain(found, name, f"{at}.values[{number}]")


def _check_pod_term(found: Problems, term: JsonObject, at: str) -> None:
    check_label_selector(found, term.get("labelSelector"), f"{at}.labelSelector")
    check_label_selector(found, term.get("namespaceSelector"), f"{at}.namespaceSelector")
    for name in found.read_texts(term.get("namespaces"), f"{at}.namespaces"):
        check_namespace(found, name, f"{at}.namespace")  # without a number, as in the API
    key = found.read_text(term.get("topologyKey"), f"{at}.topologyKey")
    if not key:
        found.required(f"{at}.topologyKey", "can not be empty")
    check_label_key(found, key, f"{at}.topologyKey")  # also of an empty one, as in the API
    _check_label_keys(found, term, at)


def _check_label_keys(found: Problems, item: JsonObject, at: str) -> None:
    """KEP-3633: matchLabelKeys and mismatchLabelKeys need a selector, and share no key."""
    match = found.read_texts(item.get("matchLabelKeys"), f"{at}.matchLabelKeys")
    mismatch = found.read_texts(item.get("mismatchLabelKeys"), f"{at}.mismatchLabelKeys")
    for name, keys in (("matchLabelKeys", match), ("mismatchLabelKeys", mismatch)):
        if keys and item.get("labelSelector") is None:
            found.forbidden(f"{at}.{name}", "must not be specified when labelSelector is not set")
        for number, key in enumerate(keys):
            check_label_key(found, key, f"{at}.{name}[{number}]")
    for number, key in enumerate(match):
        if key in mismatch:
            found.invalid(f"{at}.matchLabelKeys[{number}]", key, "exists in both matchLabelKeys and mismatchLabelKeys")


def check_tolerations(found: Problems, value: Any, path: str) -> None:
    """A list of Tolerations. The operators Lt and Gt (KEP-5471) are behind a gate that is off, and refused here."""
    for item, at in found.objects(value, path):
        _check_toleration(found, item, at)


def _check_toleration(found: Problems, item: JsonObject, at: str) -> None:
    text: Callable[[str], str] = lambda name: found.read_text(item.get(name), f"{at}.{name}")  # noqa: E731 (read four times)
    key, operator, effect, value = text("key"), text("operator"), text("effect"), text("value")
    if key:
        check_label_key(found, key, f"{at}.key")
    elif operator != "Exists":
        found.invalid(f"{at}.operator", operator, "operator must be Exists when `key` is empty, which means match all")
    seconds = item.get("tolerationSeconds")
    # Negative seconds are legal: the pod is evicted at once, as with 0.
    found.read_number(seconds, f"{at}.tolerationSeconds", -(2**63), 2**63 - 1)
    if seconds is not None and effect != "NoExecute":
        found.invalid(f"{at}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
    if operator in ("", "Equal"):
        if not is_label_value(value):
            found.invalid(f"{at}.operator", value, _LABEL_VALUE)
    elif operator == "Exists":
        if value:
            found.invalid(f"{at}.operator", value, "value must be empty when `operator` is 'Exists'")
    else:
        found.not_supported(f"{at}.operator", operator, ("Equal", "Exists"))
    if effect and effect not in _EFFECTS:
        found.not_supported(f"{at}.effect", effect, _EFFECTS)


def check_spread_constraints(found: Problems, value: Any, path: str) -> None:
    """Spread constraints. Unlike in a pod, minDomains may stand with ScheduleAnyway: then the extender scores it."""
    places: dict[tuple[str, str], str] = {}
    for item, at in found.objects(value, path):
        if item.get("maxSkew") is None:
            found.required(f"{at}.maxSkew", "")
        found.read_number(item.get("maxSkew"), f"{at}.maxSkew", 1, INT32)
        found.read_number(item.get("minDomains"), f"{at}.minDomains", 1, INT32)
        key = found.read_text(item.get("topologyKey"), f"{at}.topologyKey")
        if key:
            check_label_key(found, key, f"{at}.topologyKey")
        else:
            found.required(f"{at}.topologyKey", "can not be empty")
        action = _required_choice(found, item, "whenUnsatisfiable", at, ("DoNotSchedule", "ScheduleAnyway"))
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            found.read_choice(item.get(name), f"{at}.{name}", ("Honor", "Ignore"))
        check_label_selector(found, item.get("labelSelector"), f"{at}.labelSelector")
        _check_label_keys(found, item, at)
        if key and action and (key, action) in places:  # the API names the first of two
            path = f"{places[key, action]}.{{topologyKey, whenUnsatisfiable}}"
            found.add(ErrorType.DUPLICATE, path, "", [key, action])
        places[key, action] = at


def _required_choice(found: Problems, item: JsonObject, name: str, at: str, choices: tuple[str, ...]) -> str:
    if item.get(name) in (None, ""):
        found.required(f"{at}.{name}", f"must be one of {', '.join(choices)}")
        return ""
    return found.read_choice(item[name], f"{at}.{name}", choices)
