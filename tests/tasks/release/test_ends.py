"""What a group comes to after its decision: replaced pods, lost domains, timeouts, and pods that are gone."""

from __future__ import annotations

from typing import Any

import pytest

from extender.index.trial import TrialSteps
from extender.kube.effects import PodRef
from extender.kube.errors import Rejected, Unreachable
from extender.model.release import LaterPods, NoRoom, NoRoomAction, Proposal
from extender.verbs.release.progress import GroupState
from tests.fake_api import never
from tests.gangs import actions
from tests.tasks.release.scene import Scene


async def test_a_replaced_pod_goes_to_the_domain_of_its_group() -> None:
    scene = Scene({"a": 2, "b": 4})
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(1)
        scene.bind()
        await scene.pass_time(1)
        scene.delete("x-2")
        scene.create("x", 3, size=2)
        await scene.pass_time(2)
        assert scene.released() == {"x-1": "a", "x-3": "a"}


async def test_a_replaced_pod_that_the_domain_does_not_hold_stays_gated_and_the_group_is_degraded() -> None:
    scene = Scene({"a": 2, "b": 4})
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(1)
        scene.bind()
        await scene.pass_time(1)
        scene.delete("x-2")
        scene.rooms["a"] = 1
        scene.create("x", 3, size=2)
        await scene.pass_time(10)
        assert scene.released() == {"x-1": "a"}
        assert scene.status("x")["conditions"][0]["reason"] == "DomainFull"
        scene.rooms["a"] = 2
        scene.index.room_changes.notify(None, "a")
        await scene.pass_time(6)
        assert scene.released() == {"x-1": "a", "x-3": "a"}


@pytest.mark.parametrize("later_pods", [LaterPods.JOIN, LaterPods.JOIN_OR_MOVE])
async def test_a_group_of_which_nothing_runs_any_more_gets_another_domain_where_its_own_is_lost(
    later_pods: LaterPods,
) -> None:
    scene = Scene({"a": 2, "b": 4}, later_pods=later_pods)
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(1)
        scene.bind()
        await scene.pass_time(1)
        scene.rooms["a"] = 0
        scene.delete("x-1")
        scene.delete("x-2")
        scene.create("x", 3, 4)
        await scene.pass_time(12)
    assert scene.released() == {"x-3": "b", "x-4": "b"}


async def test_a_domain_that_is_lost_before_the_first_release_is_decided_anew() -> None:
    scene = Scene({"a": 2, "b": 4})
    scene.create("x", 1, 2)
    scene.api.fail = lambda call, _: Unreachable("away") if call in {"get pods", "patch pods"} else None
    async with scene.leading():
        await scene.pass_time(1)
    assert scene.released() == {}
    scene.api.fail = never
    scene.rooms["a"] = 0
    scene.show()
    async with scene.leading():
        await scene.pass_time(5)
    assert scene.released() == {"x-1": "b", "x-2": "b"}
    assert len(scene.api.placements) == 1


async def test_more_pods_than_the_size_wait_for_one_of_them_to_end_where_the_policy_says_so() -> None:
    scene = Scene({"a": 4}, later_pods=LaterPods.REPLACE)
    scene.create("x", 1, 2, 3, 4, size=2)
    async with scene.leading():
        await scene.pass_time(1)
        assert set(scene.released()) == {"x-1", "x-2"}
        assert scene.free("a") == 2, "no room is kept for those that wait"
        scene.bind()
        await scene.pass_time(2)
        assert (
            scene.status("x")["message"] == "2 of 2 pods have a node; 2 more than the size wait: laterPods is Replace"
        )
        assert scene.status("x")["phase"] == "Bound"
        (event,) = [each for each in scene.events if each.reason == "GroupBeyondSize"]
        assert (event.type, event.about) == ("Warning", PodRef.of(scene.index.pods["uid-x-3"]))
        scene.delete("x-1")
        await scene.pass_time(2)
        assert set(scene.released()) == {"x-2", "x-3"}


@pytest.mark.parametrize(
    ("action", "released"),
    [
        (NoRoom.WAIT, {}),
        (NoRoom.ANYWHERE, {"x-1": "", "x-2": "", "x-3": ""}),
        (NoRoom.COARSER_DOMAIN, {"x-1": "b", "x-2": "b", "x-3": "b"}),
    ],
)
async def test_a_group_without_room_ends_as_its_policy_says(action: NoRoom, released: dict[str, str]) -> None:
    scene = Scene({"a": 1, "b": 2}, no_room=actions(NoRoomAction(action, 60.0)))
    scene.create("x", 1, 2, 3)
    async with scene.leading():
        await scene.pass_time(50)
        assert scene.released() == {}
        await scene.pass_time(20)
        assert scene.released() == released
        assert scene.counts.of[f"timeout {action}"] == 1
        if action is NoRoom.WAIT:
            assert scene.status("x")["phase"] == "TimedOut"
            scene.rooms["a"] = 3
            scene.index.room_changes.notify(None, "a")
            await scene.pass_time(10)
            assert set(scene.released().values()) == {"a"}, "it can return"


async def test_a_group_that_never_fills_ends_too_and_a_later_pod_follows_its_siblings() -> None:
    scene = Scene({"a": 4}, no_room=actions(NoRoomAction(NoRoom.ANYWHERE, 60.0)))
    scene.create("x", 1, 2, size=3)
    async with scene.leading():
        await scene.pass_time(70)
        assert scene.released() == {"x-1": "", "x-2": ""}
        scene.create("x", 3, size=3)
        await scene.pass_time(2)
        assert len(scene.released()) == 3


async def test_the_time_of_a_group_goes_on_under_a_new_leader() -> None:
    scene = Scene({"a": 0}, no_room=actions(NoRoomAction(NoRoom.ANYWHERE, 60.0)))
    scene.create("x", 1)
    async with scene.leading():
        await scene.pass_time(40)
    async with scene.leading():
        await scene.pass_time(30)
    assert scene.released() == {"x-1": ""}


async def test_released_pods_that_are_not_bound_lose_their_room_and_are_reported() -> None:
    scene = Scene({"a": 4}, no_room=actions(NoRoomAction(NoRoom.WAIT, 10_000.0)))
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(2)
        assert scene.free("a") == 2
        await scene.pass_time(320)
        assert scene.free("a") == 4
        assert scene.status("x")["conditions"][0]["reason"] == "NotBound"
        scene.bind()
        await scene.pass_time(2)
        assert scene.status("x")["phase"] == "Bound"


async def test_the_object_of_a_group_without_pods_is_deleted_after_a_while() -> None:
    scene = Scene({"a": 4})
    scene.create("x", 1)
    async with scene.leading():
        await scene.pass_time(2)
        scene.delete("x-1")
        await scene.pass_time(200)
        assert len(scene.api.placements) == 1
        await scene.pass_time(120)
        assert scene.api.placements == {}


async def test_an_object_of_a_group_whose_pods_went_under_an_earlier_leader_is_deleted_too() -> None:
    scene = Scene({"a": 4})
    scene.create("x", 1)
    async with scene.leading():
        await scene.pass_time(2)
    scene.delete("x-1")
    async with scene.leading():
        await scene.pass_time(320)
    assert scene.api.placements == {}


async def test_a_deleted_object_is_written_again_with_the_same_decision() -> None:
    scene = Scene({"a": 4, "b": 4})
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(2)
        (key,) = scene.api.placements
        spec = scene.api.placements.pop(key)["spec"]
        scene.show()
        scene.bind()
        await scene.pass_time(20)
        assert scene.api.placements[key]["spec"] == spec


async def test_pods_that_are_not_released_yet_when_their_zone_is_lost_are_not_sent_there() -> None:
    scene = Scene({"a": 2, "b": 4})
    scene.create("x", 1, 2)
    scene.api.fail = lambda call, _: Rejected("403 not yet", status=403) if call == "patch pods" else None
    async with scene.leading():
        await scene.pass_time(1)
        assert scene.index.reserved.node_of("uid-x-1") == "a"
        scene.rooms["a"] = 0
        scene.index.room_changes.notify(None, "a")
        scene.api.fail = never
        await scene.pass_time(10)
    assert scene.released() == {"x-1": "b", "x-2": "b"}


async def test_released_pods_whose_zone_is_lost_are_reported_and_their_siblings_stay_gated() -> None:
    scene = Scene({"a": 2, "b": 4})
    scene.create("x", 1, 2)
    scene.api.fail = lambda call, name: (
        Rejected("403 not yet", status=403) if call == "patch pods" and name == "x-2" else None
    )
    async with scene.leading():
        await scene.pass_time(1)
        assert scene.released() == {"x-1": "a"}
        scene.api.fail = never
        scene.rooms["a"] = 0
        scene.index.room_changes.notify(None, "a")
        await scene.pass_time(10)
        assert scene.released() == {"x-1": "a"}, "it cannot be moved, and the group is not split"
        assert scene.status("x")["conditions"][0]["reason"] == "DomainFull"
        assert "GroupDomainFull" in scene.warnings


async def test_a_group_that_breaks_the_manager_does_not_keep_others_gated() -> None:
    scene = Scene({"a": 4})
    scene.create("bad", 1)
    scene.create("good", 1)
    propose = scene.propose

    def broken(group: GroupState, levels: Any, taken: Any = (), excess: Any = None) -> TrialSteps[Proposal]:
        if group.key.value == "bad" and not scene.counts.of["mended"]:
            raise RuntimeError("a bug")
        return propose(group, levels, taken, excess)

    scene.propose = broken  # type: ignore[method-assign]  # the verb, not the manager, is what breaks
    async with scene.leading() as manager:
        await scene.pass_time(2)
        assert (scene.released(), manager.failures) == ({"good-1": "a"}, 1)
        scene.counts.of["mended"] = 1
        await scene.pass_time(12)
        assert set(scene.released()) == {"bad-1", "good-1"}


async def test_a_patch_that_is_refused_is_not_repeated_at_once_but_after_a_while() -> None:
    scene = Scene({"a": 4}, no_room=actions(NoRoomAction(NoRoom.WAIT, 10_000.0)))
    scene.create("x", 1, 2)
    scene.api.fail = lambda call, name: (
        Rejected("422 no", status=422) if call == "patch pods" and name == "x-2" else None
    )
    async with scene.leading():
        await scene.pass_time(60)
        assert scene.released() == {"x-1": "a"}
        assert scene.api.calls.count(("patch pods", "x-2")) == 1
        assert scene.status("x")["conditions"][0]["reason"] == "Refused"
        scene.api.fail = never
        await scene.pass_time(300)
        assert set(scene.released()) == {"x-1", "x-2"}


async def test_a_standby_says_nothing_about_groups() -> None:
    scene = Scene({"a": 0})
    scene.create("x", 1)
    async with scene.leading() as manager:
        await scene.pass_time(10)
        assert manager.memory.oldest(scene.clock.now()) > 0
    assert manager.memory.oldest(scene.clock.now()) == 0
    assert scene.index.reserved.statistics()["reserved_slots"] == 0
