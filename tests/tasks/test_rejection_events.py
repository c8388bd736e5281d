"""Events on rejected pods: what they say, whom they are about, and how many there are."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any

import pytest

from extender.kube.effects import ObjectEvent, PodRef
from extender.kube.errors import Unreachable
from extender.settings.configuration import Settings
from extender.tasks.browse_service import ExplainService
from extender.tasks.rejected_pods import RejectedPodWriter
from extender.tasks.rejection_events import (
    AT_ONCE,
    LOOK_AGAIN_SECONDS,
    MOST_QUEUED,
    REFILL_SECONDS,
    REPEATED_AFTER_SECONDS,
    SETTLED_SECONDS,
    RejectionEvents,
)
from tests.builders import asking, index_of, node, pod, pod_json, term
from tests.fakes import FakeClock, FakeWriter, running, until

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
APART: dict[str, Any] = {"app": "web", "apart": [term("host", app="web")]}
NOTE = (
    "pod anti-affinity by kubernetes.io/hostname with pods app=web: n1: 1 counted, 0 would pass (because of default/on)"
)


class Api(FakeWriter):
    """Keeps the events that are created, once it answers."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[ObjectEvent] = []

    async def create_event(self, event: ObjectEvent) -> None:
        """Keep it."""
        await super().create_event(event)
        self.events.append(event)


class Scene:
    """One node with a web pod, and the events, on a clock that only sleeping moves."""

    def __init__(self) -> None:
        self.index = index_of(node("n1", allocatable={"pods": "99"}), pod("on", on="n1", app="web"))
        self.clock, self.api = FakeClock(), Api()
        view = self.index.view
        nodes = self.index.assumed.held
        explainer = ExplainService(view, Settings(), self.clock, lambda uid: nodes[uid].nodes if uid in nodes else ())
        shared = RejectedPodWriter(self.index, self.api, lambda _: ("", False))
        self.events = RejectionEvents(shared, self.api, explainer.rejection, self.clock, lambda: NOON)

    def reject(self, name: str, namespace: str = "default") -> None:
        """The filter has rejected the pod on the only node."""
        fields = {**APART, "namespace": namespace}
        if f"uid-{name}" not in self.index.pods:
            self.index.upsert(pod(name, **fields))
        self.events.consider(asking(pod_json(name, **fields), "n1"))

    @property
    def total(self) -> int:
        """How many pods have been dealt with."""
        return self.events.results.total()

    @property
    def told(self) -> dict[str, int]:
        """The results that are not 0."""
        return {result: count for result, count in self.events.results.items() if count}

    def leading(self) -> AbstractAsyncContextManager[None]:
        """This replica leads."""
        return running(self.events.run)


async def test_an_event_tells_what_rejects_the_pod() -> None:
    scene = Scene()
    async with scene.leading():
        rejected = scene.clock.time
        scene.reject("asking")
        await until(lambda: scene.api.events)
    assert scene.api.events == [
        ObjectEvent(PodRef("default", "asking", "uid-asking"), "Warning", "PlacementRejected", "Scheduling", NOTE, NOON)
    ]
    assert scene.clock.time >= rejected + SETTLED_SECONDS
    assert scene.told == {"written": 1}


async def test_the_same_text_is_not_repeated_for_the_same_pod_until_it_may_have_expired() -> None:
    scene = Scene()
    async with scene.leading():
        scene.reject("asking")
        await until(lambda: scene.total == 1)
        for _ in range(5):
            scene.reject("asking")
        assert scene.total == 1, "it is not looked at again so soon"
        scene.clock.time += LOOK_AGAIN_SECONDS
        scene.reject("asking")
        await until(lambda: scene.total == 2)
        assert scene.told == {"written": 1, "repeated": 1}
        scene.clock.time += REPEATED_AFTER_SECONDS
        scene.reject("asking")
        await until(lambda: scene.total == 3)
    assert [each.note for each in scene.api.events] == [
        NOTE,
        f"{NOTE} (rejected 7 times since the last such event)",
    ]


async def test_a_pod_that_was_rejected_once_more_is_told_so() -> None:
    scene = Scene()
    async with scene.leading():
        scene.reject("asking")
        await until(lambda: scene.total == 1)
        scene.clock.time += REPEATED_AFTER_SECONDS
        scene.reject("asking")
        await until(lambda: scene.total == 2)
    assert scene.api.events[-1].note == f"{NOTE} (rejected once since the last such event)"


async def test_another_text_is_told_when_the_pod_is_looked_at_again() -> None:
    scene = Scene()
    async with scene.leading():
        scene.reject("asking")
        await until(lambda: scene.total == 1)
        scene.index.upsert(pod("more", on="n1", app="web"))
        scene.clock.time += LOOK_AGAIN_SECONDS
        scene.reject("asking")
        await until(lambda: scene.total == 2)
    assert "2 counted, 0 would pass (because of default/more, default/on)" in scene.api.events[1].note
    assert scene.told == {"written": 2}


@pytest.mark.parametrize("change", ["bound", "deleted", "nominated", "assumed", "passes"])
async def test_a_pod_that_is_not_rejected_any_more_has_no_event(change: str) -> None:
    scene = Scene()
    async with scene.leading():
        scene.reject("asking")
        match change:
            case "bound":
                scene.index.upsert(pod("asking", on="n1", **APART))
            case "deleted":
                scene.index.delete(scene.index.pods["uid-asking"])
            case "nominated":
                scene.index.nominate_in_memory(scene.index.pods["uid-asking"], "n1", ["uid-on"])
            case "assumed":
                scene.index.assume(scene.index.pods["uid-asking"], ["n1"], 0.0)
            case _:
                scene.index.delete(scene.index.pods["uid-on"])
        await until(lambda: scene.total)
    assert (scene.api.events, scene.told) == ([], {"outdated": 1})


async def test_a_pod_that_is_bound_while_it_is_explained_has_no_event() -> None:
    scene = Scene()
    explain = scene.events._explain

    async def slowly(uid: str) -> Any:
        found = await explain(uid)
        scene.index.upsert(pod("asking", on="n1", **APART))
        return found

    scene.events._explain = slowly
    async with scene.leading():
        scene.reject("asking")
        await until(lambda: scene.total)
    assert (scene.api.events, scene.told) == ([], {"outdated": 1})


async def test_a_replica_that_does_not_lead_records_nothing() -> None:
    scene = Scene()
    scene.reject("before")
    async with scene.leading():
        scene.reject("led")
        await until(lambda: scene.total)
    scene.reject("after")
    assert [each.about.reference()["name"] for each in scene.api.events] == ["led"]
    assert scene.told == {"written": 1}


async def test_of_many_pods_some_have_an_event_at_once_and_one_more_as_time_goes_on() -> None:
    scene = Scene()
    async with scene.leading():
        for number in range(MOST_QUEUED + 10):
            scene.reject(f"p{number}")
        assert scene.told == {"suppressed": 10}, "the queue is bounded"
        begun = scene.clock.time + SETTLED_SECONDS
        await until(lambda: scene.told.get("written", 0) >= AT_ONCE)
        assert scene.clock.time <= begun + 3 * REFILL_SECONDS
        await until(lambda: scene.total == MOST_QUEUED + 10)
        assert scene.clock.time - begun >= (MOST_QUEUED - AT_ONCE - 1) * REFILL_SECONDS
    assert scene.told == {"written": MOST_QUEUED, "suppressed": 10}


async def test_an_event_of_a_pod_is_not_behind_those_of_another_namespace() -> None:
    scene = Scene()
    async with scene.leading():
        for number in range(3 * MOST_QUEUED):
            scene.reject(f"p{number}")
        begun = scene.clock.time
        scene.index.upsert(pod("there", on="n1", app="web", namespace="shop"))
        scene.reject("honest", namespace="shop")
        await until(lambda: any(each.about.namespace == "shop" for each in scene.api.events))
        assert scene.clock.time - begun < SETTLED_SECONDS + 10 * REFILL_SECONDS


async def test_a_failure_is_counted_and_the_next_rejection_of_the_pod_is_told() -> None:
    scene = Scene()
    async with scene.leading():
        scene.api.failures = [Unreachable("down")]
        scene.reject("asking")
        await until(lambda: scene.told == {"failed": 1})
        scene.reject("asking")
        await until(lambda: scene.api.events)
    assert [each.note for each in scene.api.events] == [NOTE]
