"""Preemption in a cluster with its controllers: victims that are replaced at once, and disruption budgets that are counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Final

import pytest

from extender.simulator.json_objects import JsonObject, condition_of
from tests.e2e import controllers
from tests.e2e.client import pod_path
from tests.e2e.cluster import Cluster
from tests.e2e.controllers import PROGRAM, job
from tests.e2e.replaced_victims import BUDGETS, OPEN, PER_NODE, PREEMPTORS, fill, keep_all, lonely, standing

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

_EVICT: Final[JsonObject] = {"preemption": {"eviction": "evict"}}


@pytest.fixture
async def controlled(cluster: Cluster, assets: Path) -> AsyncIterator[Cluster]:
    """The cluster with its controllers. Skipped where kube-controller-manager is missing."""
    if not controllers.is_there(assets):
        pytest.skip(f"{PROGRAM} is not in {assets}: NOTHING IS KNOWN of preemption in a cluster with its controllers")
    async with controllers.controlled(cluster, assets):
        yield cluster


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
        await cluster.api.patch(f"{BUDGETS}/keep", {"spec": {"minAvailable": 4}})
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
