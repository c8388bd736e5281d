"""Groups of pods that prefer nodes."""

from __future__ import annotations

import orjson

from extender.model.objects import Pod
from extender.wire.objects.kinds import PODS
from tests.builders import Json


def decoded(body: Json) -> Pod:
    return PODS.decode_object(orjson.dumps(body))


def prefers(key: str, *values: str, weight: int = 50) -> list[Json]:
    expressions = [{"key": key, "operator": "In", "values": list(values)}]
    return [{"weight": weight, "preference": {"matchExpressions": expressions}}]
