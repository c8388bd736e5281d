"""One tenant with the worst groups that a namespace can have: groups of others are released as if it were not there.

Time is that of the clock, which only the limits on writes move: a figure is exact, on any machine.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from extender.model.objects import Pod
from extender.model.policies import PolicyObject
from extender.model.release import Domain, GroupKey, GroupSize, Slot, Strategy
from extender.model.resources import PODS
from extender.model.units import Duration
from extender.settings.policies import Release
from extender.tasks.release.groups import budget_excess
from extender.verbs.release.progress import WaitReason
from tests.contenders import cluster, stage
from tests.gangs import gated, gated_json, release_policy
from tests.tasks.release.scene import Scene

SHOP, NOISE = "shop", "noise"
OWN_GATE = "placement.extender.dev/own"
VICTIMS, SIZE = 5, 20
BUDGET = Release(groups_per_namespace=20, pods_per_namespace=200)

Noise = Callable[[Scene, int], None]


def _add(scene: Scene, name: str, gang: str, size: int) -> None:
    scene.api.add(gated_json(name, gang, namespace=NOISE, labels={"size": str(size)}))


def groups_of_one(scene: Scene, turn: int) -> None:
    """Forty more each time, which is more than can be released meanwhile."""
    for number in range(40):
        _add(scene, f"one-{turn}-{number}", f"one-{turn}-{number}", 1)


def groups_that_never_fill(scene: Scene, turn: int) -> None:
    for number in range(40):
        _add(scene, f"few-{turn}-{number}", f"few-{turn}-{number}", 9)


def sizes_that_change(scene: Scene, turn: int) -> None:
    """Pods that claim another size each time."""
    for number in range(40):
        _add(scene, f"moody-{number}", "moody", 50 + turn + number)


def labels_that_move(scene: Scene, turn: int) -> None:
    """Pods, each of which joins another group each time."""
    for number in range(40):
        _add(scene, f"nomad-{number}", f"camp-{(number + turn) % 40}", 40)


def quotas_and_orders_that_change(scene: Scene, turn: int) -> None:
    """A policy of the tenant's own: 64 domains in another order each time, and quotas that no group of it is within."""
    domains = [Domain(f"d{at}", (f"z{at}" if at else "a",), (), (("pods", at % 3),)) for at in range(64)]
    order = tuple(domains[turn % 64 :] + domains[: turn % 64])
    limits: dict[str, Any] = {"domains": order, "max_per_domain": 1 + turn % 2, "strategy": Strategy.IN_ORDER}
    own = release_policy("own", NOISE, topology=("zone",), gate=OWN_GATE, size=GroupSize(3), **limits)
    scene.index.upsert(PolicyObject(own))
    for number in range(40):
        scene.api.add(gated_json(f"own-{number}", f"own-{number // 3}", namespace=NOISE, gates=(OWN_GATE,)))


def nothing(_scene: Scene, _turn: int) -> None:
    """No tenant."""


async def seconds_until_released(noise: Noise) -> float:
    """From the creation of the victims' groups until all of their pods are released."""
    scene, turns = Scene({"a": 100_000}), count()
    scene.budget = BUDGET
    async with scene.leading():
        for _ in range(12):  # the tenant has used more than the victims are going to
            noise(scene, next(turns))
            await scene.pass_time(0.02)
            scene.bind()
        for number in range(VICTIMS):
            scene.create(f"gang-{number}", *range(SIZE), namespace=SHOP)
        begun = scene.clock.time
        while len(scene.released("gang")) < VICTIMS * SIZE:
            assert scene.clock.time - begun < 10, "it never ends"
            noise(scene, next(turns))
            await scene.pass_time(0.01)
            room = scene.index.reserved.room_of(NOISE).get(PODS, 0), scene.index.reserved.groups_in(NOISE)
            assert room <= (200, 20)
            scene.bind()
        return scene.clock.time - begun


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


class Limited(Scene):
    """Pods of a namespace, of which it may have room reserved for so many at a time."""

    def __init__(self, pods: int, **release: object) -> None:
        super().__init__({"a": 100, "b": 100}, **release)
        self.budget = Release(pods_per_namespace=pods, unasked=Duration(60))

    @property
    def reserved(self) -> int:
        return self.index.reserved.room_of("default").get(PODS, 0)


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


def _is_own(body: dict[str, Any]) -> bool:
    return str(body["metadata"]["name"]).startswith("own")


async def test_quotas_that_contradict_each_other_hold_groups_with_a_reason_and_no_group_of_others() -> None:
    scene = Scene({"a": 100})
    for turn in range(5):
        quotas_and_orders_that_change(scene, turn)
    scene.create("mine", 1, 2, namespace=SHOP)
    async with scene.leading():
        await scene.pass_time(10)
        assert set(scene.released("mine")) == {"mine-1", "mine-2"}
        gates = [body["spec"]["schedulingGates"] for body in scene.api.pods.values() if _is_own(body)]
        assert gates == 40 * [[{"name": OWN_GATE}]]
        held = [memory.step for key, memory in scene.manager.memory.items() if key.namespace == NOISE]
        said = {step.reason for step in held if step is not None}
        assert said <= {WaitReason.QUOTA, WaitReason.BUDGET, WaitReason.INCOMPLETE}
        texts = [step.message for step in held if step is not None and step.reason is WaitReason.QUOTA]
        assert texts
        assert all("has a quota of" in text and len(text) < 1000 for text in texts)
