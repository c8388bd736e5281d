"""Nominated pods are requeued where the scheduler does not ask about them, as one without QueueingHints does not."""

from __future__ import annotations

import asyncio

import pytest

from extender.kube.effects import PodRef
from extender.kube.errors import Conflict
from extender.tasks.sliced_work import Traffic
from tests.fakes import FakeClock, FakeWriter, running, until
from tests.tasks.test_nominator import APART, Scene


class AskingWriter(FakeWriter):
    """The scheduler asks as soon as a pod is annotated, and has its answer at once."""

    traffic: Traffic

    async def annotate(self, pod: PodRef, key: str, value: str | None) -> None:
        """Note it, and ask."""
        await super().annotate(pod, key, value)
        self.traffic.begin()
        self.traffic.end()


async def at_rest(clock: FakeClock) -> None:
    """Return when no task waits for the clock any more."""
    count = -1
    while len(clock.slept) != count:
        count = len(clock.slept)
        for _ in range(10):
            await asyncio.sleep(0)


def nominated(scene: Scene, clock: FakeClock, name: str = "asking") -> None:
    """The pod is nominated now, as the watch shows too."""
    scene.show(name, APART, nominatedNodeName="n3")
    asking = scene.index.pods[name]
    scene.index.assume(asking, ("n3",), clock.now(), doubted=True)
    scene.requeuer.await_request(asking, "n3")


@pytest.mark.parametrize("failures", [0, 3])
async def test_a_nominated_pod_that_the_scheduler_does_not_ask_about_is_requeued_once(failures: int) -> None:
    """As one without QueueingHints ignores the nomination."""
    clock = FakeClock()
    scene = Scene(clock=clock)
    nominated(scene, clock)
    scene.writer.failures += [Conflict("another client was faster")] * failures
    begun = clock.time
    async with running(scene.requeuer.run):
        await until(lambda: bool(scene.requeued()))
        assert 1.0 + failures <= clock.time - begun < 1.5 + 1.25 * failures
        await at_rest(clock)
    assert scene.requeued() == ["asking"]


async def test_while_the_scheduler_asks_about_others_a_nominated_pod_may_be_in_its_queue() -> None:
    clock = FakeClock()
    scene = Scene(clock=clock)
    nominated(scene, clock)
    begun = clock.time
    scene.traffic.begin()
    async with running(scene.requeuer.run):
        await until(lambda: bool(scene.requeued()))
    assert 10.0 <= clock.time - begun < 10.5


async def test_a_pod_that_is_requeued_delays_no_other_one_by_the_request_that_follows() -> None:
    clock, writer = FakeClock(), AskingWriter()
    scene = Scene(clock=clock, writer=writer)
    writer.traffic = scene.traffic
    begun = clock.time
    for name in ("first", "second", "third"):
        nominated(scene, clock, name)
    async with running(scene.requeuer.run):
        await until(lambda: len(scene.requeued()) == 3)
    assert clock.time - begun < 1.5


@pytest.mark.parametrize("how", ["passed", "rejected", "bound", "deleted"])
async def test_a_nominated_pod_that_the_scheduler_has_asked_about_is_not_requeued(how: str) -> None:
    clock = FakeClock()
    scene = Scene(clock=clock)
    nominated(scene, clock)
    asking = scene.index.pods["asking"]
    match how:
        case "passed":
            scene.index.assume(asking, ("n3",), clock.now())
        case "rejected":
            scene.index.assumed.forget(asking.uid)
        case "bound":
            scene.show("asking", {**APART, "nodeName": "n3"})
        case "deleted":
            scene.index.delete(asking)
    async with running(scene.requeuer.run):
        await at_rest(clock)
    assert (scene.requeued(), len(clock.slept)) == ([], 1)


async def test_a_pod_that_the_nominator_has_nominated_is_one_of_them() -> None:
    clock = FakeClock()
    scene = Scene(clock=clock)
    scene.ask("asking", APART, "n0", "n1")
    async with running(scene.nominator.run), running(scene.requeuer.run):
        await until(lambda: bool(scene.requeued()))
    assert (scene.nominated(), scene.requeued()) == ([("asking", "n3")], ["asking"])
