"""Quotas for affinity across namespaces with a real API server and scheduler, and the way around deny by default.

The API server denies such pods where no quota names their scope (limitedResources). A quota that names it and never charges the
pod is enough for it: the pod is created without any limit. The extender does not take such a quota for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from extender.simulator.json_objects import JsonObject, name_of
from tests.e2e.client import ApiFailure, path_of
from tests.e2e.cluster import Cluster, open_cluster
from tests.e2e.control_plane import ControlPlane
from tests.simulator.plain import HOSTNAME, anti_affinity, namespace, pod, term

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SCOPE: Final = "CrossNamespacePodAffinity"
DENY: Final = {"quota": {"enabled": True, "default": {"action": "Deny"}}}
QUIET: Final = 2.0  # seconds in which a pod that is let go has been bound


@pytest.fixture(scope="module")
def denying(assets: Path) -> Iterator[ControlPlane]:
    """A control plane that denies by default as far as an API server can."""
    with ControlPlane(assets, denies_uncovered=True) as started:
        yield started


@pytest.fixture
async def cluster(denying: ControlPlane, tmp_path: Path) -> AsyncIterator[Cluster]:
    """An empty cluster on it, with nodes and a tenant."""
    async with open_cluster(denying, tmp_path) as opened:
        await opened.add_nodes(zones=3, per_zone=2)
        await opened.api.create(namespace("team"))
        yield opened
        path = path_of(quota("any", 0))
        for found in (await opened.api.list(path))[0]:  # they would outlive the namespace: no controller runs
            await opened.api.delete(f"{path}/{name_of(found)}")


def reaching(name: str) -> JsonObject:
    """A pod that keeps databases of every namespace off its node."""
    return pod(name, "team", affinity=anti_affinity(term(HOSTNAME, namespaces={}, app="db")))


def quota(name: str, pods: int, *more_scopes: str, **hard: str) -> JsonObject:
    spec: JsonObject = {"scopes": [SCOPE, *more_scopes], "hard": hard or {"pods": str(pods)}}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name, "namespace": "team"}, "spec": spec}


BYPASSES: Final[dict[str, JsonObject]] = {
    "another scope": quota("bypass", 50, "Terminating"),
    "nothing of pods": quota("bypass", 0, **{"count/secrets": "10"}),
}


@pytest.mark.core("quotas")
@pytest.mark.parametrize("bypass", BYPASSES.values(), ids=list(BYPASSES))
async def test_a_quota_that_never_charges_the_pod_lets_it_be_created_and_not_be_placed(
    cluster: Cluster, bypass: JsonObject
) -> None:
    pods = [reaching(f"web-{number}") for number in range(3)]
    with pytest.raises(ApiFailure, match="insufficient quota to match these scopes"):
        await cluster.api.create(pods[0])
    await cluster.api.create(bypass)
    await _created_in_time(cluster, pods[0])
    await cluster.api.create(*pods[1:])  # the bypass: any number of them is admitted
    async with cluster.scheduled(settings=DENY):
        for each in pods:
            assert "quota.default denies them" in await cluster.board.rejected(each)
        # A quota that covers them: one is placed at once, though nothing happens that kube-scheduler watches.
        await cluster.api.create(quota("cross-namespace", 1))
        await cluster.board.until(lambda: len(_placed(cluster, pods)) == 1)
        waiting = next(each for each in pods if each not in _placed(cluster, pods))
        await cluster.board.until(lambda: "limits pods to 1, 1 used" in cluster.board.message(_key(waiting)))
        await cluster.api.patch(f"{path_of(bypass)}/cross-namespace", {"spec": {"hard": {"pods": "2"}}})
        await cluster.board.until(lambda: len(_placed(cluster, pods)) == 2)
        await cluster.calm()
        assert len(_placed(cluster, pods)) == 2
    assert await cluster.faults() == []


async def test_without_quotas_in_the_extender_the_bypass_places_the_pods(cluster: Cluster) -> None:
    pods = [reaching(f"web-{number}") for number in range(3)]
    await cluster.api.create(BYPASSES["another scope"])
    await _created_in_time(cluster, pods[0])
    await cluster.api.create(*pods[1:])
    async with cluster.scheduled():
        await cluster.board.bound(*pods)


@pytest.mark.parametrize(
    "scopes",
    [
        {"scopes": [SCOPE]},
        {"scopeSelector": {"matchExpressions": [{"scopeName": SCOPE, "operator": "Exists"}]}},
    ],
    ids=["scopes", "scopeSelector"],
)
@pytest.mark.parametrize("hard", [{"pods": "1"}, {"count/pods": "1"}, {"requests.cpu": "150m"}, {"memory": "100Mi"}])
async def test_every_form_that_the_api_server_accepts_is_held(
    cluster: Cluster, scopes: dict[str, Any], hard: dict[str, str]
) -> None:
    made = quota("cross-namespace", 0)
    made["spec"] = {"hard": hard, **scopes}
    await cluster.api.create(quota("bypass", 50, "Terminating"))
    pods = [reaching(f"web-{number}") for number in range(3)]
    await _created_in_time(cluster, pods[0])
    await cluster.api.create(*pods[1:])
    await cluster.api.create(made)
    async with cluster.scheduled(mode="augment", settings={"quota": {"enabled": True}}):
        await cluster.board.decided(*pods)
        await cluster.calm()
        assert len(_placed(cluster, pods)) == 1


async def _created_in_time(cluster: Cluster, made: JsonObject) -> None:
    """Creates the first pod after a quota: the API server learns of quotas by a watch of its own."""
    async with asyncio.timeout(QUIET * 10):
        while True:
            try:
                await cluster.api.create(made)
            except ApiFailure as failure:
                assert "insufficient quota" in str(failure)  # noqa: PT017 (every other failure is one)
                await asyncio.sleep(0.1)
            else:
                return


def _key(made: JsonObject) -> str:
    return f"team/{made['metadata']['name']}"


def _placed(cluster: Cluster, pods: list[JsonObject]) -> list[JsonObject]:
    return [each for each in pods if cluster.board.node(_key(each))]
