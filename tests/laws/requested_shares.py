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


Shares = tuple[float, float, float]


def shares(index: ClusterIndex) -> dict[str, Shares]:
    """The larger requested share of each node, the sum of both and their difference, as kept and as the other columns give them."""
    kept = index.view.shares
    assert kept.of_node.keys() == index.view.known.keys()
    for name, number in index.view.known.items():
        by_cpu, by_memory = kept.cpu[number] * kept.per_cpu[number], kept.memory[number] * kept.per_memory[number]
        assert kept.larger[number] == max(by_cpu, by_memory)
        assert kept.of_node[name].total == by_cpu + by_memory
        assert (kept.of_node[name].per_cpu, kept.of_node[name].per_memory) == (
            kept.per_cpu[number],
            kept.per_memory[number],
        )
    known = index.view.known.items()
    return {name: (kept.larger[number], kept.of_node[name].total, kept.of_node[name].lean) for name, number in known}


def counted(index: ClusterIndex) -> dict[str, Shares]:
    """The same from the pods of each node. The difference has no defaults for pods without requests."""
    found = {}
    for name, number in index.view.known.items():
        there, pods = index.view.node(number), index.view.pods_on(number).values()
        assert there is not None
        defaults = {"cpu": 100, "memory": 200 * MEBI}
        units = {each: 1 / amount if (amount := there.allocatable.get(each, 0)) else 0.0 for each in defaults}
        asked = {each: sum(pod.requests.get(each, 0) for pod in pods) for each in defaults}
        used = {each: sum(pod.requests.get(each, 0) or unset for pod in pods) for each, unset in defaults.items()}
        by_cpu, by_memory = (used[each] * units[each] for each in defaults)
        lean = asked["cpu"] * units["cpu"] - asked["memory"] * units["memory"]
        found[name] = (max(by_cpu, by_memory), by_cpu + by_memory, lean)
    return found
