"""Random changes of pods and nodes, and the requests of each node counted from the objects."""

from __future__ import annotations

from typing import Any

from extender.index.cluster import ClusterIndex
from tests.builders import node, pod

MEBI = 2**20
SIZES: tuple[dict[str, str], ...] = (
    {},
    {"cpu": "4"},
    {"cpu": "2", "memory": "4Gi"},
    {"cpu": "8", "memory": "1Gi"},
    {"cpu": "0", "memory": "1Gi"},
)


def apply(index: ClusterIndex, step: tuple[str, str, Any, Any]) -> None:
    """Does one step, if it is possible."""
    match step:
        case "node", name, dict() as size, list() as taints:
            index.upsert(node(name, allocatable=size, taints=taints))
        case "no node", name, _, _:
            index.delete(node(name))
        case "bound", name, str() as on, requests:
            index.upsert(pod(name, on=on, requests=requests))
        case "assumed", name, str() as on, requests if f"uid-{name}" not in index.pods:
            index.upsert(pod(name, requests=requests))
            index.assume(pod(name, requests=requests), (on,), 0.0)
        case "deleted", name, _, _:
            index.delete(pod(name))
        case "forgotten", name, _, _:
            index.assumed.forget(f"uid-{name}")


def shares(index: ClusterIndex) -> dict[str, float]:
    """The larger requested share of each node, as kept and as the other columns give it."""
    kept = index.view.shares
    for number in index.view.known.values():
        by_cpu, by_memory = kept.cpu[number] * kept.per_cpu[number], kept.memory[number] * kept.per_memory[number]
        assert kept.larger[number] == max(by_cpu, by_memory)
    return {name: kept.larger[number] for name, number in index.view.known.items()}


def counted(index: ClusterIndex) -> dict[str, float]:
    """The same from the pods of each node."""
    found = {}
    for name, number in index.view.known.items():
        there, pods = index.view.node(number), index.view.pods_on(number).values()
        assert there is not None
        used = {
            "cpu": sum(each.requests.get("cpu", 0) or 100 for each in pods),
            "memory": sum(each.requests.get("memory", 0) or 200 * MEBI for each in pods),
        }
        found[name] = max(
            [amount * (1 / offered) for name, amount in used.items() if (offered := there.allocatable.get(name, 0))],
            default=0.0,
        )
    return found
