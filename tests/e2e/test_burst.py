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


async def place(cluster: Cluster, *, all_of_them: bool = True, bind_verb: str = "", **settings: Any) -> None:
    """All pods wait when the scheduler begins. Returns once all have a node, or else once each was placed or refused.

    On a busy machine a pod is refused for a moment where others may be on the nodes that it could have; it is tried again.
    """
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
        board = cluster.board
        nodes = await (board.bound if all_of_them else board.decided)(*pods, within=150)
        bound_by_us = await extender.metric("extender_requests_total", verb="bind", code="200")
    assert bound_by_us == (sum(bool(node) for node in nodes) if bind_verb else 0)


@pytest.mark.parametrize(
    ("placement", "bind_verb"),
    [("decisive", ""), ("cooperative", ""), ("cooperative", "bind")],
    ids=["decisive", "cooperative", "cooperative with bind"],
)
async def test_a_burst_of_1000_pods_breaks_no_constraint(cluster: Cluster, placement: str, bind_verb: str) -> None:
    await place(cluster, placement=placement, bind_verb=bind_verb)
    assert await cluster.faults() == []


async def test_the_same_burst_breaks_some_when_no_pod_is_assumed(cluster: Cluster) -> None:
    await place(cluster, all_of_them=False, assumedPods={"enabled": False})
    assert await cluster.faults() != []
