"""The task that applies the time to excluded topology domains."""

from __future__ import annotations

import asyncio
import logging

import orjson
import pytest

from extender.model.constraints.labels import ZONE
from extender.model.policies import PolicyObject
from extender.tasks.index_upkeep import STEP_SECONDS, ExclusionClock
from extender.wire.objects import kinds
from tests.builders import Json, index_of, node_json, taint
from tests.fakes import FakeClock
from tests.policies import policy

LOST = taint("node.kubernetes.io/unreachable", effect="NoExecute")


class SteppedClock(FakeClock):
    """A sleep ends once as much time has passed by `advance`."""

    woken = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        until, self.woken = self.time + seconds, asyncio.Event()
        while self.time < until:
            await self.woken.wait()
            self.woken.clear()

    async def advance(self, seconds: float) -> None:
        self.time += seconds
        for _ in range(3):
            self.woken.set()
            await asyncio.sleep(0)


async def test_time_is_applied_where_it_is_due_and_each_domain_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    directive = {"topologyKey": ZONE, "unavailableDomains": "Exclude", "after": "10s"}
    index, clock = index_of(PolicyObject(policy(spread=[directive]))), SteppedClock()
    found = ExclusionClock(index.domains, clock, lambda: 1000.0 + clock.now())
    task = asyncio.ensure_future(found.run())

    def put(*taints: Json) -> None:
        index.upsert(kinds.NODES.decode_object(orjson.dumps(node_json("n", zone="a", taints=taints))))

    put()
    for _ in range(5):
        await clock.advance(STEP_SECONDS)
    assert found.steps == 0, "nothing is due"
    for _ in range(20):  # a node that flaps several times a second costs a step a second at most
        put(LOST)
        put()
        put(LOST)
        await clock.advance(STEP_SECONDS / 4)
    assert 1 <= found.steps <= 6
    assert index.domains.counts() == {"unavailable": 0, "operator": 0}
    for _ in range(12):
        await clock.advance(STEP_SECONDS)
    assert index.domains.counts() == {"unavailable": 1, "operator": 0}
    put()
    await clock.advance(STEP_SECONDS)
    task.cancel()
    told = [each.getMessage() for each in caplog.records if "topology domain" in each.getMessage()]
    assert told == ["topology domain is excluded from spread", "topology domain counts again for spread"]
