"""Pods that prefer few nodes, on the real scheduler with the profiles that `extender config generate` writes.

The scheduler samples 100 of 1,000 nodes here for the pods of its first profile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml

from extender.cli.main import main
from extender.simulator.json_objects import JsonObject, name_of
from tests.e2e.board import key_of
from tests.e2e.client import path_of
from tests.e2e.cluster import Cluster
from tests.fakes import PATIENCE
from tests.simulator.plain import HOSTNAME, ZONE, affinity, pod, term

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PODS = 20
ALL_NODES = "default-scheduler-all-nodes"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def preferring(*keys: str) -> JsonObject:
    """Preferred node affinity to nodes with any value of one of these labels."""
    terms = [{"weight": 1, "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]}} for key in keys]
    return {"nodeAffinity": {_PREFERRED: terms}}


def near_cache(key: str) -> JsonObject:
    return {"podAffinity": {_PREFERRED: [{"weight": 1, "podAffinityTerm": term(key, app="cache")}]}}


WISHES: dict[str, tuple[JsonObject, bool]] = {
    "by-host": (near_cache(HOSTNAME), True),
    "by-zone": (near_cache(ZONE), False),
    "by-label": (preferring("disk"), True),
    "by-node-zone": (preferring(ZONE, "kubernetes.io/arch"), False),
    "by-node-zone-and-label": (preferring(ZONE, "disk"), True),
    "by-name": (
        {"nodeAffinity": {_PREFERRED: [{"weight": 1, "preference": {"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}}]}},
        True,
    ),
    "required": (affinity(term(HOSTNAME, app="cache")), False),
    "none": ({}, False),
}  # fmt: skip


@asynccontextmanager
async def _policy_applied(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[None]:
    """The objects that the command prints exist during the block, and the apiserver applies them."""
    assert main(["config", "generate", "--all-nodes-policy"]) == 0
    objects = list(yaml.safe_load_all(capsys.readouterr().out))
    for each in objects:
        await cluster.api.request("POST", path_of(each), each, params={"fieldValidation": "Strict"})
    try:
        await _until_profile(cluster, ALL_NODES)
        yield
    finally:
        for each in reversed(objects):
            await cluster.api.delete(f"{path_of(each)}/{name_of(each)}")
        await _until_profile(cluster, "default-scheduler")


async def _until_profile(cluster: Cluster, name: str) -> None:
    """Returns once a new pod that prefers few nodes gets this profile: the apiserver reads policies by a watch of its own."""
    async with asyncio.timeout(PATIENCE):
        while await _profile(cluster, near_cache(HOSTNAME)) != name:  # noqa: ASYNC110 -- no event across processes
            await asyncio.sleep(0.05)


async def _profile(cluster: Cluster, wishes: JsonObject, **spec: Any) -> str:
    made = pod("dry-run", affinity=wishes, **spec)
    created = await cluster.api.request("POST", path_of(made), made, params={"dryRun": "All"})
    return str(created["spec"]["schedulerName"])


def _near(name: str) -> list[JsonObject]:
    return [pod(f"{name}-{number}", affinity=near_cache(HOSTNAME)) for number in range(PODS)]


async def test_pods_that_prefer_one_node_of_a_thousand_get_it_with_the_policy(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    names = await cluster.add_nodes(zones=10, per_zone=100)
    await cluster.api.create(pod("cache", on=names[0], labels={"app": "cache"}))
    async with cluster.scheduled() as extender:
        sampled = _near("sampled")
        await cluster.api.create(*sampled)
        await cluster.board.bound(*sampled)
        async with _policy_applied(cluster, capsys):
            given = {name: await _profile(cluster, wishes) for name, (wishes, _) in WISHES.items()}
            other = await _profile(cluster, near_cache(HOSTNAME), schedulerName="mine")
            whole = _near("whole")
            await cluster.api.create(*whole)
            await cluster.board.bound(*whole)
        asked = await extender.metric("extender_scheduler_decisions_total", scheduler=ALL_NODES, result="passed")
    assert given == {name: ALL_NODES if few else "default-scheduler" for name, (_, few) in WISHES.items()}
    assert (other, asked) == ("mine", PODS)
    assert {cluster.board.node(key_of(each)) for each in whole} == {names[0]}
    missed = sum(cluster.board.node(key_of(each)) != names[0] for each in sampled)
    assert missed > PODS / 2, "a sample has a tenth of the nodes"
    assert await cluster.faults() == []
