"""Changes to plain JSON that leave the original alone: only the objects on the way to a change are copied.

So an unchanged part stays the same Python object, which the JSON patch relies on, and no field is lost that is not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from extender.model.policies import JsonObject


def get(value: JsonObject, path: Iterable[str]) -> Any:
    """What stands at a path of field names; None where it is missing, or where a part of the path is no object."""
    found: Any = value
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def put(value: JsonObject, path: Iterable[str], new: Any) -> JsonObject:
    """A copy with a value at a path; objects that are missing on the way are made. O(fields on the way)."""
    name, *rest = path
    copy = dict(value)
    below = copy.get(name)
    copy[name] = put(below if isinstance(below, dict) else {}, rest, new) if rest else new
    return copy


def drop(value: JsonObject, path: Iterable[str]) -> JsonObject:
    """A copy without the field at a path; the same object where there is no such field."""
    name, *rest = path
    if name not in value:
        return value
    copy = dict(value)
    if not rest:
        del copy[name]
        return copy
    if not isinstance(copy[name], dict):
        return value
    copy[name] = drop(copy[name], rest)
    return value if copy[name] is value[name] else copy


def missing_parents(value: JsonObject, path: tuple[str, ...]) -> list[str]:
    """The dotted paths of the field and of the objects above it that do not exist."""
    return [".".join(path[: n + 1]) for n in range(len(path)) if get(value, path[: n + 1]) is None]
