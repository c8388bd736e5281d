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
from tests.fakes import FakeClock, every_sleep, running
from tests.policies import policy
from tests.tasks.exclusion_scene import Zone

LOST = taint("node.kubernetes.io/unreachable", effect="NoExecute")


async def test_time_is_applied_where_it_is_due_and_each_domain_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    directive = {"topologyKey": ZONE, "unavailableDomains": "Exclude", "after": "10s"}
    index, clock = index_of(PolicyObject(policy(spread=[directive]))), FakeClock(held=every_sleep)
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
    logged = [each.getMessage() for each in caplog.records if "topology domain" in each.getMessage()]
    assert logged == ["topology domain is excluded from spread", "topology domain counts again for spread"]


HOUR = 3600.0


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
@pytest.mark.parametrize("lasts", [8.0, 300.0], ids=["a moment", "for good"])
async def test_a_clock_that_is_set_neither_delays_nor_hastens_an_exclusion(jump: float, lasts: float) -> None:
    """Also in the moment when the time of day is adopted, and when it is set back."""
    zone = Zone()
    async with running(zone.job.run):
        await zone.excluded_after(2)
        for _ in range(3):
            zone.set_by += jump
            zone.put(LOST)
            assert await zone.excluded_after(min(lasts, 28.0)) == set()
            if lasts < HOUR / 60:
                zone.set_by -= jump
            assert await zone.excluded_after(max(35.0 - lasts, 7.0)) == {"a"}
            assert await zone.excluded_after(lasts) == {"a"}
            zone.put()
            assert await zone.excluded_after(2) == set()


@pytest.mark.parametrize(("jump", "left"), [(HOUR, set[str]()), (-HOUR, {"b"})])
async def test_the_end_that_an_operator_has_written_is_a_time_of_day(jump: float, left: set[str]) -> None:
    zone = Zone(until=600.0)
    async with running(zone.job.run):
        assert await zone.excluded_after(2) == {"b"}
        zone.set_by = jump
        assert await zone.excluded_after(8) == {"b"}, "a jump counts once it has lasted for a minute"
        zone.set_by = 0.0
        assert await zone.excluded_after(100) == {"b"}
        zone.set_by = jump
        assert await zone.excluded_after(62) == left
        zone.set_by = 0.0
        assert await zone.excluded_after(62) == {"b"}
        assert await zone.excluded_after(600) == set()
