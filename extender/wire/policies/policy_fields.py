"""The fields of a policy by the schema of its CRD, and which fields of a document are none of them.

The API server drops an unknown field before it stores a policy. A file, an older CRD and kupid's own can still have some. The name
of such a field is free text, so it goes into no pod and no expression.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from extender.model.policies import JsonObject
from extender.wire.policies.node_terms import PREFERRED, REQUIRED, SPREAD, TOLERATIONS
from extender.wire.policies.policy_validation import RELEASE_FIELDS, SPREAD_FIELDS

Fields: TypeAlias = "Mapping[str, Fields | None]"
"""The fields of an object, or of each object of a list; None where nothing below a field has a name of the schema."""

_LONGEST_NAME: Final = 100  # of an unknown field, in a path


def _without_parts(*names: str) -> dict[str, Fields | None]:
    return dict.fromkeys(names)


_REQUIREMENT: Final = _without_parts("key", "operator", "values")
_SELECTOR: Final[Fields] = {"matchLabels": None, "matchExpressions": _REQUIREMENT}
_NODE_TERM: Final[Fields] = {"matchExpressions": _REQUIREMENT, "matchFields": _REQUIREMENT}
_POD_TERM: Final[Fields] = {
    "labelSelector": _SELECTOR,
    "namespaceSelector": _SELECTOR,
    **_without_parts("namespaces", "topologyKey", "matchLabelKeys", "mismatchLabelKeys"),
}
_POD_AFFINITY: Final[Fields] = {REQUIRED: _POD_TERM, PREFERRED: {"weight": None, "podAffinityTerm": _POD_TERM}}
_SELECTED: Final = _without_parts("ownerKinds", "serviceAccounts", "priorityClassNames")

WRITTEN_FIELDS: Final[Fields] = {
    "affinity": {
        "nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": _NODE_TERM},
            PREFERRED: {"weight": None, "preference": _NODE_TERM},
        },
        "podAffinity": _POD_AFFINITY,
        "podAntiAffinity": _POD_AFFINITY,
    },
    TOLERATIONS: _without_parts("key", "operator", "value", "effect", "tolerationSeconds"),
    SPREAD: {
        "labelSelector": _SELECTOR,
        **_without_parts("maxSkew", "topologyKey", "whenUnsatisfiable", "matchLabelKeys", "minDomains"),
        **_without_parts("nodeAffinityPolicy", "nodeTaintsPolicy"),
    },
    "schedulingGates": _without_parts("name"),
}
"""Those of a spec whose objects are written into pods."""

READ_FIELDS: Final[Fields] = {
    "podSelector": _SELECTOR,
    "namespaceSelector": _SELECTOR,
    "matchConditions": {
        **_SELECTED,
        "exclude": {"podSelector": _SELECTOR, "namespaces": None, **_SELECTED},
    },
    "spread": _without_parts(*SPREAD_FIELDS),
    "release": {
        **_without_parts(*RELEASE_FIELDS),
        "group": _without_parts("label", "owner"),
        "size": _without_parts("count", "label", "annotation"),
        "domains": {
            **_without_parts("name", "values", "preferred", "mayGrow"),
            "quota": _without_parts("pods", "resources"),
            "tolerations": _without_parts("key", "operator", "value", "effect", "tolerationSeconds"),
        },
    },
    **_without_parts("nodeSelector", "nodeName", "schedulerName", "schedulerNames", "priorityClassName"),
    **_without_parts("when", "targets", "priority", "conflictPolicy", "failurePolicy", "mode"),
}
"""The others, which the extender reads, and plain values."""

SPEC_FIELDS: Final[Fields] = {**WRITTEN_FIELDS, **READ_FIELDS}


def unknown_in_pods(spec: JsonObject) -> Iterator[str]:
    """The paths of fields that would be written into pods and are no fields there. O(size until the last one that is asked for)."""
    for name, fields in WRITTEN_FIELDS.items():
        yield from unknown_fields(spec.get(name), fields, f"spec.{name}")


def unknown_elsewhere(spec: Any) -> Iterator[str]:
    """The paths of the other unknown fields, which have no effect."""
    written = dict.fromkeys(WRITTEN_FIELDS)
    yield from unknown_fields(spec, {**written, **READ_FIELDS}, "spec")


def unknown_fields(value: Any, fields: Fields | None, path: str) -> Iterator[str]:
    """The paths of all fields of a JSON value that the schema does not have."""
    if fields is None:
        return
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from unknown_fields(item, fields, f"{path}[{number}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            if name in fields:
                yield from unknown_fields(item, fields[name], f"{path}.{name}")
            else:
                yield f"{path}.{name[:_LONGEST_NAME]}"


def with_known_fields(value: Any, fields: Fields | None = SPEC_FIELDS) -> Any:
    """A copy of a spec, or of a part of it, that has the fields of the schema alone."""
    if fields is not None and isinstance(value, list):
        return [with_known_fields(item, fields) for item in value]
    if fields is not None and isinstance(value, dict):
        return {name: with_known_fields(item, fields[name]) for name, item in value.items() if name in fields}
    return value
