"""Pods that the real scheduler would leave waiting: nominated past its sample of nodes, requeued after what it cannot see.

The scheduler looks at a tenth of the nodes at a time here, as it does by default in clusters of 5,000.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from extender.simulator.json_objects import JsonObject
from tests.e2e.board import key_of
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import EMULATES, HINTS_ON_AND_OFF, WITHOUT_HINTS
from tests.simulator.plain import HOSTNAME, ZONE, affinity, namespace, pod, term

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ZONES, PER_ZONE, INCOMING = 10, 100, 50
QUIET = 2.0  # seconds in which a pod has been bound, or waits for something that will not come by itself
BACKOFF = 3.0  # seconds after which no rejected pod waits in the backoff queue; kube-scheduler before 1.33 takes none out early
RELABELLED = 20


async def anchors(cluster: Cluster) -> None:
    """A thousand nodes, and on some of them a pod that one other pod wants to be with."""
    names = await cluster.add_nodes(ZONES, PER_ZONE)
    places = [names[number * len(names) // INCOMING] for number in range(INCOMING)]
    await cluster.api.create(
        *(pod(f"anchor-{number}", on=place, labels={"anchor": f"{number}"}) for number, place in enumerate(places))
    )


def drawn(number: int) -> JsonObject:
    """A pod that fits exactly one node: that of its anchor."""
    return pod(f"drawn-{number}", affinity=affinity(term(HOSTNAME, anchor=f"{number}")))


async def seconds_until_bound(cluster: Cluster, incoming: JsonObject) -> float | None:
    """How long a pod waited for its node in a quiet cluster; None if it got none while it was worth waiting."""
    began = time.monotonic()
    await cluster.api.create(incoming)
    try:
        await cluster.board.until(lambda: cluster.board.node(key_of(incoming)), QUIET)
    except TimeoutError:
        return None
    return cluster.board.bound_at[key_of(incoming)] - began


async def test_pods_that_fit_one_node_of_a_thousand_are_nominated_elsewhere_to_it(cluster: Cluster) -> None:
    await anchors(cluster)
    async with cluster.scheduled(percentageOfNodesToScore=10) as extender:
        waited = [await seconds_until_bound(cluster, drawn(number)) for number in range(INCOMING)]
        steered = await extender.metric("extender_rejected_pod_actions_total", action="nominate", result="done")
    assert [number for number, seconds in enumerate(waited) if seconds is None] == []
    assert steered > 0
    assert await cluster.faults() == []
    print(f"slowest {max(filter(None, waited)):.3f} s, {steered:.0f} nominations for {INCOMING} pods")  # noqa: T201 -- shown by -s


@pytest.mark.core("nominations elsewhere")
@pytest.mark.parametrize("scheduler_flags", HINTS_ON_AND_OFF)
async def test_pods_that_are_nominated_elsewhere_are_all_bound_whether_or_not_a_nomination_wakes_them(
    cluster: Cluster, scheduler_flags: Sequence[str]
) -> None:
    await anchors(cluster)
    pods = [drawn(number) for number in range(INCOMING)]
    async with cluster.scheduled(percentageOfNodesToScore=10) as extender:
        await cluster.api.create(*pods)
        await cluster.board.bound(*pods)
        nominated = await extender.metric("extender_rejected_pod_actions_total", action="nominate", result="done")
        requeued = await extender.metric("extender_rejected_pod_actions_total", action="requeue", result="done")
    assert nominated > 0
    assert requeued > 0 or not scheduler_flags
    assert await cluster.faults() == []
    print(f"{nominated:.0f} nominations, {requeued:.0f} requeues for {INCOMING} pods")  # noqa: T201 -- shown by -s


async def test_without_nominations_most_of_them_wait_for_good(cluster: Cluster) -> None:
    await anchors(cluster)
    waited = []
    async with cluster.scheduled(settings={"rejectedPods": {"nominateElsewhere": False}}, percentageOfNodesToScore=10):
        for number in range(6):
            waited.append(await seconds_until_bound(cluster, drawn(number)))
            await cluster.api.delete(f"/api/v1/namespaces/default/pods/drawn-{number}", grace=0)
    assert None in waited


@pytest.mark.core("requeue")
@pytest.mark.parametrize(
    ("requeues", "scheduler_flags"),
    [(True, ()), (False, ()), pytest.param(True, WITHOUT_HINTS, marks=EMULATES)],
    ids=["requeued", "not requeued", "requeued without hints"],
)
async def test_pods_that_a_relabelled_namespace_lets_in_are_bound_if_they_are_requeued(
    cluster: Cluster, *, requeues: bool
) -> None:
    names = await cluster.add_nodes(zones=3, per_zone=4)
    await cluster.api.create(namespace("db"), pod("db", "db", on=names[0], labels={"app": "db"}))
    near = affinity(term(ZONE, namespaces={"matchLabels": {"team": "a"}}, app="db"))
    pods = [pod(f"web-{number}", affinity=near) for number in range(RELABELLED)]
    async with cluster.scheduled(settings={"rejectedPods": {"requeue": requeues}}):
        await cluster.api.create(*pods)
        assert await cluster.board.decided(*pods) == [""] * RELABELLED
        await cluster.calm(still=BACKOFF)
        began = time.monotonic()
        await cluster.api.patch("/api/v1/namespaces/db", {"metadata": {"labels": {"team": "a"}}})
        try:
            await cluster.board.until(lambda: all(cluster.board.node(key_of(each)) for each in pods), QUIET)
        except TimeoutError:
            assert not requeues
        else:
            assert requeues
            print(f"all bound after {time.monotonic() - began:.3f} s")  # noqa: T201 -- shown by -s
    assert await cluster.faults() == []
