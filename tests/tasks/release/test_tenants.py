"""One tenant with the worst groups that a namespace can have: groups of others are released as if it were not there.

Time is that of the clock, which only the limits on writes move: a figure is exact, on any machine.
"""

from __future__ import annotations

import pytest

from extender.model.objects import Pod
from extender.model.release import GroupKey, Slot
from extender.settings.policies import Release
from extender.tasks.release.choosing import budget_excess
from extender.verbs.release.progress import WaitReason
from tests.contenders import cluster, stage
from tests.gangs import gated, gated_json
from tests.tasks.release.noisy_tenant import (
    NOISE,
    OWN_GATE,
    SHOP,
    Limited,
    Noise,
    groups_of_one,
    groups_that_never_fill,
    is_own,
    labels_that_move,
    nothing,
    quotas_and_orders_that_change,
    seconds_until_released,
    sizes_that_change,
)
from tests.tasks.release.scene import Scene


@pytest.mark.parametrize(
    "noise",
    [groups_of_one, groups_that_never_fill, sizes_that_change, labels_that_move, quotas_and_orders_that_change],
)
async def test_groups_of_others_are_released_in_almost_the_time_that_they_take_alone(noise: Noise) -> None:
    alone = await seconds_until_released(nothing)
    beside = await seconds_until_released(noise)
    assert beside <= 1.2 * alone


def test_a_namespace_has_no_more_than_its_share_of_what_nodes_offer_whatever_group_is_first() -> None:
    """Of 8 CPUs half. What a group has already does not count against it."""
    first, second, large = (gated(name, "g", cpu=cpu) for name, cpu in (("a", 3000), ("b", 1500), ("c", 5000)))
    index = cluster(stage("n1"), stage("n2"), first, second, large)
    limits = Release(share_per_namespace=0.5)
    held, other = GroupKey("default", "policy", "held"), GroupKey("default", "policy", "other")

    def excess(key: GroupKey, *pods: Pod, alone: bool = False) -> str:
        return budget_excess(key, pods, index.reserved, index.view.offered, limits, alone=alone)

    text = "release.sharePerNamespace: the namespace would have more than 50% of cpu reserved"
    assert (excess(other, second), excess(other, large)) == ("", text)
    index.reserved.reserve(held, [Slot(first.uid, "n1")], until=1.0)
    assert (excess(other, second), excess(other, second, alone=True), excess(other, large, alone=True)) == (
        text,
        "",
        text,
    )
    assert excess(held, first) == ""


async def test_a_group_that_is_larger_than_a_share_is_released_and_keeps_no_room_from_others() -> None:
    scene = Limited(5)
    scene.create("x", *range(10))
    async with scene.leading():
        await scene.pass_time(2)
        assert (len(scene.released()), set(scene.released().values()), scene.reserved) == (10, {"a"}, 0)
        scene.create("y", *range(5))
        await scene.pass_time(2)
        assert (len(scene.released("y")), scene.reserved) == (5, 5)


async def test_groups_that_are_decided_at_the_same_time_have_no_more_than_the_share_together() -> None:
    """Each is chosen a domain in turn, and reserves its room afterwards."""
    scene = Limited(5)
    for number in range(20):
        scene.create(f"g{number}", 1, 2)
    seen = set[int]()
    scene.index.reserved.changes.subscribe(lambda _slot: seen.add(scene.reserved))
    async with scene.leading():
        for _ in range(20):
            await scene.pass_time(0.5)
            seen.add(scene.reserved)
            scene.bind()
        assert max(seen) <= 5
        assert len(scene.released()) == 40, "the others follow"


@pytest.mark.parametrize("how", ["joins", "forges"])
async def test_pods_that_come_to_a_decided_group_get_no_room_beyond_the_share(how: str) -> None:
    scene = Limited(5)
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(2)
        assert scene.reserved == 2
        if how == "joins":
            scene.create("x", *range(3, 40), size=39)
        for number in range(3, 40) if how == "forges" else ():
            scene.api.add(gated_json(f"x-{number}", "x", released="x", labels={"size": "2"}))
        await scene.pass_time(5)
        assert scene.reserved <= 5


async def test_a_zone_of_an_exclusive_policy_is_free_again_when_no_pod_runs_there_and_no_room_is_kept() -> None:
    scene = Limited(50, exclusive=True)
    for gang in "xy":
        scene.create(gang, 1, 2)
    async with scene.leading():
        await scene.pass_time(2)
        scene.bind("y-1", "y-2")
        scene.create("z", 1, 2)
        await scene.pass_time(40)
        assert scene.released("z") == {}
        await scene.pass_time(40)
        assert set(scene.released("z").values()) == {scene.released("x")["x-1"]}


async def test_quotas_that_contradict_each_other_hold_groups_with_a_reason_and_no_group_of_others() -> None:
    scene = Scene({"a": 100})
    for turn in range(5):
        quotas_and_orders_that_change(scene, turn)
    scene.create("mine", 1, 2, namespace=SHOP)
    async with scene.leading():
        await scene.pass_time(10)
        assert set(scene.released("mine")) == {"mine-1", "mine-2"}
        gates = [body["spec"]["schedulingGates"] for body in scene.api.pods.values() if is_own(body)]
        assert gates == 40 * [[{"name": OWN_GATE}]]
        held = [memory.report.step for key, memory in scene.manager.memory.items() if key.namespace == NOISE]
        said = {step.reason for step in held if step is not None}
        assert said <= {WaitReason.QUOTA, WaitReason.BUDGET, WaitReason.INCOMPLETE}
        texts = [step.message for step in held if step is not None and step.reason is WaitReason.QUOTA]
        assert texts
        assert all("has a quota of" in text and len(text) < 1000 for text in texts)
