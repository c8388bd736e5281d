"""The lines of groups that wait for room: a try for each change of room, in turns, and a tenth of the time for all of them."""

from __future__ import annotations

import pytest

from extender.model.release import OnTimeout
from extender.tasks.release.groups import DecisionLines
from tests.contenders import contender
from tests.tasks.release.scene import Scene
from tests.tasks.release.test_queue import key


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
