"""Where a real kube-scheduler puts pods when the extender decides for it, judged by brute force."""

from __future__ import annotations

import pytest

from extender.simulate.json_objects import JsonObject
from tests.e2e.cluster import Cluster
from tests.simulate.plain import HOSTNAME, anti_affinity, namespace, pod, term

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TEAM_A = {"matchLabels": {"team": "a"}}
APART = anti_affinity(term(HOSTNAME, namespaces=TEAM_A, app="web"))


def zone_of(node_name: str) -> str:
    """The zone that `add_nodes` has put a node into."""
    return node_name.partition("-")[0]


def web(number: int, where: str) -> JsonObject:
    """A pod that keeps away from its like in all of team A's namespaces."""
    return pod(f"web-{number}", where, labels={"app": "web"}, affinity=APART)


async def test_pods_of_two_namespaces_keep_apart_and_one_too_many_is_refused_with_our_reason(cluster: Cluster) -> None:
    await cluster.add_nodes(zones=3, per_zone=2)
    await cluster.api.create(namespace("a1", team="a"), namespace("a2", team="a"), namespace("b", team="b"))
    pods = [web(number, f"a{number % 2 + 1}") for number in range(6)]
    async with cluster.scheduled() as extender:
        await cluster.api.create(*pods)
        nodes = await cluster.board.bound(*pods)
        await cluster.api.create(web(6, "a1"), one_elsewhere := web(7, "b"))
        message = await cluster.board.refused(web(6, "a1"))
        questions = await extender.metric("extender_requests_total", verb="filter", code="200")
    assert len(set(nodes)) == 6
    assert "didn't match pod anti-affinity rules" in message
    assert questions >= 7
    # Namespace b is not team A's, but the six pods that stand there do not mind it, and it minds only them.
    assert not cluster.board.node("a1/web-6")
    assert await cluster.violations() == []
    del one_elsewhere
