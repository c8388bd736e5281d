"""Many pods at once with constraints on one another: the scheduler is never behind itself, and must not seem to be."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from extender.simulator.json_objects import JsonObject
from tests.e2e import mixture
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import EXTENDER_ACCOUNT
from tests.e2e.granting import applied

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PODS = 1000


def may_bind() -> list[JsonObject]:
    """The permission that the bind verb needs beyond those of our manifests."""
    named = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "placement-extender-binder"}}
    rule = {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "placement-extender-binder"}
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": EXTENDER_ACCOUNT}
    return [
        {"kind": "ClusterRole", **named, "rules": [rule]},
        {"kind": "ClusterRoleBinding", **named, "roleRef": role, "subjects": [user]},
    ]


async def place_all(cluster: Cluster, *, bind_verb: str = "", **settings: Any) -> int:
    """All pods wait when the scheduler begins; returns how many of them got a node."""
    await mixture.prepare(cluster)
    pods = list(mixture.pods(PODS))
    changes: dict[str, Any] = {"bindVerb": bind_verb} if bind_verb else {}
    if bind_verb:
        settings["server"] = {"paths": {"bind": f"/{bind_verb}"}}
    async with (
        applied(cluster.api, may_bind() if bind_verb else []),
        cluster.scheduled(settings=settings, **changes) as extender,
    ):
        cluster.plane.scheduler.send(signal.SIGSTOP)
        await cluster.api.create(*pods)
        cluster.plane.scheduler.send(signal.SIGCONT)
        nodes = await cluster.board.decided(*pods, within=240)
        bound_by_us = await extender.metric("extender_requests_total", verb="bind", code="200")
    placed = sum(bool(node) for node in nodes)
    assert bound_by_us == (placed if bind_verb else 0)
    return placed


@pytest.mark.parametrize(
    ("placement", "bind_verb"),
    [("decisive", ""), ("cooperative", ""), ("cooperative", "bind")],
    ids=["decisive", "cooperative", "cooperative with bind"],
)
async def test_a_burst_of_1000_pods_breaks_no_constraint(cluster: Cluster, placement: str, bind_verb: str) -> None:
    assert await place_all(cluster, placement=placement, bind_verb=bind_verb) == PODS
    assert await cluster.faults() == []


async def test_the_same_burst_breaks_some_when_no_pod_is_assumed(cluster: Cluster) -> None:
    await place_all(cluster, assumedPods={"enabled": False})
    assert await cluster.faults() != []
