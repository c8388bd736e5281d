"""What-ifs of workloads against the controllers of a cluster: a manifest that is applied already makes and deletes no pod."""

from __future__ import annotations

from collections.abc import AsyncIterator
from copy import deepcopy
from pathlib import Path

import pytest

from tests.e2e import controllers
from tests.e2e.applied_workloads import WORKLOADS, answered, pods_of_workload
from tests.e2e.cluster import Cluster
from tests.e2e.controllers import PROGRAM

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture
async def controlled(cluster: Cluster, assets: Path) -> AsyncIterator[Cluster]:
    """The cluster with its controllers. Skipped where kube-controller-manager is missing."""
    if not controllers.is_there(assets):
        pytest.skip(f"{PROGRAM} is not in {assets}: NOTHING IS KNOWN of what its controllers make of a template")
    async with controllers.controlled(cluster, assets, "daemonset-controller"):
        yield cluster


async def test_pods_of_an_applied_workload_are_those_that_a_what_if_of_it_makes(controlled: Cluster) -> None:
    await controlled.add_nodes(2, 2)
    given = [workload for workload, _ in WORKLOADS.values()]
    await controlled.api.create(*deepcopy(given))
    pods = await pods_of_workload(controlled, sum(count for _, count in WORKLOADS.values()))
    answer = await answered(controlled, pods, given)
    assert sorted(answer.notes) == sorted(
        f"{kind} default/{kind.lower()}: {count} pods as in the template stay, 0 are deleted, 0 are made"
        for kind, (_, count) in WORKLOADS.items()
    )
    assert [each for each in answer.placements if each.origin == "given"] == []


async def test_a_scaled_workload_makes_the_missing_pods_and_a_changed_one_all(controlled: Cluster) -> None:
    await controlled.add_nodes(2, 2)
    workload, count = WORKLOADS["Deployment"]
    await controlled.api.create(deepcopy(workload))
    pods = await pods_of_workload(controlled, count)
    scaled, changed = deepcopy(workload), deepcopy(workload)
    scaled["spec"]["replicas"] = count + 2
    changed["spec"]["template"]["metadata"]["labels"]["release"] = "2"
    for given, made in ((scaled, 2), (changed, count)):
        answer = await answered(controlled, pods, [given])
        assert sum(each.origin == "given" for each in answer.placements) == made
