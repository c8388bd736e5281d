"""Changes to plain JSON that leave the original alone, and the smallest JSON patch (RFC 6902) from one object to another.

Only objects on the path to a change are copied. So an unchanged part stays the same Python object, and unknown fields are kept.
The patch skips parts that are the same object, so it costs O(changes), not O(object). It has a `test` before each `replace` and
`remove`. https://www.rfc-editor.org/rfc/rfc6902
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from extender.model.policies import JsonObject

Operation = dict[str, Any]


def make_patch(old: JsonObject, new: JsonObject) -> list[Operation]:
    """The operations in order; empty where the objects are equal."""
    operations: list[Operation] = []
    _compare_objects(old, new, "", operations)
    return operations


def pointer(*names: str) -> str:
    """A JSON pointer (RFC 6901) of field names."""
    return "".join(f"/{name.replace('~', '~0').replace('/', '~1')}" for name in names)


def _compare(old: Any, new: Any, path: str, operations: list[Operation]) -> None:
    if old is new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        _compare_objects(old, new, path, operations)
    elif isinstance(old, list) and isinstance(new, list):
        _compare_lists(old, new, path, operations)
    elif not _equal(old, new):
        operations.append({"op": "test", "path": path, "value": old})
        operations.append({"op": "replace", "path": path, "value": new})


def _equal(old: Any, new: Any) -> bool:
    """JSON equality. It differs from Python's, where True equals 1."""
    return bool(old == new) and isinstance(old, bool) == isinstance(new, bool)


def _compare_objects(old: JsonObject, new: JsonObject, path: str, operations: list[Operation]) -> None:
    for name, value in old.items():
        if name not in new:
            _remove(value, path + pointer(name), operations)
        elif (other := new[name]) is not value:  # most are the same object: an object may have 100,000 annotations
            _compare(value, other, path + pointer(name), operations)
    for name, value in new.items():
        if name not in old:
            operations.append({"op": "add", "path": path + pointer(name), "value": value})


def _remove(value: Any, path: str, operations: list[Operation]) -> None:
    operations.append({"op": "test", "path": path, "value": value})
    operations.append({"op": "remove", "path": path})


def _compare_lists(old: list[Any], new: list[Any], path: str, operations: list[Operation]) -> None:
    """Keeps the equal elements at the begin and the end of both lists. Between, elements are replaced, then added or removed.

    An element is added at its number and not at `-` (the end), so that the patch says where it goes.
    """
    begin = _common(old, new)
    end = _common(old[begin:][::-1], new[begin:][::-1])
    before, after = old[begin : len(old) - end], new[begin : len(new) - end]
    both = min(len(before), len(after))
    for number in range(both):
        _compare(before[number], after[number], f"{path}/{begin + number}", operations)
    # From the end: a removal moves the elements behind it, and their numbers are still needed.
    for number in range(len(before) - 1, both - 1, -1):
        _remove(before[number], f"{path}/{begin + number}", operations)
    operations += (
        {"op": "add", "path": f"{path}/{begin + number}", "value": after[number]} for number in range(both, len(after))
    )


def _common(old: list[Any], new: list[Any]) -> int:
    count = 0
    for mine, other in zip(old, new, strict=False):
        if mine is not other and not _deeply_equal(mine, other):
            break
        count += 1
    return count


def _deeply_equal(old: Any, new: Any) -> bool:
    """JSON equality at any depth. Python's own comparison comes first, because it is fast."""
    if old != new:
        return False
    if isinstance(old, dict):
        return all(_deeply_equal(value, new[name]) for name, value in old.items())
    if isinstance(old, list):
        return all(map(_deeply_equal, old, new))
    return isinstance(old, bool) == isinstance(new, bool)


def get(value: JsonObject, path: Iterable[str]) -> Any:
    """The value at a path of field names. None where it is missing, or where a part of the path is no object."""
    part: Any = value
    for name in path:
        part = part.get(name) if isinstance(part, dict) else None
    return part


def put(value: JsonObject, path: Iterable[str], new: Any) -> JsonObject:
    """A copy with a value at a path. Missing objects on the path are created. O(fields of the objects on the path)."""
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
    """The dotted paths of the missing parts of a path: objects above the field, and the field."""
    return [".".join(path[: n + 1]) for n in range(len(path)) if get(value, path[: n + 1]) is None]
