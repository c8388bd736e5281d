"""The queue of groups: one worker for each, turns between namespaces, and later times."""

from __future__ import annotations

import asyncio

import pytest

from extender.model.release import GroupKey, OnTimeout
from extender.tasks.fair_queue import GroupQueue
from extender.tasks.release.groups import DecisionLines
from tests.contenders import contender
from tests.tasks.release.scene import Scene, TestClock, settle


def key(namespace: str, value: str = "x") -> GroupKey:
    return GroupKey(namespace, "ClusterPodSchedulingPolicy/gangs", value)


async def test_a_namespace_with_many_groups_delays_another_by_one() -> None:
    queue = GroupQueue(TestClock())
    for number in range(1000):
        queue.add(key("crowd", str(number)))
    queue.add(key("quiet"))
    taken = [(await queue.take()).namespace for _ in range(3)]
    assert taken == ["crowd", "quiet", "crowd"]


async def test_a_group_in_work_is_taken_again_afterwards_and_not_before() -> None:
    queue = GroupQueue(TestClock())
    queue.add(key("a"))
    assert await queue.take() == key("a")
    queue.add(key("a"))
    queue.add(key("a"))
    assert len(queue) == 0
    queue.done(key("a"))
    assert len(queue) == 1
    assert await queue.take() == key("a")
    queue.done(key("a"))
    assert len(queue) == 0


async def test_a_group_may_have_several_times() -> None:
    clock = TestClock()
    queue = GroupQueue(clock)
    queue.add_at(key("a"), clock.now() + 10)
    queue.add_at(key("a"), clock.now() + 5)
    queue.add_at(key("a"), clock.now() + 5)
    taken: list[float] = []

    async def work() -> None:
        while True:
            found = await queue.take()
            taken.append(clock.now() - 1000.0)
            queue.done(found)

    worker = asyncio.ensure_future(work())
    await clock.advance(20)
    assert taken == [5, 10]
    queue.add(key("b"))
    await settle()
    assert taken == [5, 10, 20]
    worker.cancel()
    await asyncio.wait({worker})


async def test_a_group_that_rests_is_taken_once_afterwards_however_often_it_changes() -> None:
    clock = TestClock()
    queue = GroupQueue(clock)
    taken: list[float] = []

    async def work() -> None:
        while True:
            found = await queue.take()
            taken.append(round(clock.now() - 1000.0, 3))
            queue.done(found, pods=25_000)

    worker = asyncio.ensure_future(work())
    for _ in range(120):
        queue.add(key("a"))
        await clock.advance(0.01)
    assert taken == [0.0, 0.5, 1.0]
    await clock.advance(10)
    assert taken == [0.0, 0.5, 1.0, 1.5], "nothing has changed after that"
    worker.cancel()
    await asyncio.wait({worker})


async def test_a_group_that_ended_rests_no_more() -> None:
    queue = GroupQueue(TestClock())
    queue.add(key("a"))
    queue.done(await queue.take(), pods=100)
    assert queue._resting
    queue.done(key("a"))
    assert not queue._resting


# -- The lines of groups that wait for room: a try for each change of room, in turns, and a tenth of the time for all
#    of them


def test_the_first_of_a_namespace_is_tried_and_goes_to_the_end_of_its_line() -> None:
    lines = DecisionLines()
    assert lines.is_turn(key("a", "1"), 0.0)
    lines.failed(key("a", "1"), lines.version, 1.0, 0.02)
    assert not lines.is_turn(key("a", "2"), 9.0), "it stands behind the first one"
    assert lines.next_of("a") is None, "room has not changed since the first was tried"
    lines.version += 1
    assert lines.next_of("a") == (key("a", "1"), 1.2)
    assert not lines.is_turn(key("a", "1"), 1.1), "its namespace has used its time"
    assert lines.is_turn(key("a", "1"), 1.2)
    lines.failed(key("a", "1"), lines.version, 2.0, 0.02)
    assert lines.next_of("a") == (key("a", "2"), 2.2)
    assert lines.is_turn(key("b", "1"), 0.0), "another namespace has a line of its own"


def test_a_change_during_a_try_leads_to_another_one() -> None:
    lines = DecisionLines()
    before = lines.version
    lines.version += 1
    lines.failed(key("a"), before, 0.0, 0.0)
    assert lines.next_of("a") == (key("a"), 0.01)


def test_the_line_of_a_namespace_ends_with_its_last_group() -> None:
    lines = DecisionLines()
    lines.failed(key("a"), 0, 0.0, 0.0)
    lines.leave(key("a"))
    lines.leave(key("b"))
    assert (len(lines), lines.next_of_all()) == (0, [])


async def test_a_tenant_with_many_groups_that_nothing_holds_delays_another_by_one_try() -> None:
    scene = Scene({"a": 4}, on_timeout=OnTimeout.KEEP_GATED)
    for number in range(100):
        scene.create(f"giant{number}", *range(5), namespace="crowd")
    async with scene.leading():
        await scene.pass_time(1)
        before = scene.counts.of["no_room"]
        scene.create("small", 1, 2)
        await scene.pass_time(1)
        assert len(scene.released()) == 2
        assert scene.counts.of["no_room"] - before <= 110, "the change of room is worth one try for each"
        still = scene.counts.of["no_room"]
        await scene.pass_time(10)
        assert scene.counts.of["no_room"] == still, "without a change of room nothing is tried"


@pytest.mark.parametrize("end", ["in doubt", "bound", "failed"])
async def test_a_group_is_tried_again_once_an_assumed_pod_no_longer_keeps_room_on_several_nodes(end: str) -> None:
    """No other event may come: the pod of another tenant kept the group waiting for as long as nothing else changed."""
    scene = Scene({"a": 0}, on_timeout=OnTimeout.KEEP_GATED)
    scene.create("small", 1, 2)
    stuck = contender("stuck")
    scene.index.assume(stuck, ("n1", "n2"), 0.0)
    async with scene.leading():
        await scene.pass_time(1)
        assert not scene.released()
        scene.rooms["a"] = 2
        match end:
            case "in doubt":
                scene.index.assumed.doubt(stuck.uid)
            case "bound":
                scene.index.upsert(contender("stuck", on="n1"))
            case "failed":
                scene.index.assumed.forget(stuck.uid)
        await scene.pass_time(5)
        assert len(scene.released()) == 2
