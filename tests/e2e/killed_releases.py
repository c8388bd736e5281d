"""The extender is killed at a moment of a release or of a preemption for a group, and restarted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from aiohttp import web

from extender.simulator.json_objects import JsonObject
from tests.e2e.board import key_of
from tests.e2e.cluster import Cluster
from tests.e2e.killed_preemptions import Killed
from tests.e2e.pod_groups import PLACEMENTS, SETTINGS
from tests.e2e.slow_writes import Wait, way_round
from tests.e2e.test_lost_preemptions import WITHIN

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
        extender = await stack.enter_async_context(killed.with_scheduler(ours, theirs))
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
