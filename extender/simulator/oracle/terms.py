"""Affinity terms and selectors for the oracle: which pods a term selects, and whether it is valid.

Plain objects; must not import the model. Called by `oracle/brute_force.py`.
"""

import re
from collections.abc import Iterable, Mapping

from extender.simulator.json_objects import JsonObject, labels_of, namespace_of, selects

AFFINITY, ANTI_AFFINITY = "podAffinity", "podAntiAffinity"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_PREFIX = 253


def required_pod_terms(pod: JsonObject, side: str) -> list[JsonObject]:
    """The required terms of one side, `podAffinity` or `podAntiAffinity`."""
    rules = (pod["spec"].get("affinity") or {}).get(side) or {}
    return rules.get(_REQUIRED) or []


def preferred_pod_terms(pod: JsonObject, side: str) -> list[JsonObject]:
    """The preferred terms of one side, without their weights."""
    rules = (pod["spec"].get("affinity") or {}).get(side) or {}
    return [weighted["podAffinityTerm"] for weighted in rules.get(_PREFERRED) or []]


class Term:
    """One required term, and the namespace of its pod."""

    def __init__(self, raw: JsonObject, owner_namespace: str) -> None:
        self.key: str = raw["topologyKey"]
        self.selector: JsonObject | None = raw.get("labelSelector")
        self.names: list[str] = raw.get("namespaces") or []
        self.namespaces: JsonObject | None = raw.get("namespaceSelector")
        self.owner_namespace = owner_namespace

    def covers(self, namespace: str, labels: Mapping[str, str] | None) -> bool:
        """Whether the term covers a namespace. `labels` is None if there is no Namespace object (KEP-2249)."""
        if not self.names and self.namespaces is None:
            return namespace == self.owner_namespace
        if namespace in self.names:
            return True
        if self.namespaces is None:
            return False
        return is_empty(self.namespaces) or (labels is not None and selects(self.namespaces, labels))

    def selects_for_incoming(self, other: JsonObject, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
        """As a term of the incoming pod: a namespace without an object is covered by name or by `{}` only."""
        namespace = namespace_of(other)
        return selects(self.selector, labels_of(other)) and self.covers(namespace, namespaces.get(namespace))

    def selects_for_existing(self, incoming: JsonObject, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
        """As a term of an existing pod: a namespace without an object has no labels."""
        namespace = namespace_of(incoming)
        return selects(self.selector, labels_of(incoming)) and self.covers(namespace, namespaces.get(namespace, {}))


def effective_selector(constraint: JsonObject, pod: JsonObject) -> JsonObject | None:
    """The constraint's selector, with the pod's value of each matchLabelKeys key that it has (KEP-3243)."""
    selector = constraint.get("labelSelector")
    if selector is None:
        return None
    labels = labels_of(pod)
    own = [key for key in constraint.get("matchLabelKeys") or [] if key in labels]
    added = [{"key": key, "operator": "In", "values": [labels[key]]} for key in own]
    return {**selector, "matchExpressions": [*(selector.get("matchExpressions") or []), *added]}


def is_empty(selector: JsonObject | None) -> bool:
    """Whether a selector is present and has no requirements."""
    return selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions")


def are_parsable(pod: JsonObject, required_of: str = "") -> bool:
    """Whether all terms of the pod are valid; with `required_of`, only the required ones of that side."""
    if required_of:
        return _can_read(required_pod_terms(pod, required_of))
    sides = (AFFINITY, ANTI_AFFINITY)
    return all(_can_read(required_pod_terms(pod, side) + preferred_pod_terms(pod, side)) for side in sides)


def _can_read(terms: Iterable[JsonObject]) -> bool:
    return all(is_parsable(term.get("labelSelector")) and is_parsable(term.get("namespaceSelector")) for term in terms)


def is_parsable(selector: JsonObject | None) -> bool:
    """Whether a label selector has valid syntax; an absent one has."""
    if selector is None:
        return True
    pairs = (selector.get("matchLabels") or {}).items()
    return all(_is_key(key) and _is_value(value) for key, value in pairs) and all(
        _is_requirement(requirement) for requirement in selector.get("matchExpressions") or []
    )


def _is_requirement(requirement: JsonObject) -> bool:
    values = requirement.get("values") or []
    if not _is_key(requirement["key"]) or not all(map(_is_value, values)):
        return False
    match requirement["operator"]:
        case "In" | "NotIn":
            return bool(values)
        case "Exists" | "DoesNotExist":
            return not values
        case _:
            return False


def _is_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and not (_PREFIX.fullmatch(prefix) and len(prefix) <= _LONGEST_PREFIX):
        return False
    return _NAME.fullmatch(name) is not None


def _is_value(value: str) -> bool:
    return not value or _NAME.fullmatch(value) is not None
