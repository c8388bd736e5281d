"""The extender is killed at ten moments of a release, and of a preemption for a whole group: nothing is lost, split or placed wrongly."""

from __future__ import annotations

from typing import Final

import pytest

from tests.e2e.board import key_of
from tests.e2e.cluster import Cluster
from tests.e2e.killed_releases import decided, killed_after, of_kind
from tests.e2e.making_room import priority_class
from tests.e2e.pod_groups import LABEL, gang, zones
from tests.e2e.test_gangs import released
from tests.e2e.test_group_preferences import releasing
from tests.simulator.plain import HOSTNAME, ZONE, pod, spread

__all__ = ["released"]  # the fixture

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SIZE: Final = 4
# A release: its GroupPlacement, four pods without their gate, four bindings, and what is told of them.
RELEASE: Final = range(10)
# A preemption for a group of three: the GroupPlacement, two writes for each of three victims, and then a release.
PREEMPTION: Final = (0, 1, 2, 3, 4, 5, 6, 7, 9, 11)
PLACED: Final = ("decisive", "cooperative")


@pytest.mark.parametrize("placement", PLACED)
@pytest.mark.parametrize("moment", RELEASE)
async def test_a_released_group_survives_a_kill_at_any_moment(released: Cluster, placement: str, moment: int) -> None:
    """Others, which fill all that is left, are there when the next extender starts."""
    await released.add_nodes(zones=2, per_zone=4, cpu="2")
    await releasing(released, "zone", topology=[ZONE])
    soft = [spread(HOSTNAME, hard=False, labels={LABEL: "zone-a"})]
    pods = of_kind("zone", gang("zone-a", SIZE, topologySpreadConstraints=soft))
    # Before anything was decided a gang is at its gate, and has no room that others may not take.
    others = [pod(f"other-{number}", cpu="1") for number in range(12 if moment else 4)]
    nodes = await killed_after(released, moment, placement, pods, others)
    at = await zones(released.api)
    assert {at[name] for name in nodes} == set(await decided(released))
    assert len({at[name] for name in nodes}) == 1
    if moment:
        assert len(set(nodes)) == SIZE, "they spread"
    assert await released.faults() == []


@pytest.mark.parametrize("placement", PLACED)
@pytest.mark.parametrize("moment", PREEMPTION)
async def test_a_preemption_for_a_whole_group_survives_a_kill_at_any_moment(
    released: Cluster, placement: str, moment: int
) -> None:
    names = await released.add_nodes(zones=2, per_zone=2, cpu="2")
    for name, value in (("high", 1000), ("middle", 10)):
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        await released.api.request("POST", path, priority_class(name, value), allow=[409])
    await releasing(released, "zone", topology=[ZONE], noRoom=[{"action": "Preempt"}])
    low = [pod(f"low-{number}", cpu="1", on=name) for number, name in enumerate(names[:2] * 2)]
    middle = [
        pod(f"middle-{number}", cpu="1", on=name, priorityClassName="middle")
        for number, name in enumerate(names[2:] * 2)
    ]
    await released.api.create(*low, *middle)
    nodes = await killed_after(
        released, moment, placement, of_kind("zone", gang("zone-high", 3, priorityClassName="high"))
    )
    at = await zones(released.api)
    assert {at[name] for name in nodes} == {"z1"} == set(await decided(released))
    left = [sum(key_of(made) in released.board.pods for made in pods) for pods in (low, middle)]
    assert left == [1, 4]
    assert await released.faults() == []
