"""Victims whose controllers replace them, and disruption budgets that allow few evictions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from extender.simulator.json_objects import JsonObject, condition_of, is_terminating, node_of, uid_of
from tests.e2e.client import pod_path
from tests.e2e.cluster import Cluster
from tests.e2e.controllers import deployment
from tests.e2e.test_preemption import prepare
from tests.simulator.plain import HOSTNAME, anti_affinity, node, pod, term

OPEN, PREEMPTORS, PER_NODE = 6, 3, 2
APART = anti_affinity(term(HOSTNAME, app="web"), term(HOSTNAME, app="lonely"))
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
_TAINT = [{"key": "reserved", "value": "yes", "effect": "NoSchedule"}]


def lonely(number: int) -> JsonObject:
    """A pod that takes a node without web pods: only the extender knows."""
    return pod(f"lonely-{number}", labels={"app": "lonely"}, affinity=APART, priorityClassName="high")


class Disruptions:
    """The pods that were marked as DisruptionTarget, and those of them that were deleted."""

    def __init__(self) -> None:
        self.marked: set[str] = set()
        self.deleted: set[str] = set()

    def look(self, shown: JsonObject) -> None:
        """A pod has changed."""
        if (condition_of(shown, "DisruptionTarget") or {}).get("status") == "True":
            self.marked.add(uid_of(shown))
            if is_terminating(shown):
                self.deleted.add(uid_of(shown))


async def fill(
    cluster: Cluster, nodes: int, owner: Callable[[str, int, JsonObject], JsonObject] = deployment
) -> Disruptions:
    """Nodes with two web pods of an owner on each, and a tainted one, so that filter is asked about fewer than all."""
    await cluster.add_nodes(zones=1, per_zone=nodes, cpu="2")
    await cluster.api.create(node("kept", "z1", cpu="2", taints=_TAINT))
    await prepare(cluster, [])
    found = Disruptions()
    cluster.board.listeners.append(found.look)
    web = pod("web", labels={"app": "web"}, cpu="900m", priorityClassName="low")
    await cluster.api.create(owner("web", nodes * PER_NODE, web))
    return found


def standing(cluster: Cluster) -> list[JsonObject]:
    """The web pods on nodes."""
    pods = cluster.board.pods.values()
    return [each for each in pods if each["metadata"]["labels"].get("app") == "web" and node_of(each)]


async def make_ready(cluster: Cluster, pods: list[JsonObject]) -> None:
    """The stand-in kubelet reports that the pods run."""
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    for each in pods:
        await cluster.api.patch(f"{pod_path(each)}/status", {"status": status})


async def keep_all(cluster: Cluster, pods: int) -> None:
    """The web pods run, and a budget that is counted forbids the eviction of any."""
    await cluster.board.until(lambda: len(standing(cluster)) == pods)
    await make_ready(cluster, standing(cluster))
    spec = {"minAvailable": pods, "selector": {"matchLabels": {"app": "web"}}}
    keep = {"kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "metadata": {"name": "keep"}, "spec": spec}
    await cluster.api.request("POST", BUDGETS, keep)
    async with asyncio.timeout(60):
        while (await cluster.api.request("GET", f"{BUDGETS}/keep")).get("status", {}).get("currentHealthy") != pods:  # noqa: ASYNC110 -- there is no event across processes
            await asyncio.sleep(0.1)
