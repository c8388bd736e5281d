"""The fields of a policy by the schema of its CRD, and which fields of a document are none of them.

The API server drops an unknown field before it stores a policy. A file, an older CRD and kupid's own can still have some. The name
of such a field is free text, so it goes into no pod and no expression.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from extender.model.policies import JsonObject
from extender.wire.policies.node_terms import SPREAD, TOLERATIONS
from extender.wire.policies.policy_schema import SPEC
from extender.wire.policies.schema import Many, Record, Type

Fields: TypeAlias = "Mapping[str, Fields | None]"
"""The fields of an object, or of each object of a list; None where nothing below a field has a name of the schema."""

_LONGEST_NAME: Final = 100  # of an unknown field, in a path


def _fields_of(declared: Type) -> Fields | None:
    declared = declared.item if isinstance(declared, Many) else declared
    return {each.name: _fields_of(each.type) for each in declared.fields} if isinstance(declared, Record) else None


SPEC_FIELDS: Final[Fields] = _fields_of(SPEC) or {}
_WRITTEN: Final = ("affinity", TOLERATIONS, SPREAD, "schedulingGates")
WRITTEN_FIELDS: Final[Fields] = {name: SPEC_FIELDS[name] for name in _WRITTEN}
"""Those of a spec whose objects are written into pods."""


def spec_fields(*, is_cluster: bool) -> tuple[str, ...]:
    """The fields of a spec that are read."""
    return tuple(name for name in SPEC_FIELDS if is_cluster or name != "namespaceSelector")


def unknown_in_pods(spec: JsonObject) -> Iterator[str]:
    """The paths of fields that would be written into pods and are no fields there. O(size until the last one that is asked for)."""
    for name, fields in WRITTEN_FIELDS.items():
        yield from unknown_fields(spec.get(name), fields, f"spec.{name}")


def unknown_elsewhere(spec: Any) -> Iterator[str]:
    """The paths of the other unknown fields, which have no effect."""
    yield from unknown_fields(spec, {**SPEC_FIELDS, **dict.fromkeys(WRITTEN_FIELDS)}, "spec")


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


def with_known_fields(value: Any, fields: Fields | None) -> Any:
    """A copy of a spec, or of a part of it, that has the fields of the schema alone."""
    if fields is not None and isinstance(value, list):
        return [with_known_fields(item, fields) for item in value]
    if fields is not None and isinstance(value, dict):
        return {name: with_known_fields(item, fields[name]) for name, item in value.items() if name in fields}
    return value
