"""The incoming pods whose placements are compared, and the cluster that they meet: nodes in use to random degrees."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from extender.simulator.json_objects import JsonObject
from tests.e2e import workloads as e2e
from tests.simulator.plain import HOSTNAME, node, pod, spread, term

FEW: Final = 20  # nodes that are better than all others
_CPUS, _MEMORY = 32, 32  # of a node, as `plain.node` and `e2e.workloads` have them
_SIZES: Final = ((4, 16, 0.3), (8, 16, 0.4), (16, 128, 0.9), (64, 256, 0.8))  # CPUs, GiB, the most that is in use
_SSD: Final = {"disk": "ssd"}

Make = Callable[[int], JsonObject]


@dataclass(frozen=True, slots=True)
class Workload:
    """``existing`` makes the pods that stand on so many nodes, ``incoming`` the spec of the pod with a number.

    ``is_uneven``: nodes of four sizes, where the small ones are the emptiest. ``is_idle``: no node is in use.
    """

    name: str
    title: str
    existing: Callable[[int], Iterator[JsonObject]]
    incoming: Make
    app: str
    is_uneven: bool = False
    is_idle: bool = False


def cluster(nodes: int, rng: Random, *, is_uneven: bool, is_idle: bool) -> Iterator[JsonObject]:
    """The nodes, the first ones with an SSD, then a pod on each that uses up to three quarters of it."""
    sizes = [_SIZES[number % len(_SIZES)] if is_uneven else (_CPUS, _MEMORY, 0.75) for number in range(nodes)]
    for number, (cpus, memory, _) in enumerate(sizes):
        labels = _SSD if number * FEW % nodes < FEW else {}
        made = node(e2e.node_name(number), f"zone-{number % e2e.ZONES}", cpu=str(cpus), labels=labels)
        made["status"]["allocatable"]["memory"] = f"{memory}Gi"
        yield made
    for number, (cpus, memory, most) in enumerate(() if is_idle else sizes):
        used = pod(f"load-{number}", "load", on=e2e.node_name(number), cpu=str(rng.randrange(int(cpus * most))))
        used["spec"]["containers"][0]["resources"]["requests"]["memory"] = f"{rng.randrange(int(memory * most))}Gi"
        yield used


def _none(_: int) -> Iterator[JsonObject]:
    return iter(())


def _caches(nodes: int) -> Iterator[JsonObject]:
    for number in range(0, nodes, max(nodes // FEW, 1)):
        yield pod(f"cache-{number}", e2e.INCOMING, on=e2e.node_name(number), labels={"app": "cache"})


def _near_caches(_: int) -> JsonObject:
    preferred = [{"weight": 100, "podAffinityTerm": term(HOSTNAME, app="cache")}]
    return {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def _on_ssd(_: int) -> JsonObject:
    wanted = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    preferred = [{"weight": 100, "preference": wanted}]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def _apart(_: int) -> JsonObject:
    return {"topologySpreadConstraints": [spread(HOSTNAME, hard=False, labels={"app": "apart"})]}


def _own_node(_: int) -> JsonObject:
    return e2e.WORKLOADS["W1"].spec(0, "apart")


def _large(_: int) -> JsonObject:
    requests = {"cpu": "2", "memory": "4Gi"}
    return _apart(0) | {"containers": [{"name": "main", "image": "pause", "resources": {"requests": requests}}]}


def _of_e2e(found: e2e.Workload) -> Workload:
    def existing(nodes: int) -> Iterator[JsonObject]:
        return found.running(int(nodes * found.share) or nodes, nodes)

    return Workload(found.name, found.title, existing, lambda number: found.spec(number, found.app), found.app)


WORKLOADS: Final = (
    *[_of_e2e(each) for each in e2e.WORKLOADS.values() if not each.published],
    Workload("A1", "required anti-affinity, node, equal nodes", _none, _own_node, "apart", is_idle=True),
    Workload("S1", f"preferred affinity to pods on {FEW} nodes", _caches, _near_caches, "near"),
    Workload("S2", f"preferred node affinity to {FEW} nodes", _none, _on_ssd, "ssd"),
    Workload("S3", "soft spread, node", _none, _apart, "apart"),
    Workload("S4", "soft spread, node, large pods on nodes of four sizes", _none, _large, "apart", is_uneven=True),
)
BY_NAME: Final = {workload.name: workload for workload in WORKLOADS}
