"""Pods, nodes and budgets for tests of preemption: where a pod stands, how important it is and what it asks for.

Built on `tests.builders`; CPU is in milli-CPU, ``minute`` is when a pod started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from extender.index.cluster import ClusterIndex
from extender.model.objects import DisruptionBudget, Node, Object, Pod
from extender.wire.objects.kinds import DISRUPTION_BUDGETS
from tests.builders import Json, index_of, matching, node_json, pod_json, read_node, read_pod

CPU = 4000
SLOTS = 110


def stage(name: str = "n1", zone: str = "", *, cpu: int = CPU, pods: int = SLOTS, **fields: Any) -> Node:
    """A node that offers this much."""
    offered = {"cpu": f"{cpu}m", "pods": str(pods)}
    return read_node(node_json(name, zone=zone, allocatable=offered, **fields))


def contender_json(
    name: str,
    *,
    cpu: int = 0,
    priority: int = 0,
    minute: int | None = None,
    nominated: str = "",
    never_preempts: bool = False,
    preempted: bool = False,
    volumes: list[Json] | None = None,
    host_ports: Sequence[int | tuple[str, str, int]] = (),
    scheduler: str = "",
    also: Mapping[str, str] | None = None,
    **fields: Any,
) -> Json:
    """A pod as the API writes it; fields that are not named here are those of `pod_json`.

    ``host_ports`` are numbers, or protocol, address and number; ``also`` are requests beside that of CPU.
    """
    requests = ({"cpu": f"{cpu}m"} if cpu else {}) | dict(also or {})
    body = pod_json(name, requests=requests or None, priority=priority, **fields)
    if never_preempts:
        body["spec"]["preemptionPolicy"] = "Never"
    if volumes:
        body["spec"]["volumes"] = volumes
    if host_ports:
        body["spec"].setdefault("containers", []).append(
            {"name": "ports", "ports": [_port(each) for each in host_ports]}
        )
    if scheduler:
        body["spec"]["schedulerName"] = scheduler
    if nominated:
        body["status"]["nominatedNodeName"] = nominated
    if minute is not None:
        body["status"]["startTime"] = f"2026-01-01T{minute // 60:02}:{minute % 60:02}:00Z"
    if preempted:
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        body["status"]["conditions"] = [condition]
    return body


def _port(wanted: int | tuple[str, str, int]) -> Json:
    protocol, address, number = ("TCP", "", wanted) if isinstance(wanted, int) else wanted
    return {"containerPort": number, "hostPort": number, "protocol": protocol, "hostIP": address}


def contender(name: str, **fields: Any) -> Pod:
    """A pod as the service reads it."""
    return read_pod(contender_json(name, **fields))


def budget(
    name: str = "keep",
    allowed: int = 0,
    *,
    namespace: str = "default",
    disrupted: tuple[str, ...] = (),
    selector: Json | None = None,
    **labels: str,
) -> DisruptionBudget:
    """A disruption budget over the pods with these labels, of which ``allowed`` may go now."""
    body = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": matching(**labels) if selector is None and labels else selector},
        "status": {"disruptionsAllowed": allowed, "disruptedPods": dict.fromkeys(disrupted, "2026-01-01T00:00:00Z")},
    }
    return DISRUPTION_BUDGETS.decode_object(orjson.dumps(body))


def cluster(*objects: Object) -> ClusterIndex:
    """An index that holds these objects."""
    return index_of(*objects)


def names(pods: Mapping[str, Pod]) -> list[str]:
    """The names of pods kept by UID, in order."""
    return sorted(each.name for each in pods.values())
