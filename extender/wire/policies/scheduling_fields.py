"""Checks the scheduling fields of a pod spec, wherever they stand, as the Kubernetes API checks them.

https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/core/validation/validation.go. Each function adds every
error to the collector. O(size of the field).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from extender.model.constraints.labels import is_dns_subdomain, is_label_key, is_label_value
from extender.model.policies import JsonObject
from extender.wire.policies.field_errors import ErrorType, Problems

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
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_MOST_WEIGHT: Final = 100
_INT32: Final = 2**31 - 1


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
        for term, at in found.objects(parent.get(_REQUIRED), f"{path}.{name}.{_REQUIRED}"):
            _check_pod_term(found, term, at)
        for weighted, at in found.objects(parent.get(_PREFERRED), f"{path}.{name}.{_PREFERRED}"):
            _check_weight(found, weighted, at)
            below = f"{at}.podAffinityTerm"
            _check_pod_term(found, found.read_object(weighted.get("podAffinityTerm"), below), below)


def _check_node_affinity(found: Problems, value: Any, path: str) -> None:
    affinity = found.read_object(value, path)
    if affinity.get(_REQUIRED) is not None:
        required = found.read_object(affinity[_REQUIRED], f"{path}.{_REQUIRED}")
        at = f"{path}.{_REQUIRED}.nodeSelectorTerms"
        if not found.read_list(required.get("nodeSelectorTerms"), at):
            found.required(at, "must have at least one node selector term")
        for term, below in found.objects(required.get("nodeSelectorTerms"), at):
            _check_node_term(found, term, below)
    for preferred, at in found.objects(affinity.get(_PREFERRED), f"{path}.{_PREFERRED}"):
        _check_weight(found, preferred, at)
        _check_node_term(found, found.read_object(preferred.get("preference"), f"{at}.preference"), f"{at}.preference")


def _check_weight(found: Problems, item: JsonObject, at: str) -> None:
    if item.get("weight") is None:
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
    if seconds is not None and (not isinstance(seconds, int) or isinstance(seconds, bool)):
        found.add(ErrorType.TYPE_INVALID, f"{at}.tolerationSeconds", "must be an integer", seconds)
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
    pairs: set[tuple[str, str]] = set()
    for item, at in found.objects(value, path):
        if item.get("maxSkew") is None:
            found.required(f"{at}.maxSkew", "")
        found.read_number(item.get("maxSkew"), f"{at}.maxSkew", 1, _INT32)
        found.read_number(item.get("minDomains"), f"{at}.minDomains", 1, _INT32)
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
        if key and action and (key, action) in pairs:
            found.add(ErrorType.DUPLICATE, f"{at}.{{topologyKey, whenUnsatisfiable}}", "", [key, action])
        pairs.add((key, action))


def _required_choice(found: Problems, item: JsonObject, name: str, at: str, choices: tuple[str, ...]) -> str:
    if item.get(name) in (None, ""):
        found.required(f"{at}.{name}", f"must be one of {', '.join(choices)}")
        return ""
    return found.read_choice(item[name], f"{at}.{name}", choices)
