"""Builders of plain API objects for the tests of the control plane, the scheduling loop and the judge."""

from typing import Any

from extender.simulator.json_objects import JsonObject

ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def namespace(name: str, **labels: str) -> JsonObject:
    return {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name, "labels": labels}}


def node(
    name: str,
    zone: str = "",
    *,
    labels: dict[str, str] | None = None,
    taints: list[JsonObject] | None = None,
    cpu: str = "4",
    **spec: Any,
) -> JsonObject:
    where = {HOSTNAME: name, **({ZONE: zone} if zone else {}), **(labels or {})}
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "labels": where},
        "spec": {**({"taints": taints} if taints else {}), **spec},
        "status": {"allocatable": {"cpu": cpu, "memory": "32Gi", "pods": "110"}},
    }


def pod(
    name: str,
    namespace: str = "default",
    *,
    on: str = "",
    labels: dict[str, str] | None = None,
    cpu: str = "100m",
    status: JsonObject | None = None,
    **spec: Any,
) -> JsonObject:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {"containers": [container], **({"nodeName": on} if on else {}), **spec},
        "status": status or {},
    }


def term(key: str = ZONE, *, namespaces: JsonObject | None = None, **labels: str) -> JsonObject:
    clause: JsonObject = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    if namespaces is not None:
        clause["namespaceSelector"] = namespaces
    return clause


def affinity(*terms: JsonObject) -> JsonObject:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def anti_affinity(*terms: JsonObject) -> JsonObject:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def spread(key: str = ZONE, *, skew: int = 1, hard: bool = True, labels: dict[str, str], **more: Any) -> JsonObject:
    return {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels},
        **more,
    }
