"""The queue of groups: one worker for each, turns between namespaces, and later times."""

from __future__ import annotations

import asyncio

from extender.model.release import GroupKey
from extender.tasks.fair_queue import GroupQueue
from tests.tasks.release.scene import TestClock, settle


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
