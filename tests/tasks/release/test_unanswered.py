"""Writes without an answer and changes of the leader: decisions, room and domains of groups, and pods that are bound meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from extender.index.trial import TrialSteps
from extender.kube.errors import Conflict, KubeError, Unreachable
from extender.model.release import GroupKey, LaterPods, Proposal
from extender.verbs.release.progress import GroupState
from tests.fake_api import Failing, never
from tests.gangs import gated_json
from tests.tasks.release.scene import POLICY, Scene

_IN_PLACEMENT = 0.021
_X = GroupKey("default", POLICY, "x")


def once(call: str, error: KubeError) -> Failing:
    """The first such call has this error."""
    left = [error]
    return lambda made, _name: left.pop() if made == call and left else None


def stored_zone(scene: Scene) -> str:
    (body,) = scene.api.placements.values()
    return str(body["spec"]["topology"][0]["value"])


# -- a decision that replaces another one ------------------------------------------------------------------------------


@pytest.mark.parametrize("is_written", [True, False], ids=["the answer is lost", "the write is lost"])
async def test_a_decision_is_known_before_a_pod_is_released_if_the_write_that_replaced_it_has_no_answer(
    *, is_written: bool
) -> None:
    """Zone a is lost, and zone b is decided instead. Then zone a is back, and the tightest zone again."""
    scene = Scene({"a": 2, "b": 4})
    scene.create("x", 1, 2)
    scene.api.fail = lambda call, _: Unreachable("away") if call in {"get pods", "patch pods"} else None
    async with scene.leading():
        await scene.pass_time(1)
    assert stored_zone(scene) == "a"
    scene.rooms["a"] = 0
    scene.show()
    lost = once("update groupplacements", Unreachable("no answer"))
    scene.api.fail, scene.api.lose_answer = (never, lost) if is_written else (lost, never)
    async with scene.leading():
        await scene.pass_time(0.2, shown=False)
        assert scene.released() == {}
        assert stored_zone(scene) == ("b" if is_written else "a")
        assert scene.status("x")["conditions"][0]["reason"] == "NotWritten"
        scene.rooms["a"] = 2
        scene.api.fail = lambda call, name: Unreachable("away") if (call, name) == ("patch pods", "x-2") else None
        await scene.pass_time(0.4, shown=False)
        await scene.pass_time(1)
        assert scene.released() == {"x-1": "b"}
        assert stored_zone(scene) == "b"
    scene.api.fail = never
    async with scene.leading():
        await scene.pass_time(1)
    assert scene.released() == {"x-1": "b", "x-2": "b"}


async def test_a_decision_without_an_answer_that_fails_again_is_still_written_before_a_pod_is_released() -> None:
    scene = Scene({"a": 2, "b": 4})
    scene.create("x", 1, 2)
    scene.api.fail = lambda call, _: Unreachable("away") if call in {"get pods", "patch pods"} else None
    async with scene.leading():
        await scene.pass_time(1)
    scene.rooms["a"] = 0
    scene.show()
    scene.api.lose_answer = once("update groupplacements", Unreachable("no answer"))
    scene.api.fail = never
    async with scene.leading():
        await scene.pass_time(0.2, shown=False)
        scene.rooms["a"] = 2
        scene.api.fail = once("get groupplacements", Conflict("409", status=409))
        await scene.pass_time(0.4, shown=False)
        assert scene.released() == {}
        await scene.pass_time(2)
    assert set(scene.released().values()) == {stored_zone(scene)} == {"b"}


# -- the first decision of a group -------------------------------------------------------------------------------------


async def test_a_domain_whose_decision_has_no_answer_is_given_to_no_other_group_of_an_exclusive_policy() -> None:
    scene = Scene({"a": 4, "b": 5}, exclusive=True)
    scene.create("x", 1, 2)
    scene.api.lose_answer = once("create groupplacements", Unreachable("no answer"))
    async with scene.leading():
        await scene.clock.advance(0.1)
        assert len(scene.api.placements) == 1
        assert scene.released() == {}
        for name in ("y-1", "y-2"):
            scene.api.add(gated_json(name, "y", labels={"size": "2"}))
        scene.show("y-1", "y-2")
        await scene.pass_time(2, shown=False)
    assert scene.released() == {"x-1": "a", "x-2": "a", "y-1": "b", "y-2": "b"}


@pytest.mark.parametrize(("error", "slots"), [(Unreachable("no answer"), 2), (Conflict("409", status=409), 0)])
async def test_room_is_kept_while_a_decision_has_no_answer_and_given_up_if_the_write_is_refused(
    error: KubeError, slots: int
) -> None:
    scene = Scene({"a": 2})
    scene.create("x", 1, 2)
    scene.api.fail = lambda call, _: error if call.endswith(" groupplacements") else None
    async with scene.leading():
        await scene.pass_time(0.1)
        assert scene.index.reserved.statistics()["reserved_slots"] == slots
        scene.api.fail = never
        await scene.pass_time(2)
    assert set(scene.released().values()) == {"a"}


async def test_a_pod_that_comes_before_the_decision_is_written_again_is_recorded_too() -> None:
    scene = Scene({"a": 4}, max_per_domain=4)
    scene.create("x", 1, 2)
    scene.api.lose_answer = once("create groupplacements", Unreachable("no answer"))
    async with scene.leading():
        await scene.clock.advance(0.1)
        assert len(scene.api.placements) == 1
        scene.delete("x-1")
        scene.create("x", 3, size=2)
        await scene.pass_time(2)
    assert scene.released() == {"x-2": "a", "x-3": "a"}
    (body,) = scene.api.placements.values()
    assert {"uid-x-2", "uid-x-3"} <= set(body["spec"]["pods"])


# -- pods that are bound meanwhile -------------------------------------------------------------------------------------


def held_placements(scene: Scene) -> list[str]:
    """A list: the next placement of each gang in it takes 20 ms, then waits for 2 ms so that other tasks run, and then looks for room."""
    propose, gangs = scene.propose, list[str]()

    def held(group: GroupState, levels: Any, taken: Any = (), excess: Any = None) -> TrialSteps[Proposal]:
        if group.key.value in gangs:
            gangs.remove(group.key.value)
            scene.clock.time += 0.02  # the slice is over
            yield True
            yield True
        return (yield from propose(group, levels, taken, excess))

    scene.propose = held  # type: ignore[method-assign]
    return gangs


def bind_at_once(scene: Scene, *names: str) -> None:
    for name in names:
        scene.api.pods.edit(f"default/{name}", "spec", nodeName="a")
    scene.show(*names)


@pytest.mark.parametrize("gang", ["y", "x"], ids=["another group is placed", "its own group is placed"])
async def test_a_new_leader_keeps_room_for_a_released_pod_whose_sibling_is_bound_while(gang: str) -> None:
    """Zone a has room for two pods. If the bound pod asked for room too, the other one would get none."""
    scene = Scene({"a": 2, "b": 3})
    scene.create("y", 1, 2, 3)
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(1)
        assert set(scene.released("x").values()) == {"a"}
    held_placements(scene).append(gang)
    scene.catch_up = asyncio.Event().wait  # type: ignore[method-assign, assignment]  # so room is reserved once
    async with scene.leading():
        await scene.clock.advance(_IN_PLACEMENT)
        bind_at_once(scene, "x-1")
        await scene.clock.advance(1)
        assert scene.index.reserved.node_of("uid-x-2") == "a"


async def test_a_new_leader_keeps_room_for_a_pod_that_is_due_since_another_pod_of_its_group_was_deleted() -> None:
    scene = Scene({"a": 2, "b": 3}, later_pods=LaterPods.REPLACE)
    scene.create("y", 1, 2, 3)
    scene.create("x", 1, 2, 3, size=2)
    async with scene.leading():
        await scene.pass_time(1)
        assert scene.released("x") == {"x-1": "a", "x-2": "a"}
    held_placements(scene).append("y")
    scene.catch_up = asyncio.Event().wait  # type: ignore[method-assign, assignment]
    async with scene.leading():
        await scene.clock.advance(_IN_PLACEMENT)
        scene.delete("x-1")
        await scene.clock.advance(1)
        assert scene.index.reserved.node_of("uid-x-3") == "a"


@pytest.mark.parametrize("size", [1, 2])
async def test_a_group_of_which_a_pod_is_bound_while_room_is_searched_lacks_none(size: int) -> None:
    scene = Scene({"a": size})
    held = held_placements(scene)
    scene.create("x", *range(size))
    async with scene.leading():
        await scene.pass_time(1)
        held.append("x")
        scene.index.reserved.release(_X)
        scene.index.gated.changes.notify(_X, _X)
        await scene.clock.advance(_IN_PLACEMENT)
        assert not held
        bind_at_once(scene, "x-0")
        await scene.clock.advance(1)
        assert scene.index.reserved.statistics()["reserved_slots"] == size - 1
    assert scene.warnings == []


# -- the second look of a new leader, at groups for which it has reserved room already -----------------------------------


async def test_a_domain_whose_pods_are_released_and_not_bound_is_given_to_no_other_group_by_a_new_leader() -> None:
    scene = Scene({"a": 4, "b": 5}, exclusive=True)
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(1)
    async with scene.leading():
        await scene.pass_time(1)
        scene.create("y", 1, 2)
        await scene.pass_time(2)
    assert scene.released() == {"x-1": "a", "x-2": "a", "y-1": "b", "y-2": "b"}


async def test_a_new_leader_gives_back_only_the_room_of_pods_about_which_no_scheduler_asks() -> None:
    scene = Scene({"a": 4})
    scene.create("x", 1, size=2)
    scene.create("x", 2, size=2, scheduler="other")
    async with scene.leading():
        await scene.pass_time(1)
    async with scene.leading():
        await scene.pass_time(1)
        scene.index.reserved.note_request(scene.index.pods["uid-x-1"], scene.clock.now())
        await scene.pass_time(scene.budget.unasked + 1)
        assert list(scene.index.reserved.pods_of(_X)) == ["uid-x-1"]
