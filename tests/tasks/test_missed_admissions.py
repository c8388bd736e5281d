"""Events about pods that admission missed: by the leader, once a pod, and a bounded number of them."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime

import pytest

from extender.kube.effects import PodEvent, PodRef
from extender.kube.errors import Unreachable
from extender.kube.writer import Writer
from extender.model.objects import Pod, PodSignature
from extender.model.policies import GROUP, PolicyKey
from extender.tasks.missed_admissions import AT_ONCE, REFILL_SECONDS, MissedAdmissions
from tests.builders import pod
from tests.fakes import FakeClock, running, until

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
ZONAL = PolicyKey(GROUP, "default", "zonal")


class Api(Writer):
    """Keeps the events that are created."""

    def __init__(self) -> None:
        self.events: list[PodEvent] = []
        self.failure: Exception | None = None
        self.open = asyncio.Event()
        self.open.set()

    async def create_event(self, event: PodEvent) -> None:
        """Keep it, once the API server answers."""
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        self.events.append(event)


class Scene:
    """The events with a clock that stands still until it is set."""

    def __init__(self) -> None:
        self.api, self.clock = Api(), FakeClock()
        self.events = MissedAdmissions(self.api, self.clock, lambda: NOON)

    def leading(self) -> AbstractAsyncContextManager[None]:
        """This replica leads."""
        return running(self.events.run)


async def test_an_event_names_the_policies_at_the_pod() -> None:
    scene = Scene()
    async with scene.leading():
        scene.events.record(pod("one"), [ZONAL])
        await until(lambda: scene.api.events)
    (event,) = scene.api.events
    assert event == PodEvent(
        PodRef("default", "one", "uid-one"),
        "Warning",
        "PolicyMissedAdmission",
        "Scheduling",
        "the pod lacks what PodSchedulingPolicy/default/zonal directs: the pod is older than the policy, or the webhook was not "
        "reached. It is held to it while it is scheduled",
        NOON,
    )
    assert scene.events.results == {"written": 1, "failed": 0, "suppressed": 0}


REACHED = "or the webhook was not reached"
INJECTED = "or another policy, was injected"
NOTES = {
    "one": (1, "", f"directs: the pod is older than the policy, {REACHED}. It is held to it"),
    "several": (2, "", f"direct: the pod is older than the policies, {REACHED}. It is held to them"),
    "one, injected": (1, "{}", f"directs: an earlier version of it, {INJECTED}. It is held to it"),
    "several, injected": (2, "{}", f"direct: an earlier version of them, {INJECTED}. It is held to them"),
}


@pytest.mark.parametrize(("count", "injected", "text"), NOTES.values(), ids=NOTES)
async def test_the_note_is_about_one_policy_or_several_and_about_an_earlier_version(
    count: int, injected: str, text: str
) -> None:
    scene, policies = Scene(), [ZONAL, PolicyKey(GROUP, "", "other")][:count]
    async with scene.leading():
        scene.events.record(Pod("u", "two", PodSignature("default", {}, injected=injected)), policies)
        await until(lambda: scene.api.events)
    names = ", ".join(map(str, policies))
    assert scene.api.events[0].note == f"the pod lacks what {names} {text} while it is scheduled"


async def test_a_long_list_of_policies_is_cut() -> None:
    scene = Scene()
    async with scene.leading():
        scene.events.record(pod("one"), [PolicyKey(GROUP, "", f"p{number}") for number in range(200)])
        await until(lambda: scene.api.events)
    assert "ClusterPodSchedulingPolicy/p4 and 195 more direct" in scene.api.events[0].note


async def test_a_replica_that_does_not_lead_records_nothing() -> None:
    scene = Scene()
    scene.events.record(pod("before"), [ZONAL])
    async with scene.leading():
        scene.events.record(pod("led"), [ZONAL])
        await until(lambda: scene.api.events)
    scene.events.record(pod("after"), [ZONAL])
    async with scene.leading():
        scene.events.record(pod("led again"), [ZONAL])
        await until(lambda: len(scene.api.events) > 1)
    assert [each.pod.name for each in scene.api.events] == ["led", "led again"]


async def test_after_an_outage_only_so_many_events_come_at_once() -> None:
    scene = Scene()
    async with scene.leading():
        for number in range(1000):
            scene.events.record(pod(f"p{number}"), [ZONAL])
            await asyncio.sleep(0)
        await until(lambda: len(scene.api.events) == AT_ONCE)
        assert scene.events.results["suppressed"] == 1000 - AT_ONCE
        scene.clock.time += 3 * REFILL_SECONDS
        for number in range(1000, 1010):
            scene.events.record(pod(f"p{number}"), [ZONAL])
        await until(lambda: len(scene.api.events) == AT_ONCE + 3)
    assert scene.events.results == {"written": AT_ONCE + 3, "failed": 0, "suppressed": 1007 - AT_ONCE}


async def test_an_api_server_that_does_not_answer_holds_up_no_more_than_the_queue() -> None:
    scene = Scene()
    scene.api.open.clear()
    async with scene.leading():
        for number in range(3 * AT_ONCE):
            scene.events.record(pod(f"p{number}"), [ZONAL])
            scene.clock.time += REFILL_SECONDS
            await asyncio.sleep(0)
    assert scene.events.results["failed"] == 1 + AT_ONCE, "the one under way, too"
    assert scene.api.events == []


@pytest.mark.parametrize("failure", [Unreachable("down")])
async def test_a_failure_is_counted_and_the_next_event_is_written(failure: Exception) -> None:
    scene = Scene()
    async with scene.leading():
        scene.api.failure = failure
        scene.events.record(pod("one"), [ZONAL])
        await until(lambda: scene.events.results["failed"])
        scene.api.failure = None
        scene.events.record(pod("two"), [ZONAL])
        await until(lambda: scene.api.events)
    assert [each.pod.name for each in scene.api.events] == ["two"]
