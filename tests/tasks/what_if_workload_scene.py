"""Workloads of each kind in a what-if, and the pods that they are answered with."""

from __future__ import annotations

from typing import Any, Final

import orjson

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.model.answers.what_if import WhatIfAnswer
from extender.model.objects import Object
from extender.settings.configuration import Settings
from extender.tasks.what_if.computing import answer_body
from tests.builders import CONTAINER, Json, node, pod
from tests.explaining import finished

ROOM: Final = {"cpu": "4", "pods": "9"}
LABELS: Final = {"app": "web"}
VERSIONS: Final = {"Job": "batch/v1", "CronJob": "batch/v1", "ReplicationController": "v1"}


def workload(kind: str, name: str = "web", *, pod_spec: Json | None = None, **spec: Any) -> Json:
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [CONTAINER], **(pod_spec or {})}}
    metadata = {"name": name, "namespace": "shop"}
    return {
        "apiVersion": VERSIONS.get(kind, "apps/v1"),
        "kind": kind,
        "metadata": metadata,
        "spec": {"template": template, **spec},
    }


def nodes(count: int = 3, **fields: Any) -> list[Object]:
    return [node(f"n{at}", zone=f"z{at}", allocatable=ROOM, **fields) for at in range(count)]


def answered(index: ClusterIndex, **body: Any) -> WhatIfAnswer:
    found: WhatIfAnswer = finished(answer_body(orjson.dumps(body), index, Settings()))
    assert audit(index) == []
    return found


def placed(found: WhatIfAnswer) -> dict[str, str]:
    """By the name of each pod its node, else what became of it."""
    return {each.pod.partition("/")[2]: each.node or each.state for each in found.placements}


def classed(body: Json) -> Json:
    return body | {"spec": body["spec"] | {"priorityClassName": "high"}}


def replica(name: str, on: str = "", **fields: Any) -> Object:
    made: dict[str, Any] = {"labels": {**LABELS, "pod-template-hash": "5d4f"}, "owner": ("ReplicaSet", "web-5d4f")}
    unready = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ]
    return pod(name, on=on, namespace="shop", **{"tolerations": unready, **made, **fields})
