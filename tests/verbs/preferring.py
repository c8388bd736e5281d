"""Preferences of pods for nodes."""

from __future__ import annotations

from tests.builders import Json


def prefers(key: str, *values: str, weight: int = 50) -> list[Json]:
    expressions = [{"key": key, "operator": "In", "values": list(values)}]
    return [{"weight": weight, "preference": {"matchExpressions": expressions}}]
