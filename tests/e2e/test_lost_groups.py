"""The extender is killed at ten moments of a release, and of a preemption for a whole group: nothing is lost, split or placed wrongly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest
from aiohttp import web

from extender.simulator.json_objects import JsonObject
from tests.e2e.board import key_of
from tests.e2e.cluster import Cluster
from tests.e2e.making_room import priority_class
from tests.e2e.slow_writes import Wait, way_round
from tests.e2e.test_gangs import LABEL, PLACEMENTS, SETTINGS, gang, released, zones
from tests.e2e.test_group_preferences import releasing
from tests.e2e.test_lost_preemptions import WITHIN, Killed
from tests.simulator.plain import HOSTNAME, ZONE, pod, spread

__all__ = ["released"]  # the fixture

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SIZE: Final = 4
# A release: its GroupPlacement, four pods without their gate, four bindings, and what is told of them.
RELEASE: Final = range(10)
# A preemption for a group of three: the GroupPlacement, two writes for each of three victims, and then a release.
PREEMPTION: Final = (0, 1, 2, 3, 4, 5, 6, 7, 9, 11)
PLACED: Final = ("decisive", "cooperative")
COUNTED: Final = ("/pods/", "/groupplacements")
SHORT: Final = {"enabled": True, "leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "1s"}


class HeldBoth:
    """Hands so many writes of pods and groups on, of the extender and the scheduler, in the order in which they come, and holds all others.

    Those of the scheduler go on once the extender has been killed.
    """

    def __init__(self, count: int) -> None:
        self.reached = asyncio.Event()
        self.killed = asyncio.Event()
        self.passed: list[str] = []
        self._left = count

    def of(self, *, extender: bool) -> Wait:
        """What a write of the one or the other waits for."""

        async def wait(request: web.Request) -> None:
            if self.killed.is_set() or not any(part in request.path for part in COUNTED):
                return
            self._left -= 1
            if self._left >= 0:
                self.passed.append(f"{request.method} {request.path.rpartition('namespaces/')[2]}")
                return
            self.reached.set()
            await (asyncio.Event() if extender else self.killed).wait()

        return wait


async def killed_after(
    cluster: Cluster, moment: int, placement: str, pods: Sequence[JsonObject], meanwhile: Sequence[JsonObject] = ()
) -> list[str]:
    """The nodes of pods whose extender is killed after so many writes; others are created before it starts again, and are bound."""
    held, board = HeldBoth(moment), cluster.board
    settings = {**SETTINGS, "leaderElection": SHORT, "placement": placement, "preemption": {"mode": "execute"}}
    scored: dict[str, Any] = {"prioritizeVerb": "prioritize", "weight": 1} if placement == "cooperative" else {}
    killed = Killed(cluster, settings, **scored)
    async with AsyncExitStack() as stack:
        ours, theirs = [
            await stack.enter_async_context(way_round(cluster.plane, held.of(extender=is_ours)))
            for is_ours in (True, False)
        ]
        extender = await stack.enter_async_context(killed.asked(ours, theirs))
        await cluster.api.create(*pods)
        waits = [asyncio.create_task(held.reached.wait()), asyncio.create_task(_all_bound(cluster, pods))]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=WITHIN)
        for waiting in waits:
            waiting.cancel()
        extender.program.kill()
        print(moment, placement, held.passed)  # noqa: T201 -- shown by -s
        held.killed.set()
        await cluster.api.create(*meanwhile)
        await stack.enter_async_context(killed.again(extender))
        await board.bound(*meanwhile, within=WITHIN)
        return await board.bound(*pods, within=WITHIN)


async def _all_bound(cluster: Cluster, pods: Sequence[JsonObject]) -> None:
    await cluster.board.until(lambda: all(cluster.board.node(key_of(made)) for made in pods), within=WITHIN)


async def decided(cluster: Cluster) -> list[str]:
    """The zones of all GroupPlacements."""
    return [found["spec"]["topology"][0]["value"] for found in (await cluster.api.list(PLACEMENTS))[0]]


def of_kind(kind: str, pods: Sequence[JsonObject]) -> Sequence[JsonObject]:
    """The pods with the label that a policy selects by."""
    for made in pods:
        made["metadata"]["labels"]["kind"] = kind
    return pods


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
    await releasing(released, "zone", topology=[ZONE], whenNoRoom="Preempt")
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
