"""The action Preempt. Pods of lower priority are removed once, their room is kept for the group, which is released when it is free."""

from __future__ import annotations

import pytest

from extender.model.release import GroupKey, LaterPods, NoRoom, NoRoomAction
from extender.settings.policies import Release
from tests.gangs import actions
from tests.tasks.release.contest import Contest
from tests.tasks.release.scene import POLICY, Scene

HIGH = GroupKey("default", POLICY, "high")


async def test_victims_are_removed_once_and_the_group_is_released_when_they_have_left() -> None:
    scene = Contest()
    async with scene.leading():
        await scene.begin()
        assert scene.removed == [["low-0", "low-1"]]
        assert scene.released("high") == {}
        await scene.pass_time(7)
        said = scene.status("high")["conditions"][0]
        assert (said["reason"], said["message"]) == (
            "Preempting",
            "2 pods of lower priority hold the room, and are preempted",
        )
        scene.delete("low-0")
        await scene.pass_time(2)
        assert scene.released("high") == {}, "there is room for one of them"
        scene.create("other", 0, priority=10)
        scene.delete("low-1")
        await scene.pass_time(2)
        assert set(scene.released("high")) == {"high-0", "high-1"}
        assert scene.released("other") == {}, "the room was kept"
        assert scene.removed == [["low-0", "low-1"]]


@pytest.mark.parametrize(("priority", "runs_lower"), [(1000, True), (0, False)])
async def test_a_group_that_preempts_none_says_that_pods_of_lower_priority_run(
    priority: int, *, runs_lower: bool
) -> None:
    scene = Scene({"a": 2})
    scene.create("low", 0, 1)
    async with scene.leading():
        await scene.pass_time(1)
        scene.bind()
        scene.create("waits", 0, 1, priority=priority)
        await scene.pass_time(10)
        said = scene.status("waits")["conditions"][0]
    more = "; pods of lower priority run, and the policy preempts none of them" if runs_lower else ""
    assert (said["reason"], said["message"]) == ("NoRoom", f"zone=a holds 0 of 2{more}")


async def test_where_a_victim_cannot_be_removed_the_room_is_given_up_and_another_choice_is_made() -> None:
    scene = Contest()
    scene.fails = True
    async with scene.leading():
        await scene.begin()
        assert set(map(tuple, scene.removed)) == {("low-0", "low-1")}
        assert scene.index.reserved.pods_of(HIGH) == ()
        await scene.pass_time(60)
        assert 8 < len(scene.removed) < 20, "it is tried again every few seconds"
        assert scene.status("high")["message"] == "2 pods of lower priority hold the room, and could not be preempted"
        scene.fails = False
        scene.delete("low-0")
        await scene.pass_time(8)
        assert scene.removed[-1] == ["low-1"]


async def test_a_new_leader_goes_on_with_the_victims_that_are_left() -> None:
    scene = Contest()
    async with scene.leading():
        await scene.begin()
    assert scene.index.reserved.pods_of(HIGH) == ()
    scene.delete("low-0")
    async with scene.leading():
        await scene.pass_time(2)
        assert scene.removed == [["low-0", "low-1"], ["low-1"]]
        scene.delete("low-1")
        await scene.pass_time(2)
        assert set(scene.released("high")) == {"high-0", "high-1"}


async def test_a_group_that_has_lost_its_domain_is_released_into_the_one_that_it_preempts_in() -> None:
    scene = Contest(later_pods=LaterPods.JOIN_OR_MOVE)
    async with scene.leading():
        await scene.pass_time(1)
        scene.bind()
        scene.rooms["b"] = 2
        scene.create("high", 0, 1, priority=1000)
        await scene.pass_time(1)
        scene.bind()
        assert scene.released("high") == {"high-0": "b", "high-1": "b"}
        scene.rooms["b"] = 0
        scene.delete("high-0")
        scene.delete("high-1")
        scene.create("high", 2, 3, priority=1000)
        await scene.pass_time(7)
        assert scene.removed == [["low-0", "low-1"]]
        assert scene.released("high") == {}, "the victims have not left"
        scene.delete("low-0")
        scene.delete("low-1")
        await scene.pass_time(2)
        assert scene.released("high") == {"high-2": "a", "high-3": "a"}


async def test_a_group_whose_time_is_over_preempts_none() -> None:
    scene = Contest(no_room=actions(NoRoom.PREEMPT, NoRoomAction(NoRoom.ANYWHERE, 0.5)))
    async with scene.leading():
        await scene.begin()
        assert scene.removed == []
        assert set(scene.released("high")) == {"high-0", "high-1"}


async def test_a_group_that_may_not_have_so_much_reserved_preempts_none() -> None:
    scene = Contest()
    scene.budget = Release(groups_per_namespace=50, pods_per_namespace=1)
    async with scene.leading():
        await scene.begin()
        assert scene.removed == []


async def test_nothing_is_removed_and_no_group_is_decided_while_changes_are_missed() -> None:
    """After a restart of the API server the index may lack pods that have left, and that filter does not count on either."""
    scene = Contest()
    async with scene.leading():
        await scene.pass_time(1)
        scene.bind()
        scene.is_stale = True
        scene.create("high", 0, 1, priority=1000)
        await scene.pass_time(5)
        assert scene.removed == []
        scene.delete("low-0")
        scene.delete("low-1")
        await scene.pass_time(5)
        assert scene.released("high") == {}
        scene.is_stale = False
        await scene.pass_time(2)
        assert set(scene.released("high")) == {"high-0", "high-1"}
        assert scene.removed == []
