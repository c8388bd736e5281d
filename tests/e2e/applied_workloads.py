"""Workloads of each kind, applied to a cluster with controllers, and their what-ifs."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from random import Random
from typing import Any, Final

import orjson

from extender.compose.service import service_of_objects
from extender.model.answers.what_if import WhatIfAnswer
from extender.settings.configuration import Settings
from extender.simulator.json_objects import JsonObject
from extender.tasks.what_if.computing import answer_body
from extender.wire.snapshots import decode_snapshot
from tests.e2e.cluster import Cluster
from tests.explaining import finished
from tests.fakes import PATIENCE

_LABELS: Final = {"app": "web"}
_RESOURCES: Final = {"limits": {"cpu": "100m"}, "requests": {"memory": "64Mi"}}
_OF_REVISION: Final = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": _LABELS},
    "matchLabelKeys": ["pod-template-hash"],
}


def _workload(kind: str, *, pod_spec: JsonObject | None = None, **spec: Any) -> JsonObject:
    name, is_job = kind.lower(), kind == "Job"
    labels = _LABELS | {"kind": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [{"name": "main", "image": "registry.example/main:1", "resources": deepcopy(_RESOURCES)}],
            **({"restartPolicy": "Never"} if is_job else {}),
            **(pod_spec or {}),
        },
    }
    return {
        "apiVersion": "batch/v1" if is_job else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": template, **({} if is_job else {"selector": {"matchLabels": labels}}), **spec},
    }


_CLAIM: Final = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
WORKLOADS: Final = {
    "Deployment": (_workload("Deployment", replicas=3, pod_spec={"topologySpreadConstraints": [_OF_REVISION]}), 3),
    "ReplicaSet": (_workload("ReplicaSet", replicas=2, pod_spec={"hostNetwork": True}), 2),
    "StatefulSet": (
        _workload(
            "StatefulSet",
            replicas=3,
            serviceName="db",
            podManagementPolicy="Parallel",
            ordinals={"start": 2},
            volumeClaimTemplates=[_CLAIM],
        ),
        3,
    ),
    "Job": (_workload("Job", parallelism=4, completions=3, completionMode="Indexed"), 3),
    "DaemonSet": (
        _workload("DaemonSet", pod_spec={"tolerations": [{"key": "gpu", "operator": "Exists"}], "hostNetwork": True}),
        4,
    ),
}


async def pods_of_workload(cluster: Cluster, count: int) -> list[JsonObject]:
    """The pods of the cluster, once there are so many."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found, _ = await cluster.api.list("/api/v1/pods")
            if len(found) >= count:
                return found
            await asyncio.sleep(0.1)


async def answered(cluster: Cluster, pods: list[JsonObject], given: list[JsonObject]) -> WhatIfAnswer:
    items = [{**each, "kind": "Pod"} for each in pods]
    for kind, path in (("Node", "/api/v1/nodes"), ("Namespace", "/api/v1/namespaces")):
        found, _ = await cluster.api.list(path)
        items += ({**each, "kind": kind} for each in found)
    snapshot = decode_snapshot(orjson.dumps({"kind": "List", "items": items}))
    assert not snapshot.unreadable
    service = service_of_objects(Settings(), snapshot.objects, Random(0))
    body = orjson.dumps({"apply": given})
    answer: WhatIfAnswer = finished(answer_body(body, service.index, service.settings))
    return answer
