"""A generated cluster of any size, as the objects of the API: for the picture of a topology, and to measure large ones."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from tests.builders import namespace_json, node_json, pod_json, spread, term

Json = dict[str, Any]

ZONES: Final = ("north", "east", "west")
NAMESPACES: Final = ("shop", "search", "data", "batch")
_NODE: Final = {"cpu": "16", "memory": "64Gi", "pods": "110"}
_REPLICAS: Final = (3, 12, 40, 150)
_PENDING: Final = 1000  # one pod in so many


def cluster_json(nodes: int, pods: int, seed: int = 1) -> Iterator[Json]:
    """Nodes in three zones and a rack for each 40 of them, and pods of workloads of different sizes, some with constraints.

    One pod in a thousand is pending: a replica of a workload that keeps apart by zone.
    """
    rng = Random(seed)
    for name in NAMESPACES:
        yield {"apiVersion": "v1", "kind": "Namespace", **namespace_json(name, team=name)}
    names = []
    for at in range(nodes):
        names.append(f"node-{at:04}")
        labels = {"example.com/rack": f"rack-{at // 40:03}"}
        made = node_json(names[-1], zone=ZONES[at % 3], labels=labels, allocatable=_NODE, unschedulable=at % 61 == 60)
        yield {"apiVersion": "v1", "kind": "Node", **made}
    load = [rng.uniform(0.2, 1.6) for _ in names]  # nodes are not equally full
    left, workload = pods, 0
    while left > 0:
        replicas = min(left, rng.choice(_REPLICAS))
        yield from _workload(workload, rng.choices(names, load, k=replicas), rng)
        left -= replicas
        workload += 1


def _workload(number: int, places: list[str], rng: Random) -> Iterator[Json]:
    """The pods of one workload, on these nodes."""
    app = f"app-{number}"
    kind = number % 4
    constraints: Json = {}
    if kind == 1:
        constraints["spreads"] = [spread("zone", max_skew=5, hard=False, app=app)]
    if kind == 2:
        constraints["avoids"] = [{"weight": 1, "podAffinityTerm": term("host", app=app)}]
    requests = {"cpu": rng.choice(("100m", "250m", "500m")), "memory": rng.choice(("128Mi", "512Mi", "1Gi"))}
    namespace = NAMESPACES[number % len(NAMESPACES)]
    for at, place in enumerate(places):
        made = pod_json(
            f"{app}-{at}",
            on=place,
            namespace=namespace,
            uid=f"{app}-{at}",
            labels={"app": app},
            requests=requests,
            **constraints,
        )
        yield {"apiVersion": "v1", "kind": "Pod", **_created(made, number)}
    if number * sum(_REPLICAS) // len(_REPLICAS) % _PENDING < sum(_REPLICAS) // len(_REPLICAS):
        waiting = pod_json(
            f"{app}-waits", namespace=namespace, uid=f"{app}-w", labels={"app": app}, apart=[term("zone", app=app)]
        )
        yield {"apiVersion": "v1", "kind": "Pod", **_created({**waiting, "status": {"phase": "Pending"}}, number)}


def _created(pod: Json, number: int) -> Json:
    pod["metadata"]["creationTimestamp"] = f"2026-01-01T{number // 60 % 24:02}:{number % 60:02}:00Z"
    return pod
