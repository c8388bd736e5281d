"""Pods that requests look for while the watch is late."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import orjson

from extender.index.cluster import ClusterIndex
from extender.kube.timing import SystemClock
from extender.model.objects import Pod
from extender.settings.configuration import Settings
from extender.tasks.filter_service import AssumedPodOptions, FilterService, WatchedPods
from extender.verbs.filter import FilterVerb
from extender.verbs.request import Unconfirmed
from extender.wire.extender_v1 import ExtenderArgs, decode_args
from tests.builders import index_of, pod
from tests.deciding import KeptPlans
from tests.fakes import FakeClock, until
from tests.tasks.filter_scene import APART, JsonObject, pending_pod

LONG = 60.0  # longer than a test may last: a task that waits so long has not been woken


class Looking:
    """An index, and requests for pods."""

    def __init__(self, wait: float = LONG, most_waiting: int = 10) -> None:
        self.index: ClusterIndex = index_of()
        self.pods = WatchedPods(self.index, SystemClock(), wait, most_waiting)

    def show(self, **fields: Any) -> Pod:
        found = pod("web", **fields)
        self.index.upsert(found)
        return found

    async def requested(self, requested: Pod) -> asyncio.Task[Pod | Unconfirmed]:
        """A request that has begun to wait."""
        before = self.pods.waits
        task = asyncio.create_task(self.pods.find(requested))
        await until(lambda: self.pods.waits == before + 1)
        return task


def with_nodes(name: str, *nodes: JsonObject) -> ExtenderArgs:
    return decode_args(orjson.dumps({"Pod": pending_pod(name, APART), "Nodes": {"items": nodes}}))


async def lasting(index: ClusterIndex, clock: FakeClock) -> float:
    """How long the assumption lasts, by the clock."""
    pods = WatchedPods(index, clock, 0.0, 1)
    verb, options = FilterVerb(index.view, Settings()), AssumedPodOptions(expiry=120.0)
    filter_service = FilterService(index, pods, clock, options, verb, Random(1), KeptPlans())
    begun, ended = clock.time, list[float]()
    index.assumed.unconfirmed.subscribe(lambda _: ended.append(clock.time))
    task = asyncio.create_task(filter_service.run())
    await until(lambda: ended)
    task.cancel()
    return ended[0] - begun
