"""Time in which nothing could be heard, as a machine or its process was suspended, lets no assumption expire."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.settings.configuration import Settings
from extender.tasks.filter_service import AssumedPodOptions, FilterService, WatchedPods
from extender.verbs.filter import FilterVerb
from tests.builders import index_of, node, pod
from tests.deciding import KeptPlans
from tests.fakes import FakeClock, until


class Suspended(FakeClock):
    """A clock on which a sleep may last longer than it should."""

    def __init__(self) -> None:
        super().__init__()
        self.leap = 0.0

    async def sleep(self, seconds: float) -> None:
        """Let that time pass, and the leap."""
        self.time, self.leap = self.time + self.leap, 0.0
        await super().sleep(seconds)


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


async def test_an_assumption_outlives_a_suspension_and_expires_in_its_own_time_afterwards() -> None:
    """What the scheduler did meanwhile lies unread in the watch; it must not find the place given away."""
    index, clock = index_of(node("n1")), Suspended()
    index.assume(pod("web"), ("n1",), clock.time)
    clock.leap = 600.0
    assert await lasting(index, clock) == pytest.approx(720.0, abs=1.0)
    assert (index.assumed.expired, audit(index)) == (1, [])


async def test_a_loop_that_is_late_now_and_then_does_not_make_assumptions_last() -> None:
    index, clock = index_of(node("n1")), FakeClock(step=0.1)
    index.assume(pod("web"), ("n1",), clock.time)
    assert await lasting(index, clock) == pytest.approx(120.0, abs=1.0)


async def test_an_assumption_does_not_expire_while_the_watch_that_would_show_its_binding_is_not_heard() -> None:
    index, clock, heard = index_of(node("n1")), FakeClock(), 0.0
    index.assume(pod("web"), ("n1",), clock.time)
    begun = clock.time
    pods, options = WatchedPods(index, clock, 0.0, 1), AssumedPodOptions(expiry=120.0)
    verb = FilterVerb(index.view, Settings())
    filter_service = FilterService(
        index, pods, clock, options, verb, Random(1), KeptPlans(), known_until=lambda: begun + heard
    )
    task = asyncio.create_task(filter_service.run())
    await until(lambda: clock.time > begun + 170.0)
    assert (index.assumed.expired, index.assumed.doubted) == (0, 1)
    heard = 120.0
    await until(lambda: index.assumed.expired)
    task.cancel()
