"""The three kinds of PATCH, as pure functions of object and patch. Called by the operations.

JSON merge patch (RFC 7386), JSON patch (RFC 6902), and the part of the strategic merge patch that clients of pods and
nodes use: lists merged by key, `$patch: delete` and `$patch: replace`.
"""

import copy
from typing import Any

from extender.simulator.apiserver import api_errors
from extender.simulator.json_objects import JsonObject

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"

# The merge key of each list, by field name. Other lists are replaced as a whole.
_MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "ownerReferences": "uid",
    "taints": "key",
    "addresses": "type",
}


def apply_patch(obj: JsonObject, patch: Any, content_type: str) -> JsonObject:
    """A patched copy of `obj`. Raises ApiError 415 for an unknown type of patch, 422 if it cannot be applied."""
    if content_type == JSON:
        return _json_patch(copy.deepcopy(obj), patch)
    if content_type not in {MERGE, STRATEGIC}:
        raise api_errors.ApiError(
            415, "UnsupportedMediaType", f"the body of the request was in an unknown format - {content_type}"
        )
    if not isinstance(patch, dict):
        raise api_errors.bad_request("the patch is not a JSON object")
    result: JsonObject = _merge(obj, patch) if content_type == MERGE else _strategic(obj, patch)
    return result


def _merge(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merge(result.get(name), value)
    return result


def _strategic(old: Any, patch: Any, field: str = "") -> Any:
    # The field's name is enough here; the real server takes the merge key from the type's schema.
    if isinstance(patch, list) and field in _MERGE_KEYS:
        return _strategic_list(old or [], patch, _MERGE_KEYS[field])
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    result = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif not name.startswith("$"):
            result[name] = _strategic(result.get(name), value, name)
    return result


def _strategic_list(old: list[JsonObject], patch: list[JsonObject], key: str) -> list[JsonObject]:
    # One such item, anywhere, replaces the list by the other items.
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if item.get("$patch") != "replace"]
    result = list(old)
    for item in patch:
        place = next((i for i, there in enumerate(result) if there.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            if place is not None:
                del result[place]
        elif place is None:
            result.append(_strategic({}, item))
        else:
            result[place] = _strategic(result[place], item)
    return result


def _json_patch(obj: JsonObject, steps: Any) -> JsonObject:
    if not isinstance(steps, list):
        raise api_errors.bad_request("the patch is not a list of operations")
    # A holder, so that a step with the path "" can replace the whole document.
    holder = {"root": obj}
    for step in steps:
        try:
            _json_step(holder, step)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            message = f"the server rejected our request due to an error in our request: {step}: {error!r}"
            raise api_errors.invalid(message) from error
    result: JsonObject = holder["root"]
    return result


def _json_step(holder: JsonObject, step: JsonObject) -> None:
    parent, last = _walk(holder, step["path"])
    match step["op"]:
        case "add":
            _add(parent, last, step["value"])
        case "replace":
            parent[_index(parent, last)] = step["value"]
        case "remove":
            del parent[_index(parent, last)]
        case "test":
            if parent[_index(parent, last)] != step["value"]:
                raise ValueError("testing value failed")
        case "copy" | "move" as operation:
            source, name = _walk(holder, step["from"])
            # Copied, so that a later step changes only one of the two places.
            value = copy.deepcopy(source[_index(source, name)])
            if operation == "move":
                del source[_index(source, name)]
            _add(parent, last, value)
        case unknown:
            raise ValueError(f"unknown operation {unknown}")


def _walk(holder: JsonObject, pointer: str) -> tuple[Any, str]:
    # "~1" first, as RFC 6901 requires: "~01" means "~1" and not "/".
    parts = ["root", *(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])]
    parent: Any = holder
    for part in parts[:-1]:
        parent = parent[_index(parent, part)]
    return parent, parts[-1]


def _index(parent: Any, part: str) -> Any:
    return int(part) if isinstance(parent, list) else part


def _add(parent: Any, last: str, value: Any) -> None:
    if isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else int(last), value)
    else:
        parent[last] = value
