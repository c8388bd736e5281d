"""Room of released pods is kept while their scheduler has others before them, and given back where it asks about nothing.

All settings are the defaults: room is reserved for 300 s at most, and for 60 s while no scheduler asks (`release.unasked`).
"""

from __future__ import annotations

import pytest

from extender.model.release import GroupSize
from tests.contenders import contender, contender_json
from tests.tasks.release.backlog import Backlog, Scheduled


async def test_a_group_keeps_its_room_while_its_scheduler_asks_about_other_pods() -> None:
    """Until that has asked about nothing for so long as a scheduler that does not exist never asks."""
    scene = Backlog()
    scene.create("x", 1, 2, 3)
    async with scene.leading():
        await scene.pass_time(2)
        await scene.request_for(180, "of-others")
        assert scene.reserved == 3
        await scene.pass_time(50)
        assert scene.reserved == 3, "the time counts from the last request"
        await scene.pass_time(20)
        assert scene.reserved == 0
        assert scene.status("x")["conditions"][-1]["reason"] == "NotBound"


async def test_requests_of_another_scheduler_keep_no_room() -> None:
    scene = Backlog()
    scene.create("x", 1, 2, scheduler="absent")
    async with scene.leading():
        await scene.pass_time(2)
        await scene.request_for(70, "of-others")
        assert scene.reserved == 0


@pytest.mark.parametrize("is_bound", [False, True])
async def test_a_group_of_which_a_pod_was_asked_about_keeps_the_room_of_the_others(*, is_bound: bool) -> None:
    """For as long as room is reserved: a part of it would be split from the rest."""
    scene = Backlog()
    scene.create("x", 1, 2, 3)
    async with scene.leading():
        await scene.pass_time(2)
        scene.request("x-1")
        await scene.pass_time(1)
        if is_bound:
            scene.bind("x-1")
        await scene.pass_time(250)
        assert scene.reserved == 3 - is_bound
        await scene.pass_time(50)
        assert scene.reserved == 0


async def test_each_scheduler_of_a_group_is_to_ask_about_its_own_pods() -> None:
    """Else one pod of a scheduler that works keeps the room of all that name one that does not exist."""
    scene = Backlog(size=GroupSize(4))
    scene.create("x", 1, 2)
    scene.create("x", 3, 4, scheduler="absent")
    async with scene.leading():
        await scene.pass_time(2)
        scene.request("x-1")
        await scene.pass_time(70)
        assert sorted(scene.index.reserved.held) == ["uid-x-1", "uid-x-2"]


async def test_room_is_not_reserved_again_for_pods_about_which_no_scheduler_asks() -> None:
    scene = Backlog()
    scene.create("x", 1, 2, 3)
    async with scene.leading():
        await scene.pass_time(2)
        await scene.pass_time(70)
        assert scene.reserved == 0
        await scene.pass_time(100)
        assert scene.reserved == 0


async def test_a_scheduler_that_comes_back_has_the_room_of_a_group_reserved_again() -> None:
    """It was away for two minutes. The first pod that it binds shows that it is there."""
    scene = Backlog()
    scene.create("x", 1, 2, 3)
    async with scene.leading():
        await scene.pass_time(120)
        assert scene.reserved == 0
        scene.bind("x-1")
        await scene.pass_time(2)
        assert scene.reserved == 2
        assert scene.status("x")["phase"] == "Releasing"
        scene.bind()
        await scene.pass_time(2)
        assert scene.status("x")["phase"] == "Bound"


async def test_a_time_in_which_the_process_did_not_run_shows_nothing_of_a_scheduler() -> None:
    scene = Backlog()
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(30)
        scene.index.reserved.extend(100.0, now=scene.clock.now())
        await scene.pass_time(50)
        assert scene.reserved == 2
        await scene.pass_time(20)
        assert scene.reserved == 0


def test_the_times_of_so_many_schedulers_are_known_and_the_least_recent_is_forgotten() -> None:
    """Pods may name any scheduler."""
    scene = Backlog()
    for number in range(1000):
        scene.index.reserved.note_request(contender("x", scheduler=f"s{number}"), float(number))
    last = scene.index.reserved.requests.last_of
    assert [number for number in range(1000) if last(f"s{number}") == number] == list(range(936, 1000))


async def test_a_gang_of_50_lands_behind_a_backlog_that_its_scheduler_asks_about_for_104_seconds() -> None:
    """5,200 pods and the gang have room for 5,150: the backlog takes all that is not reserved."""
    scene = Scheduled(103)
    backlog = [f"web-{number}" for number in range(5200)]
    for name in backlog:
        scene.api.add(contender_json(name))
    scene.create("gang", *range(50))
    async with scene.leading():
        await scene.pass_time(2)
        bound = 0
        for at, name in enumerate(backlog):
            bound += bool(await scene.schedule(name))
            if not at % 50:
                await scene.clock.advance(1)
        assert bound == 5100
        found = [await scene.schedule(name, zone) for name, zone in scene.released("gang").items()]
        assert {scene.zone_of(node) for node in found if node} in ({"a"}, {"b"})
        assert all(found)
        await scene.pass_time(2)
        assert scene.status("gang")["phase"] == "Bound"
