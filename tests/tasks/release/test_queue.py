"""The queue of groups: one worker for each, turns between namespaces, and later times."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from extender.kube.errors import KubeError, Unreachable
from extender.model.policies import PolicyObject
from extender.model.release import RELEASE_GATE, NoRoom, NoRoomAction
from extender.tasks.fair_queue import DecisionLines, GroupQueue
from tests.contenders import contender
from tests.fake_api import never
from tests.fakes import FakeClock, every_sleep, settle
from tests.gangs import FOREIGN_GATE, actions
from tests.tasks.release.queued_groups import ROOMS, SIZES, disturb, failing, judge, key, releasing
from tests.tasks.release.scene import Scene


async def test_a_namespace_with_many_groups_delays_another_by_one() -> None:
    queue = GroupQueue(FakeClock(held=every_sleep))
    for number in range(1000):
        queue.add(key("crowd", str(number)))
    queue.add(key("quiet"))
    taken = [(await queue.take()).namespace for _ in range(3)]
    assert taken == ["crowd", "quiet", "crowd"]


async def test_a_group_in_work_is_taken_again_afterwards_and_not_before() -> None:
    queue = GroupQueue(FakeClock(held=every_sleep))
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
    clock = FakeClock(held=every_sleep)
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
    clock = FakeClock(held=every_sleep)
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
    queue = GroupQueue(FakeClock(held=every_sleep))
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


def test_the_group_of_the_highest_priority_is_tried_first_and_the_others_in_their_turns() -> None:
    lines = DecisionLines()
    first, low, high = (key("a", value) for value in ("first", "low", "high"))
    lines.failed(first, lines.version, 0.0, 0.0)
    assert not lines.is_turn(low, 1.0), "it stands behind its equal"
    assert lines.is_turn(high, 1.0, 1000), "others of its priority were not tried yet"
    lines.failed(high, lines.version, 1.0, 0.0, 1000)
    lines.version += 1
    tried = []
    while (following := lines.next_of("a")) is not None:
        tried.append(following[0])
        lines.failed(following[0], lines.version, 2.0, 0.0, 1000 if following[0] == high else 0)
    assert tried == [high, first, low]
    lines.version += 1
    assert lines.is_turn(low, 9.0, 2000), "its pods were made anew with a higher priority"
    lines.leave(low)
    assert lines.next_of("a") == (high, 2.01)


def test_a_priority_takes_no_turn_from_another_namespace() -> None:
    lines = DecisionLines()
    lines.failed(key("a"), lines.version, 0.0, 0.0, 1000)
    lines.failed(key("b"), lines.version, 0.0, 0.0)
    lines.version += 1
    assert lines.next_of_all() == [(key("a"), 0.01), (key("b"), 0.01)]


async def test_freed_room_goes_to_the_waiting_group_of_the_highest_priority() -> None:
    scene = Scene({"a": 2})
    scene.create("first", 0, 1)
    async with scene.leading():
        await scene.pass_time(1)
        scene.bind()
        scene.create("low", 0, 1)
        await scene.pass_time(1)
        scene.create("high", 0, 1, priority=1000)
        await scene.pass_time(1)
        for number in range(2):
            scene.delete(f"first-{number}")
        await scene.pass_time(2)
        assert set(scene.released("high")) == {"high-0", "high-1"}
        assert scene.released("low") == {}


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
    scene = Scene({"a": 4})
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
    scene = Scene({"a": 0})
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


# -- Pods that have our gate and that no policy releases any more: the gate goes after a grace, and nothing else does --


async def test_the_pods_of_a_deleted_policy_are_released_unpinned_after_the_grace() -> None:
    scene = Scene({"a": 4})
    scene.create("x", 1, 2, size=3)
    async with releasing(scene) as task:
        await scene.pass_time(60)
        assert scene.released() == {}, "a policy releases them"
        scene.index.delete(PolicyObject(scene.policy))
        await scene.pass_time(20)
        assert (scene.released(), task.states()) == ({}, {"waiting": 2, "released": 0})
        await scene.pass_time(15)
        assert scene.released() == {"x-1": "", "x-2": ""}
        assert task.states() == {"waiting": 0, "released": 2}


async def test_a_policy_that_comes_back_in_time_keeps_its_pods() -> None:
    scene = Scene({"a": 4})
    scene.create("x", 1, size=2)
    async with releasing(scene):
        scene.index.delete(PolicyObject(scene.policy))
        await scene.pass_time(20)
        scene.index.upsert(PolicyObject(scene.policy))
        await scene.pass_time(40)
        assert scene.released() == {}


async def test_pods_that_were_there_before_the_leader_are_found_and_foreign_gates_stay() -> None:
    scene = Scene({"a": 4})
    scene.index.delete(PolicyObject(scene.policy))
    scene.create("x", 1, gates=(RELEASE_GATE, FOREIGN_GATE))
    async with releasing(scene):
        await scene.pass_time(40)
    assert scene.api.pods["default/x-1"]["spec"]["schedulingGates"] == [{"name": FOREIGN_GATE}]


async def test_a_gate_that_cannot_be_removed_is_tried_again() -> None:
    scene = Scene({"a": 4})
    scene.index.delete(PolicyObject(scene.policy))
    scene.create("x", 1)
    away = [True]

    def fail(_call: str, _name: str) -> KubeError | None:
        return Unreachable("away") if away[0] else None

    scene.api.fail = fail
    async with releasing(scene):
        await scene.pass_time(40)
        assert scene.released() == {}
        away[0] = False
        await scene.pass_time(60)
        assert scene.released() == {"x-1": ""}


# -- The release under random failures: lost events, lost answers, refused and throttled calls, killed leaders, replaced pods --
# For every seed: no group is ever split, never has more released pods than its size, no foreign gate is lost, no zone gets more pods
# than it holds, and once everything works again each group is whole or stays whole at its gate.


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("most", [0, 5], ids=["", "at most 5 in a zone"])
async def test_every_group_is_whole_in_one_zone_or_at_its_gate_whatever_fails(seed: int, most: int) -> None:
    rng = Random(seed)
    no_room = actions(NoRoomAction(NoRoom.WAIT, 100_000.0))
    scene = Scene(dict(ROOMS), topology=("zone",), max_per_domain=most, no_room=no_room)
    for gang, size in SIZES.items():
        scene.create(gang, *range(size), size=size)
    scene.create("z", 1, size=1, gates=(RELEASE_GATE, FOREIGN_GATE))
    scene.api.fail = lambda _call, _name: failing(rng, 0.2)
    scene.api.lose_answer = lambda _call, _name: Unreachable("lost") if rng.random() < 0.1 else None
    for _ in range(rng.randrange(1, 5)):
        async with scene.leading():
            for _ in range(rng.randrange(1, 12)):
                await disturb(scene, rng, most or 100)
    scene.api.fail = never
    scene.api.lose_answer = never
    scene.show()
    async with scene.leading():
        for _ in range(6):
            await scene.pass_time(20)
            scene.bind()
            judge(scene, most or 100)
        await scene.pass_time(300)
        before = scene.api.count("patch pods")
        await scene.pass_time(30)
        assert scene.api.count("patch pods") == before, "there is nothing to do"
    judge(scene, most or 100)
    for gang, size in SIZES.items():
        lost_its_room = most and scene.status(gang)["phase"] == "Degraded"  # a pod that replaces another one
        assert len(scene.released(gang)) in {0, size} or lost_its_room, gang
    assert scene.api.rejected == []
    gates = {gate["name"] for gate in scene.api.pods["default/z-1"]["spec"]["schedulingGates"]}
    assert gates == {RELEASE_GATE, FOREIGN_GATE}
