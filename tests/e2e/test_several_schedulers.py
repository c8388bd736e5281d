"""Several kube-schedulers and one extender: constraints and room are exact among all of them, also where one of them dies meanwhile."""

from __future__ import annotations

import pytest

from tests.e2e.cluster import Cluster, eventually_ready
from tests.e2e.failing_bindings import PODS, die_in_turn, place, refusing_bindings_of, until_refusing
from tests.e2e.granting import applied
from tests.e2e.sharding import NODES_A_ZONE, ON_A_NODE, ZONES, Flaws, backlog, flaws, scheduling
from tests.e2e.two_replicas import LEASE, Front, settings, two_replicas
from tests.simulator.plain import pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

MANY = {"mode": "offload", "schedulers": "many"}


@pytest.mark.core("several schedulers")
async def test_three_schedulers_place_one_backlog_without_a_flaw(cluster: Cluster) -> None:
    await place(cluster, MANY)
    assert await flaws(cluster.api) == Flaws()


async def test_room_is_given_away_twice_where_the_extender_counts_for_one_scheduler(cluster: Cluster) -> None:
    """The other tests would not show anything if the schedulers did not meet.

    They meet where they choose from lists. One name for each pod takes the room of pods that are assumed into account.
    """
    await place(cluster, MANY | {"schedulers": "one", "answers": {"names": "shortlist"}})
    found = await flaws(cluster.api)
    assert found.overcommitted_nodes > 0
    assert found == Flaws(overcommitted_nodes=found.overcommitted_nodes), "constraints are exact all the same"


async def test_a_scheduler_and_then_the_leader_die_amid_the_backlog(cluster: Cluster) -> None:
    """What the two have decided last is known to no survivor before it is bound."""
    await cluster.add_nodes(ZONES, NODES_A_ZONE, cpu=str(ON_A_NODE))
    pods = list(backlog(PODS))
    with two_replicas(cluster, settings() | {"schedulers": "many"}) as both:
        front = Front(both)
        async with front.listening():
            leader = await front.leader()
            async with scheduling(cluster.plane, front.url) as schedulers:
                await die_in_turn(cluster, schedulers, front, pods)
                follower = await front.leader()
                await cluster.board.bound(*pods, within=240)
    await cluster.api.delete(LEASE)
    assert follower is not leader
    assert await flaws(cluster.api) == Flaws()


@pytest.mark.core("several schedulers")
@pytest.mark.needs("not tried: the test refuses bindings by a ValidatingAdmissionPolicy", api=30)
async def test_a_binding_that_fails_gives_its_room_back_to_the_pod_of_another_scheduler(cluster: Cluster) -> None:
    """Nothing that kube-scheduler watches tells of it, and no later event comes."""
    await cluster.add_nodes(1, 1, cpu="1")
    first, second = pod("refused", cpu="1", schedulerName="s0"), pod("waiting", cpu="1", schedulerName="s1")
    with cluster.extender(MANY | {"assumedPods": {"expiry": "10m", "doubt": "10m"}}) as extender:
        await eventually_ready(extender)
        async with applied(cluster.api, refusing_bindings_of("refused")), scheduling(cluster.plane, extender.url, 2):
            await until_refusing(cluster, "refused")
            await cluster.api.create(first)
            message = await cluster.board.rejected(first)
            await cluster.api.create(second)
            await cluster.board.bound(second)
            failed = await extender.metric("extender_assumed_pods_forgotten_total", reason="failed")
    assert message.startswith('running Bind plugin "DefaultBinder": ')
    assert failed > 0
