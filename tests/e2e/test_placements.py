"""Where a real kube-scheduler puts pods when the extender decides for it, judged by brute force and by the audit."""

from __future__ import annotations

from collections import Counter

import pytest

from extender.simulator.json_objects import JsonObject
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import HINTS_ON_AND_OFF
from tests.simulator.plain import HOSTNAME, ZONE, affinity, anti_affinity, namespace, node, pod, spread, term

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TEAM_A = {"matchLabels": {"team": "a"}}
WEB = {"app": "web"}


def zone_of(node_name: str) -> str:
    """The zone that `add_nodes` has put a node into."""
    return node_name.partition("-")[0]


def web(number: int, where: str) -> JsonObject:
    """A pod that keeps away from its like in all of team A's namespaces."""
    return pod(f"web-{number}", where, labels=WEB, affinity=anti_affinity(term(HOSTNAME, namespaces=TEAM_A, app="web")))


@pytest.mark.core("filter: affinity")
async def test_pods_of_two_namespaces_keep_apart_and_one_too_many_is_rejected_with_our_reason(cluster: Cluster) -> None:
    await cluster.add_nodes(zones=3, per_zone=2)
    await cluster.api.create(namespace("a1", team="a"), namespace("a2", team="a"))
    pods = [web(number, f"a{number % 2 + 1}") for number in range(6)]
    async with cluster.scheduled() as extender:
        await cluster.api.create(*pods)
        nodes = await cluster.board.bound(*pods)
        await cluster.api.create(one_too_many := web(6, "a1"))
        message = await cluster.board.rejected(one_too_many)
        questions = await extender.metric("extender_requests_total", verb="filter", code="200")
    assert len(set(nodes)) == 6
    assert "6 node(s) didn't match pod anti-affinity rules" in message
    assert questions >= 7
    assert await cluster.faults() == []


@pytest.mark.core("filter: affinity")
async def test_a_namespace_outside_the_selector_is_neither_kept_away_nor_kept_away_from(cluster: Cluster) -> None:
    await cluster.add_nodes(zones=1, per_zone=1)
    await cluster.api.create(namespace("a1", team="a"), namespace("b1", team="b"))
    async with cluster.scheduled():
        await cluster.api.create(first := pod("elsewhere", "b1", labels=WEB))
        await cluster.board.bound(first)
        await cluster.api.create(second := web(1, "a1"))
        await cluster.board.bound(second)
        await cluster.api.create(third := pod("later", "b1", labels=WEB), own := pod("own", "a1", labels=WEB))
        await cluster.board.bound(third)
        message = await cluster.board.rejected(own)
    assert "didn't satisfy existing pods anti-affinity rules" in message
    assert await cluster.faults() == []


@pytest.mark.core("filter: spread")
async def test_with_too_few_domains_pods_wait_until_a_new_zone_comes(cluster: Cluster) -> None:
    await cluster.add_nodes(zones=2, per_zone=2)
    constraint = spread(ZONE, labels=WEB, minDomains=3)
    pods = [pod(f"web-{number}", labels=WEB, topologySpreadConstraints=[constraint]) for number in range(3)]
    async with cluster.scheduled():
        await cluster.api.create(*pods[:2])
        await cluster.board.bound(*pods[:2])
        await cluster.api.create(pods[2])
        message = await cluster.board.rejected(pods[2])
        await cluster.api.create(node("z3-1", "z3"))
        nodes = await cluster.board.bound(*pods)
    assert "4 node(s) didn't match pod topology spread constraints" in message
    assert Counter(map(zone_of, nodes)) == {"z1": 1, "z2": 1, "z3": 1}
    assert await cluster.faults() == []


@pytest.mark.core("score: affinity")
async def test_a_preference_draws_pods_to_the_zone_of_their_database(cluster: Cluster) -> None:
    names = await cluster.add_nodes(zones=4, per_zone=3)
    await cluster.api.create(namespace("db", team="a"), pod("db", "db", on=names[7], labels={"app": "db"}))
    preference = {"weight": 50, "podAffinityTerm": term(ZONE, namespaces=TEAM_A, app="db")}
    wanting = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}
    pods = [pod(f"web-{number}", labels=WEB, affinity=wanting) for number in range(6)]
    async with cluster.scheduled():
        await cluster.api.create(*pods)
        nodes = await cluster.board.bound(*pods)
    assert {zone_of(name) for name in nodes} == {zone_of(names[7])}
    assert await cluster.faults() == []


@pytest.mark.core("filter: affinity")
@pytest.mark.parametrize("scheduler_flags", HINTS_ON_AND_OFF)
async def test_pods_that_must_be_near_others_go_to_their_zones_and_wait_while_there_are_none(cluster: Cluster) -> None:
    names = await cluster.add_nodes(zones=4, per_zone=3)
    near = affinity(term(ZONE, namespaces=TEAM_A, app="db"))
    pods = [pod(f"web-{number}", labels=WEB, affinity=near) for number in range(6)]
    async with cluster.scheduled():
        await cluster.api.create(*pods)
        message = await cluster.board.rejected(pods[0])
        await cluster.api.create(namespace("db", team="a"), pod("db", "db", on=names[0], labels={"app": "db"}))
        nodes = await cluster.board.bound(*pods)
    assert "12 node(s) didn't match pod affinity rules" in message
    assert {zone_of(name) for name in nodes} == {"z1"}
    assert await cluster.faults() == []


async def test_the_first_pod_of_a_group_goes_anywhere_and_the_others_follow_it(cluster: Cluster) -> None:
    await cluster.add_nodes(zones=4, per_zone=3)
    pods = [pod(f"web-{number}", labels=WEB, affinity=affinity(term(ZONE, app="web"))) for number in range(12)]
    async with cluster.scheduled():
        await cluster.api.create(*pods)
        nodes = await cluster.board.bound(*pods)
    assert len({zone_of(name) for name in nodes}) == 1
    assert await cluster.faults() == []


@pytest.mark.core("score: spread")
async def test_a_soft_spread_comes_out_even(cluster: Cluster) -> None:
    await cluster.add_nodes(zones=3, per_zone=4)
    constraint = spread(ZONE, hard=False, labels=WEB)
    pods = [pod(f"web-{number}", labels=WEB, topologySpreadConstraints=[constraint]) for number in range(12)]
    async with cluster.scheduled():
        await cluster.api.create(*pods)
        nodes = await cluster.board.bound(*pods)
    assert sorted(Counter(map(zone_of, nodes)).values()) == [4, 4, 4]
    assert await cluster.faults() == []


async def test_a_deleted_pod_makes_room_for_one_that_waits(cluster: Cluster) -> None:
    await cluster.add_nodes(zones=1, per_zone=2)
    await cluster.api.create(namespace("a1", team="a"))
    async with cluster.scheduled():
        await cluster.api.create(web(0, "a1"), web(1, "a1"))
        first, _ = await cluster.board.bound(web(0, "a1"), web(1, "a1"))
        await cluster.api.create(web(2, "a1"))
        await cluster.board.rejected(web(2, "a1"))
        await cluster.api.delete("/api/v1/namespaces/a1/pods/web-0")
        assert await cluster.board.bound(web(2, "a1")) == [first]
    assert await cluster.faults() == []
