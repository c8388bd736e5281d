"""Shadow decisions of a service, with the scheduler's own decisions beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from msgspec.structs import replace

from extender.compose.foundation import make_index
from extender.index.audit import audit
from extender.model.answers.shadow import ShadowPage
from extender.model.objects import Object
from extender.tasks.filter_service import AssumedPodOptions, FilterService, WatchedPods
from extender.tasks.shadow import Shadow
from extender.tasks.sliced_work import Traffic
from extender.verbs.filter import FilterVerb
from tests.builders import Json, extender_args, node, pod, pod_json, read_pod, settings
from tests.deciding import KeptPlans
from tests.fakes import FakeClock, running

NAMES = ("n1", "n2", "n3")
ROOM = {"cpu": "4", "pods": "110"}


class Scene:
    """Three nodes in three zones, the filter of augment mode, and the shadow decisions beside it. Only the test lets time pass."""

    def __init__(self) -> None:
        used = replace(settings(mode="augment"), shadow=True)
        self.clock = FakeClock()
        self.index = make_index(used)
        self.shadow = Shadow(self.index, self.index, self.clock, lambda: 1_800_000_000.0, Traffic(self.clock))
        verb = FilterVerb(self.index.view, used)
        pods = WatchedPods(self.index, self.clock, 0.0, 1)
        options = AssumedPodOptions()
        filters = FilterService(self.index, pods, self.clock, options, verb, Random(1), KeptPlans())
        self.filter = self.shadow.beside(filters.filter)

    def show(self, *objects: Object) -> None:
        """The watch shows these."""
        for each in objects:
            self.shadow.upsert(each)

    async def request(self, name: str, fields: Json, *names: str, then: float = 1.0) -> None:
        """The scheduler asks about a pending pod: these nodes have passed its plugins. Afterwards some time passes."""
        self.show(pod(name, **fields))
        result = await self.filter(extender_args(pod_json(name, **fields), *(names or NAMES)))
        assert list(result.passed) == list(names or NAMES)  # in augment mode the rules reject nothing
        await self.wait(then)

    def bind(self, name: str, fields: Json, on: str) -> None:
        """The watch shows the pod bound."""
        self.show(pod(name, on=on, **fields))

    def reject(self, name: str, fields: Json, *counts: str, nodes: int = 3) -> None:
        """The watch shows what the scheduler said of the pod."""
        self.show(pod(name, **fields))
        message = f"0/{nodes} nodes are available: {', '.join(counts)}. preemption: 0/{nodes} nodes are available."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        found = pod_json(name, **fields)
        self.show(decoded(found | {"status": {"conditions": [condition]}}))

    async def wait(self, seconds: float) -> None:
        """Let so much time pass."""
        end = self.clock.time + seconds
        while self.clock.time < end:  # noqa: ASYNC110 - the shadow decisions sleep on this clock, so time passes
            await asyncio.sleep(0)

    def page(self) -> ShadowPage:
        return self.shadow.page(100)

    def results(self) -> dict[str, int]:
        """What came of the decisions, without what did not occur."""
        return {result: count for result, count in self.page().decisions.items() if count}


def decoded(found: Json) -> Object:
    return read_pod(found)


@asynccontextmanager
async def playing() -> AsyncIterator[Scene]:
    found = Scene()
    async with running(found.shadow.run):
        found.show(*(node(name, zone=f"z{name[1:]}", allocatable=ROOM) for name in NAMES))
        await found.wait(5.0)  # or else the nodes have just come
        yield found
    assert audit(found.index) == []
