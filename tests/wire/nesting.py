"""Deeply nested JSON, and what may be read of it."""

from __future__ import annotations

import msgspec

from extender.wire.objects.simplify import DEEPEST_READ
from tests.builders import Json


def wrapped(value: object, levels: int) -> object:
    """The value inside of so many arrays and objects, in turn."""
    for level in range(levels):
        value = [value] if level % 2 else {"a": 1, "b": value, "c": [2]}
    return value


def read_part(value: object, depth: int = 0) -> object:
    """What is left when everything that may be left out is."""
    if isinstance(value, dict | list) and depth >= DEEPEST_READ:
        return None
    if isinstance(value, list):
        return [read_part(each, depth + 1) for each in value]
    if isinstance(value, dict):
        return {
            key: None if key == "managedFields" and isinstance(each, dict | list) else read_part(each, depth + 1)
            for key, each in value.items()
        }
    return value


def depth_of(value: object) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


def deep(levels: int = 10_000) -> msgspec.Raw:
    return msgspec.Raw(b'{"f:a":' * levels + b"{}" + b"}" * levels)


def merged(body: Json, more: Json) -> Json:
    return body | {key: {**body.get(key, {}), **each} if isinstance(each, dict) else each for key, each in more.items()}
