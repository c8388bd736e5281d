"""The release of groups, step by step: whole in one domain or whole at the gate, whatever fails, under any leader."""

from __future__ import annotations

from typing import Any

import pytest

from extender.index.cluster import ClusterIndex
from extender.kube.errors import Conflict, KubeError, Rejected, Throttled, Unreachable
from extender.model.policies import PolicyObject
from extender.model.release import LaterPods, Strategy
from extender.rules.catalog import counts_of_rules
from extender.settings.rules import Rules
from tests.fake_api import never
from tests.gangs import FOREIGN_GATE
from tests.tasks.release.scene import Scene


async def test_a_group_is_released_into_the_tightest_zone_that_holds_it() -> None:
    scene = Scene({"a": 8, "b": 3, "c": 2})
    scene.create("x", 1, 2, 3)
    async with scene.leading():
        await scene.pass_time(1)
    assert scene.released() == {"x-1": "b", "x-2": "b", "x-3": "b"}
    assert scene.api.rejected == []
    assert scene.counts.of["released"] == 3


async def test_an_incomplete_group_waits_and_says_so() -> None:
    scene = Scene({"a": 8})
    scene.create("x", 1, 2, size=3)
    async with scene.leading():
        await scene.pass_time(10)
        assert scene.released() == {}
        assert (scene.status("x")["phase"], scene.status("x")["message"]) == ("Collecting", "2 of 3 pods exist")
        scene.create("x", 3, size=3)
        await scene.pass_time(1)
    assert set(scene.released()) == {"x-1", "x-2", "x-3"}


async def test_the_decision_is_written_before_the_first_pod_is_touched() -> None:
    scene = Scene({"a": 8})
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(1)
    calls = [call for call, _ in scene.api.calls]
    assert calls.index("create groupplacements") < calls.index("get pods") < calls.index("patch pods")


async def test_pods_are_released_in_the_order_of_their_numbers_and_at_most_eight_at_once() -> None:
    scene = Scene({"a": 40})
    scene.create("x", *range(30, 0, -1))
    async with scene.leading():
        await scene.pass_time(1)
    names = [name for call, name in scene.api.calls if call == "patch pods"]
    assert names == [f"x-{number}" for number in range(1, 31)]
    assert 1 < scene.api.most_at_once <= 8


async def test_room_that_is_reserved_for_one_group_is_given_to_no_other() -> None:
    scene = Scene({"a": 4, "b": 2})
    scene.create("x", 1, 2, 3)
    scene.create("y", 1, 2, 3)
    async with scene.leading():
        await scene.pass_time(2)
        assert len(scene.released()) == 3
        assert scene.free("a") == 1
        scene.bind()
        await scene.pass_time(10)
        assert len(scene.released()) == 3, "the room is taken by bound pods now"
        for name in list(scene.released()):
            scene.delete(name)
        await scene.pass_time(10)
        assert set(scene.released().values()) == {"a"}
        assert len(scene.released()) == 3


async def test_it_says_why_no_domain_holds_a_group_and_tries_again_when_room_is_freed() -> None:
    scene = Scene({"a": 1, "b": 2})
    scene.create("x", 1, 2, 3)
    async with scene.leading():
        await scene.pass_time(10)
        assert scene.status("x")["phase"] == "Deciding"
        assert scene.status("x")["message"] == "zone=b holds 2 of 3, zone=a holds 1 of 3"
        assert scene.warnings == ["GroupNoRoom"]
        scene.rooms["a"] = 3
        scene.index.room_changes.notify(None, "a")
        await scene.pass_time(10)
    assert set(scene.released().values()) == {"a"}


async def test_a_changed_policy_is_tried_at_once_also_where_no_room_was_freed() -> None:
    scene = Scene({"a": 2})
    for gang in ("x", "y"):
        scene.create(gang, 1, 2, 3)
    async with scene.leading():
        await scene.pass_time(10)
        scene.rooms["a"] = 3  # no event: what the policy asked for found no room there
        await scene.pass_time(10)
        assert scene.released() == {}
        scene.change_policy(strategy=Strategy.MOST_FREE)
        await scene.pass_time(1)
    assert len(scene.released()) == 3


async def test_a_bound_group_is_bound_and_its_room_is_not_reserved_twice() -> None:
    scene = Scene({"a": 4})
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(1)
        scene.bind()
        await scene.pass_time(2)
        status = scene.status("x")
        assert (status["phase"], status["ready"], status["released"], status["bound"]) == ("Bound", 2, 2, 2)
        assert scene.index.reserved.statistics() == {"reserved_slots": 0, "groups_with_slots": 0}
        assert scene.manager.memory.oldest(scene.clock.now()) == 0


async def test_a_late_watch_never_releases_more_pods_than_the_group_has() -> None:
    scene = Scene({"a": 8}, later_pods=LaterPods.REPLACE)
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(1, shown=False)
        assert len(scene.released()) == 2
        scene.create("x", 3, size=2)  # the watch shows this one before the releases of the others
        scene.index.upsert(scene.index.pods["uid-x-3"])
        await scene.pass_time(5)
        assert set(scene.released()) == {"x-1", "x-2"}
        assert scene.manager.memory.expected() == 0


async def test_an_expectation_that_the_watch_never_fulfils_ends_with_a_read() -> None:
    scene = Scene({"a": 8})
    scene.create("x", 1, 2)
    async with scene.leading() as manager:
        await scene.pass_time(1, shown=False)
        assert manager.memory.expected() == 2
        await scene.pass_time(61, shown=False)
        assert manager.expired == 2
        assert manager.memory.expected() == 2, "they are released: a stale cache must not lead to more"
        assert scene.api.count("patch pods") == 2


@pytest.mark.parametrize("step", range(12))
async def test_a_leader_that_is_killed_at_any_step_leaves_a_group_that_converges_to_one_zone(step: int) -> None:
    scene = Scene({"a": 4, "b": 4})
    scene.create("x", 1, 2, 3, 4)
    made = 0

    def fail(_call: str, _name: str) -> KubeError | None:
        nonlocal made
        made += 1
        return Unreachable("killed") if made > step else None

    scene.api.fail = fail
    async with scene.leading():
        await scene.pass_time(1)
    scene.api.fail = never
    scene.rooms["a" if "a" not in scene.released().values() else "b"] = 9  # the other zone looks no worse now
    scene.show()
    async with scene.leading():
        await scene.pass_time(5)
    assert len(scene.released()) == 4
    assert len(set(scene.released().values())) == 1


@pytest.mark.parametrize("call", ["create groupplacements", "patch pods", "patch groupplacements/status"])
async def test_a_write_whose_answer_is_lost_is_not_made_twice(call: str) -> None:
    scene = Scene({"a": 4, "b": 4})
    scene.create("x", 1, 2)
    lost: set[str] = set()

    def lose(made: str, name: str) -> KubeError | None:
        if made != call or name in lost:
            return None
        lost.add(name)
        return Unreachable("no answer")

    scene.api.lose_answer = lose
    async with scene.leading():
        await scene.pass_time(8)
    calls = [made for made, _ in scene.api.calls]
    assert lost
    assert set(scene.released().values()) == {"a"}
    assert calls.count("patch pods") == 2
    assert len(scene.api.placements) == 1


async def test_a_conflict_is_read_again_and_a_throttled_call_waits() -> None:
    scene = Scene({"a": 4})
    scene.create("x", 1, 2)
    failures: list[KubeError] = [Conflict("409", status=409), Throttled("429", status=429, retry_after=2.0)]
    scene.api.fail = lambda call, _name: failures.pop() if call == "patch pods" and failures else None
    async with scene.leading():
        await scene.pass_time(10)
    assert len(scene.released()) == 2
    assert scene.counts.of["released"] == 2


async def test_a_pod_that_cannot_be_narrowed_is_reported_and_keeps_its_gate() -> None:
    scene = Scene({"a": 4})
    scene.create("x", 1, size=2)
    scene.create("x", 2, size=2, node_selector={"zone": "b"})
    async with scene.leading():
        await scene.pass_time(5)
        assert scene.released() == {"x-1": "a"}
        status = scene.status("x")
    assert (status["phase"], status["conditions"][0]["reason"]) == ("Degraded", "Refused")
    assert "x-2" in status["message"]
    assert scene.warnings == ["GroupRefused"]
    assert scene.api.rejected == [], "it is known before it is sent"


async def test_a_forbidden_patch_is_tried_again_later() -> None:
    scene = Scene({"a": 4})
    scene.create("x", 1)
    forbidden = [True]
    scene.api.fail = lambda call, _: Rejected("403 no", status=403) if call == "patch pods" and forbidden[0] else None
    async with scene.leading():
        await scene.pass_time(5)
        assert scene.status("x")["conditions"][0]["reason"] == "PatchFailed"
        forbidden[0] = False
        await scene.pass_time(20)
    assert scene.released() == {"x-1": "a"}


@pytest.mark.parametrize(("seconds", "zone"), [(2.0, "a"), (60.0, "b")])
async def test_a_group_keeps_its_room_while_its_decision_is_forbidden_for_a_few_seconds(
    seconds: float, zone: str
) -> None:
    """As by an API server that has just started. The other group has no other room, and may wait no longer than that."""
    scene = Scene({"a": 2})
    scene.create("x", 1, 2)
    until = scene.clock.time + seconds
    scene.api.fail = lambda call, name: (
        Rejected("403 no role", status=403)
        if call == "create groupplacements" and "x" in name and scene.clock.time < until
        else None
    )
    async with scene.leading():
        await scene.pass_time(0.1)
        scene.create("y", 1, 2)
        await scene.pass_time(20)
        assert set(scene.released()) == ({"x-1", "x-2"} if zone == "a" else {"y-1", "y-2"})


async def test_only_our_gate_is_removed_and_a_foreign_one_is_waited_for() -> None:
    scene = Scene({"a": 4})
    scene.create("x", 1, size=2)
    scene.create("x", 2, size=2, gates=("placement.extender.dev/group", FOREIGN_GATE))
    async with scene.leading():
        await scene.pass_time(10)
        assert scene.released() == {}
        assert scene.status("x")["conditions"][0]["reason"] == "ForeignGate"
        assert "x-2 (example.com/other)" in scene.status("x")["message"]
        scene.api.pods.edit("default/x-2", "spec", schedulingGates=[{"name": "placement.extender.dev/group"}])
        await scene.pass_time(5)
    assert len(scene.released()) == 2


async def test_a_second_look_writes_nothing() -> None:
    scene = Scene({"a": 4})
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(2)
        scene.bind()
        await scene.pass_time(5)
        before = len(scene.api.calls)
        await scene.pass_time(60)
        assert scene.api.calls[before:] == []
    async with scene.leading():
        await scene.pass_time(60)
    assert scene.api.calls[before:] == [], "nor does another leader"


async def test_the_wait_of_a_group_is_counted_once_also_where_a_pod_is_replaced_under_another_leader() -> None:
    scene = Scene({"a": 4})
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(1)
        scene.bind()
        await scene.pass_time(1)
    scene.delete("x-1")
    scene.create("x", 3, size=2)
    async with scene.leading():
        await scene.pass_time(1)
        assert set(scene.released()) == {"x-2", "x-3"}
    assert scene.counts.of["placed"] == 1


async def test_two_groups_of_a_policy_that_is_exclusive_never_share_a_domain() -> None:
    scene = Scene({"a": 9, "b": 9}, exclusive=True)
    for gang in "xyz":
        scene.create(gang, 1, 2)
    async with scene.leading():
        await scene.pass_time(10)
        zones = [scene.released(gang).get(f"{gang}-1") for gang in "xyz"]
        assert sorted(filter(None, zones)) == ["a", "b"]
        (waits,) = (gang for gang in "xyz" if not scene.released(gang))
        assert "zone=a is taken by default/" in scene.status(waits)["message"]
        (first,) = (gang for gang in "xyz" if scene.released(gang).get(f"{gang}-1") == "a")
        scene.delete(f"{first}-1")
        scene.delete(f"{first}-2")
        await scene.pass_time(10)
        assert set(scene.released(waits).values()) == {"a"}


async def test_a_namespace_has_no_more_room_reserved_than_its_budget() -> None:
    scene = Scene({"a": 1000})
    for number in range(60):
        scene.create(f"g{number}", 1, 2, 3, 4)
    async with scene.leading():
        await scene.pass_time(3)
        assert scene.index.reserved.statistics() == {"reserved_slots": 200, "groups_with_slots": 50}
        scene.bind()
        await scene.pass_time(12)
    assert len(scene.released()) == 240


async def test_the_object_of_a_group_is_owned_by_what_makes_the_group() -> None:
    owned, alone, labelled = Scene({"a": 4}, group_label=""), Scene({"a": 4}, group_label=""), Scene({"a": 4})
    of_a_set: dict[str, Any] = {"owner": ("ReplicaSet", "rs")}
    for scene, fields in ((owned, of_a_set), (alone, {}), (labelled, of_a_set)):
        scene.create("x", 1, **fields)
        async with scene.leading():
            await scene.pass_time(1)
    references = [
        next(iter(scene.api.placements.values()))["metadata"].get("ownerReferences")
        for scene in (owned, alone, labelled)
    ]
    assert references == [
        [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "uid-rs"}],
        [{"apiVersion": "v1", "kind": "Pod", "name": "x-1", "uid": "uid-x-1"}],
        None,
    ]


async def test_a_new_leader_keeps_the_room_of_released_pods_also_where_their_groups_are_not_filed_yet() -> None:
    scene = Scene({"a": 4})
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(1)
        assert scene.free("a") == 2
    scene.index = ClusterIndex(Rules(), counts_of_rules())
    scene.index.gated.defer_to(lambda: None)
    scene.show()
    scene.index.upsert(PolicyObject(scene.policy))  # policies are listed after pods
    assert len(scene.index.gated) == 0
    async with scene.leading():
        await scene.pass_time(0.1, shown=False)
        assert scene.free("a") == 2
