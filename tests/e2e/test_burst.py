"""Many pods at once with constraints on one another: the scheduler is never behind itself, and must not seem to be."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from extender.simulate.json_objects import JsonObject
from tests.e2e.client import path_of
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import EXTENDER_ACCOUNT
from tests.simulate.plain import HOSTNAME, ZONE, affinity, anti_affinity, namespace, pod, spread, term

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ZONES, PER_ZONE, PODS = 10, 25, 1000
TEAMS = {"matchLabels": {"team": "a"}}


def mixed(count: int) -> Iterator[JsonObject]:
    """Pods of five kinds in turn, over ten namespaces; each kind has room for all of its pods, but none to waste."""
    for number in range(count):
        group, kind = str(number // 5 % 4), number % 5
        where, name = f"team-{number % 10}", f"burst-{number}"
        if kind == 0:  # 200 pods, each alone on one of 250 nodes, whatever its namespace
            labels = {"app": "apart"}
            yield pod(name, where, labels=labels, affinity=anti_affinity(term(HOSTNAME, namespaces=TEAMS, **labels)))
        elif kind == 1:  # four groups, each in a zone of its own choice
            near = affinity(term(ZONE, namespaces=TEAMS, near=group))
            yield pod(name, where, labels={"near": group}, affinity=near)
        elif kind == 2:
            labels = {"app": "even"}
            yield pod(
                name, "team-0", labels=labels, topologySpreadConstraints=[spread(labels=labels, minDomains=ZONES)]
            )
        elif kind == 3:  # over nodes as well, where one less in a single node binds all others
            labels = {"app": "thin"}
            constraints = [spread(skew=2, labels=labels), spread(HOSTNAME, labels=labels)]
            yield pod(name, "team-1", labels=labels, topologySpreadConstraints=constraints)
        else:  # four groups that shun one another's zones, as soon as each has one
            others = {"key": "shuns", "operator": "In", "values": [each for each in "0123" if each != group]}
            clause = {"topologyKey": ZONE, "labelSelector": {"matchExpressions": [others]}, "namespaceSelector": TEAMS}
            yield pod(name, where, labels={"shuns": group}, affinity=anti_affinity(clause))


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
    await cluster.add_nodes(ZONES, PER_ZONE, cpu="64")
    await cluster.api.create(*(namespace(f"team-{number}", team="a") for number in range(10)))
    pods = list(mixed(PODS))
    for permission in may_bind() if bind_verb else ():
        await cluster.api.request("POST", path_of(permission), permission, allow=[409])
    changes: dict[str, Any] = {"bindVerb": bind_verb} if bind_verb else {}
    async with cluster.scheduled(settings=settings, **changes) as extender:
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
