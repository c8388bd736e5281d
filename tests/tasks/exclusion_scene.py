"""A zone without nodes, and the clock that excludes it."""

from __future__ import annotations

import orjson

from extender.kube.timing import WallClock
from extender.model.constraints.labels import ZONE
from extender.model.objects import ExcludedDomain, TopologyDomains
from extender.model.policies import PolicyObject
from extender.tasks.index_upkeep import STEP_SECONDS, ExclusionClock
from extender.wire.objects import kinds
from tests.builders import Json, index_of, node_json
from tests.fakes import FakeClock, every_sleep
from tests.policies import policy


class Zone:
    """A policy that excludes zones which are unavailable for 30 s, a node, and a wall clock that can be set."""

    def __init__(self, until: float | None = None) -> None:
        directive = {"topologyKey": ZONE, "unavailableDomains": "Exclude", "after": "30s"}
        self.index = index_of(PolicyObject(policy(spread=[directive])))
        self.clock, self.set_by = FakeClock(held=every_sleep), 0.0
        self.begun = BEGUN + self.clock.now()
        self.job = ExclusionClock(self.index.domains, self.clock, WallClock(self.clock, self.read).seconds)
        if until is not None:
            self.index.upsert(TopologyDomains("zones", ZONE, ("b",), (ExcludedDomain("b", self.begun + until),)))
        self.put()

    def read(self) -> float:
        return BEGUN + self.clock.now() + self.set_by

    def put(self, *taints: Json) -> None:
        self.index.upsert(kinds.NODES.decode_object(orjson.dumps(node_json("n", zone="a", taints=taints))))

    async def excluded_after(self, seconds: float) -> set[str]:
        for _ in range(round(seconds / STEP_SECONDS)):
            await self.clock.advance(STEP_SECONDS)
        return set(self.index.domains.excluded(ZONE, 30.0))


BEGUN = 1_767_225_600.0
