"""A control plane that restarts while pods are preempted and groups are released."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, Final, TypeVar

import aiohttp

from extender.simulator.json_objects import JsonObject, labels_of
from tests.e2e.board import key_of
from tests.e2e.client import ApiFailure, path_of, pod_path
from tests.e2e.cluster import Cluster
from tests.e2e.judging import violations
from tests.e2e.pod_groups import LABEL, gang, zones
from tests.simulator.plain import ZONE, pod

SECONDS: Final = float(os.environ.get("RESTARTING_SECONDS", "90"))
EVERY: Final = 30.0  # seconds between two restarts
WITHIN: Final = 180.0 + SECONDS  # on a slow machine watches may stand still until the last restart
GANG, ALONE, FULL = 3, 2, 6  # pods of a gang, preemptors without a gang, pods that fill a zone
_RETRY: Final = 0.2
_T = TypeVar("_T")


async def patiently(attempt: Callable[[], Awaitable[_T]]) -> _T:
    """Try again until the API server answers, as a controller does."""
    while True:
        try:
            return await attempt()
        except (aiohttp.ClientError, ApiFailure, TimeoutError):
            await asyncio.sleep(_RETRY)


async def restarting(cluster: Cluster) -> int:
    """End the API server again and again, in order and by force in turns; return how often."""
    plane, loop = cluster.plane, asyncio.get_running_loop()
    begun = loop.time()
    for number in count(1):
        if loop.time() - begun + EVERY > SECONDS:
            return number - 1
        await asyncio.sleep(max(0.0, begun + number * EVERY - loop.time()))
        await asyncio.to_thread(plane.apiserver.stop if number % 2 else plane.apiserver.kill)
        await asyncio.to_thread(plane.start_apiserver)
    raise AssertionError


class Round:
    """A full cluster, and pods of high priority that need room in it: a gang, and some without one."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self._cluster = cluster
        self.low = [pod(f"low-{number}-{at}", cpu="1", nodeSelector={ZONE: "z1"}) for at in range(FULL)]
        more: dict[str, Any] = {"nodeSelector": {ZONE: "z2"}, "priorityClassName": "middle"}
        self.middle = [pod(f"middle-{number}-{at}", cpu="1", **more) for at in range(FULL)]
        self.gang = gang(f"zone-{number}", GANG, priorityClassName="high")
        for made in self.gang:
            made["metadata"]["labels"]["kind"] = "zone"
        self.alone = [pod(f"alone-{number}-{at}", cpu="1", priorityClassName="high") for at in range(ALONE)]

    async def play(self) -> list[str]:
        """Return what is wrong at its end."""
        await self._create(self.low + self.middle)
        await self._cluster.board.bound(*self.low, *self.middle, within=WITHIN)
        await self._create(self.gang + self.alone)
        nodes = await self._cluster.board.bound(*self.gang, *self.alone, within=WITHIN)
        found = await patiently(lambda: violations(self._cluster.api, self._cluster.plane.scheduler.log()))
        at = await patiently(lambda: zones(self._cluster.api))
        if len({at[name] for name in nodes[:GANG]}) != 1:
            found.append(f"{labels_of(self.gang[0])[LABEL]} is split: {nodes[:GANG]}")
        left = [len([made for made in pods if self._is_there(made)]) for pods in (self.low, self.middle)]
        if left != [FULL - GANG - ALONE, FULL]:
            found.append(f"of {FULL} pods each are left: {left[0]} low, {left[1]} middle")
        return found

    async def remove(self) -> None:
        """Remove all pods of the round."""
        pods = self.low + self.middle + self.gang + self.alone
        for made in pods:
            await patiently(lambda made=made: self._cluster.api.delete(pod_path(made), grace=0))  # type: ignore[misc]
        await self._cluster.board.until(lambda: not any(map(self._is_there, pods)), within=WITHIN)

    def _is_there(self, made: JsonObject) -> bool:
        metadata = self._cluster.board.pods.get(key_of(made), {}).get("metadata", {})
        return bool(metadata) and "deletionTimestamp" not in metadata

    async def _create(self, pods: list[JsonObject]) -> None:
        for made in pods:
            await patiently(lambda made=made: self._cluster.api.request("POST", path_of(made), made, allow=[409]))  # type: ignore[misc]
