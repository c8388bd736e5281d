"""Preemption in a cluster with its controllers: victims that are replaced at once, and disruption budgets that are counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Final

import pytest

from extender.simulator.json_objects import JsonObject, condition_of, is_terminating, node_of, uid_of
from tests.e2e import controllers
from tests.e2e.client import pod_path
from tests.e2e.cluster import Cluster
from tests.e2e.controllers import PROGRAM, deployment, job
from tests.e2e.test_preemption import prepare
from tests.simulator.plain import HOSTNAME, anti_affinity, node, pod, term

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

OPEN, PREEMPTORS, PER_NODE = 6, 3, 2
APART = anti_affinity(term(HOSTNAME, app="web"), term(HOSTNAME, app="lonely"))
_EVICT: Final[JsonObject] = {"preemption": {"eviction": "evict"}}
_BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
_TAINT = [{"key": "reserved", "value": "yes", "effect": "NoSchedule"}]


@pytest.fixture
async def controlled(cluster: Cluster, assets: Path) -> AsyncIterator[Cluster]:
    """The cluster with its controllers. Skipped where kube-controller-manager is missing."""
    if not controllers.is_there(assets):
        pytest.skip(f"{PROGRAM} is not in {assets}: NOTHING IS KNOWN of preemption in a cluster with its controllers")
    async with controllers.controlled(cluster, assets):
        yield cluster


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


async def test_controllers_that_replace_victims_at_once_cost_no_further_victim(controlled: Cluster) -> None:
    cluster, rng = controlled, Random(1)
    async with cluster.scheduled() as extender:
        disruptions = await fill(cluster, OPEN)
        await cluster.board.until(lambda: len(standing(cluster)) == OPEN * PER_NODE)
        cluster.board.ends_after = lambda: rng.uniform(0.5, 8.0)
        before = [await extender.metric("extender_requests_total", verb="filter"), extender.program.cpu_seconds()]
        pods = [lonely(number) for number in range(PREEMPTORS)]
        await cluster.api.create(*pods)
        await cluster.board.bound(*pods)
        nominated = await extender.metric("extender_rejected_pod_actions_total", action="nominate", result="done")
        after = [await extender.metric("extender_requests_total", verb="filter"), extender.program.cpu_seconds()]
    calls, cpu = (late - early for early, late in zip(before, after, strict=True))
    print(f"{nominated:.0f} nominations, {calls:.0f} filter calls, {cpu:.1f} s, {len(disruptions.deleted)} victims")  # noqa: T201 -- shown by -s
    assert len(disruptions.deleted) == PREEMPTORS * PER_NODE
    assert nominated == 0


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
    await cluster.api.request("POST", _BUDGETS, keep)
    async with asyncio.timeout(60):
        while (await cluster.api.request("GET", f"{_BUDGETS}/keep")).get("status", {}).get("currentHealthy") != pods:  # noqa: ASYNC110 -- there is no event across processes
            await asyncio.sleep(0.1)


async def test_an_eviction_that_a_budget_forbids_marks_no_pod_and_is_made_once_the_budget_allows_it(
    controlled: Cluster,
) -> None:
    cluster = controlled
    async with cluster.scheduled(settings=_EVICT) as extender:
        disruptions = await fill(cluster, 3)
        await keep_all(cluster, 3 * PER_NODE)
        await cluster.api.create(high := lonely(0))
        await cluster.board.rejected(high)
        await cluster.calm(3.0)
        forbidden = [len(disruptions.marked), await extender.metric("extender_preemption_attempts_total")]
        await cluster.api.patch(f"{_BUDGETS}/keep", {"spec": {"minAvailable": 4}})
        await cluster.board.bound(high)
        violations = await extender.metric("extender_preemption_pdb_violations_total")
    assert forbidden == [0, 0]
    assert (len(disruptions.deleted), disruptions.marked - disruptions.deleted, violations) == (PER_NODE, set(), 0)


async def test_a_job_counts_a_failure_as_one_while_a_budget_forbids_to_evict_its_pods(controlled: Cluster) -> None:
    """Its podFailurePolicy ignores pods with the condition DisruptionTarget (KEP-3329), so no pod may have it that is not evicted."""
    cluster, tolerated = controlled, [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
    path = "/apis/batch/v1/namespaces/default/jobs/web"
    async with cluster.scheduled(settings=_EVICT):
        disruptions = await fill(
            cluster, 3, lambda *given: job(*given, backoffLimit=0, podFailurePolicy={"rules": tolerated})
        )
        await keep_all(cluster, 3 * PER_NODE)
        await cluster.api.create(high := lonely(0))
        await cluster.board.rejected(high)
        await cluster.calm(3.0)
        terminated = {"name": "main", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
        failed = {"phase": "Failed", "containerStatuses": [terminated]}
        await cluster.api.patch(f"{pod_path(standing(cluster)[0])}/status", {"status": failed})
        await cluster.board.bound(high)  # as a Job that failed ends its pods
        async with asyncio.timeout(60):
            while not (found := condition_of(await cluster.api.request("GET", path), "Failed")):  # noqa: ASYNC110 -- there is no event across processes
                await asyncio.sleep(0.1)
    assert found["reason"] == "BackoffLimitExceeded"
    assert disruptions.marked == set()
