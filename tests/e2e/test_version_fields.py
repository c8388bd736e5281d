"""Fields of pods that not every version of Kubernetes has: pods get what they say, or the service says what is missing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from extender.simulator.json_objects import JsonObject, name_of
from tests.deploy.policies.examples import policy
from tests.e2e.client import path_of
from tests.e2e.cluster import Cluster, eventually_ready
from tests.e2e.policing import PODS, db_pod, policed
from tests.e2e.programs import minor_of_program
from tests.e2e.serving import Extender
from tests.fakes import PATIENCE
from tests.simulator.plain import ZONE, anti_affinity, namespace, node, pod, spread, term

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SHUT = [{"key": "closed", "value": "yes", "effect": "NoSchedule"}]
LABEL_KEYS = 31
"""The first minor version that keeps matchLabelKeys of affinity terms."""
EVERY_NAMESPACE = 34
"""The first minor version of kube-scheduler whose negative namespaceSelector reaches every namespace (kubernetes#141526)."""
STREAMING = {32, *range(34, 100)}
"""The minor versions in which the gate WatchList is on by default."""


def web(name: str, revision: str, **spec: Any) -> JsonObject:
    return pod(name, labels={"app": "web", "revision": revision}, **spec)


async def zones_of(cluster: Cluster, pods: list[JsonObject]) -> list[str]:
    """The zones of pods once they are bound, sorted."""
    return sorted(name.partition("-")[0] for name in await cluster.board.bound(*pods))


async def lacking(extender: Extender) -> dict[str, bool]:
    """By feature whether the API server lacks what it needs."""
    return {labels["feature"]: bool(value) for labels, value in await extender.series("extender_apiserver_lacks")}


@pytest.mark.core("filter: every field of spread")
@pytest.mark.parametrize("mode", ["offload", "augment"])
async def test_each_field_of_a_spread_constraint_counts(cluster: Cluster, mode: str) -> None:
    """The third zone is tainted and does not count, because nodeTaintsPolicy is Honor. Each revision counts alone."""
    await cluster.add_nodes(zones=2, per_zone=2)
    await cluster.api.create(node("z3-1", "z3", taints=SHUT))
    policies: dict[str, Any] = {"minDomains": 2, "nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Honor"}
    even = [spread(ZONE, labels={"app": "web"}, matchLabelKeys=["revision"], **policies)]
    first = [web(f"a-{number}", "a", topologySpreadConstraints=even) for number in range(4)]
    second = [web(f"b-{number}", "b", topologySpreadConstraints=even) for number in range(2)]
    async with cluster.scheduled(mode):
        await cluster.api.create(*first)
        assert await zones_of(cluster, first) == ["z1", "z1", "z2", "z2"]
        await cluster.api.create(*second)
        assert await zones_of(cluster, second) == ["z1", "z2"]
    assert await cluster.faults() == []


@pytest.mark.core("filter: label keys of affinity")
@pytest.mark.needs("matchLabelKeys of affinity", api=LABEL_KEYS)
async def test_label_keys_of_affinity_keep_pods_of_one_revision_apart(cluster: Cluster) -> None:
    await cluster.add_nodes(zones=2, per_zone=2)
    apart = anti_affinity({**term(ZONE, app="web"), "matchLabelKeys": ["revision"]})
    pods = [web(f"{revision}-{number}", revision, affinity=apart) for revision in "ab" for number in range(2)]
    async with cluster.scheduled():
        await cluster.api.create(*pods)
        assert await zones_of(cluster, pods) == ["z1", "z1", "z2", "z2"]
    assert await cluster.faults() == []


@pytest.mark.core("filter: negative namespaceSelector")
@pytest.mark.parametrize("mode", ["offload", "augment"])
async def test_a_negative_namespace_selector_reaches_the_namespaces_that_it_selects(
    cluster: Cluster, mode: str
) -> None:
    """In augment the scheduler's own plugin answers too, and since 1.34 it counts the pod of the excluded namespace."""
    await cluster.add_nodes(zones=1, per_zone=1)
    await cluster.api.create(namespace("other", team="other"))
    near = pod("near", "other", on="z1-1", labels={"app": "web"})
    elsewhere = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["other"]}]}
    asked = pod("asked", affinity=anti_affinity(term(ZONE, namespaces=elsewhere, app="web")))
    async with cluster.scheduled(mode):
        scheduler = minor_of_program(cluster.plane.scheduler.command[0])
        await cluster.api.create(near, asked)
        (placed,) = await cluster.board.decided(asked)
    assert bool(placed) is (mode == "offload" or scheduler < EVERY_NAMESPACE)
    assert await cluster.faults() == []


@pytest.mark.core("what is missing is said")
async def test_a_policy_that_the_api_server_takes_in_part_says_so(cluster: Cluster) -> None:
    old = minor_of_program(cluster.plane.apiserver.command[0]) < LABEL_KEYS
    directed = policy(
        "PodSchedulingPolicy", affinity=anti_affinity({**term(ZONE, app="db"), "matchLabelKeys": ["revision"]})
    )
    path = f"{path_of(directed)}/{name_of(directed)}"
    async with policed(cluster) as found:
        await found.apply(directed)
        made = await cluster.api.request("POST", PODS, db_pod("one"), params={"dryRun": "All"})
        (kept,) = made["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        async with asyncio.timeout(PATIENCE):
            while not (status := (await cluster.api.request("GET", path)).get("status")):  # noqa: ASYNC110 -- no event across processes
                await asyncio.sleep(0.2)
        (reason,) = (each["reason"] for each in status["conditions"] if each["type"] == "Valid")
    assert ("matchLabelKeys" not in kept, reason) == (old, "Incomplete" if old else "Valid")


@pytest.mark.core("what is missing is said")
async def test_the_service_says_what_this_api_server_drops(cluster: Cluster) -> None:
    minor = minor_of_program(cluster.plane.apiserver.command[0])
    apart = anti_affinity({**term(ZONE, app="web"), "matchLabelKeys": ["revision"]})
    asked = web("asked", "a", affinity=apart)
    kept = await cluster.api.request("POST", path_of(asked), asked, params={"dryRun": "All"})
    (found,) = kept["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    with cluster.extender({"mode": "offload"}) as extender:
        await eventually_ready(extender)
        async with asyncio.timeout(PATIENCE):  # the refusal of a streaming list is counted ten seconds later
            while (lacks := await lacking(extender)).get("watch-list") is not (minor not in STREAMING):  # noqa: ASYNC110 -- no event across processes
                await asyncio.sleep(0.2)
        series = await extender.series("extender_apiserver_lacks")
    assert {labels["version"].split(".")[1] for labels, _ in series} == {str(minor)}
    assert lacks["affinity-label-keys"] is ("matchLabelKeys" not in found) is (minor < LABEL_KEYS)
    served = {
        each["name"]
        for each in (await cluster.api.request("GET", "/apis/admissionregistration.k8s.io/v1"))["resources"]
    }
    assert lacks["validating-admission-policy"] is ("validatingadmissionpolicies" not in served)
    assert lacks["supported-version"] is False
