"""One tenant with the worst groups that a namespace can have: groups of others are released as if it were not there.

Time is that of the clock, which only the limits on writes move: a figure is exact, on any machine.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from extender.model.release import GroupKey, ReleaseSpec, Slot
from extender.model.resources import PODS
from extender.settings.policies import Release
from extender.tasks.release.groups import budget_excess
from extender.verbs.release.progress import GroupState
from tests.contenders import cluster, stage
from tests.gangs import gated, gated_json
from tests.tasks.release.scene import Scene

SHOP, NOISE = "shop", "noise"
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


@pytest.mark.parametrize("noise", [groups_of_one, groups_that_never_fill, sizes_that_change, labels_that_move])
async def test_groups_of_others_are_released_in_almost_the_time_that_they_take_alone(noise: Noise) -> None:
    alone = await seconds_until_released(nothing)
    beside = await seconds_until_released(noise)
    assert beside <= 1.2 * alone


def test_a_namespace_with_room_has_no_more_than_its_share_of_what_nodes_offer() -> None:
    """Of 8 CPUs half: one group may have all of them, as it would never run otherwise, and then no other has any."""
    first, second, large = (gated(name, "g", cpu=cpu) for name, cpu in (("a", 3000), ("b", 1000), ("c", 8000)))
    index = cluster(stage("n1"), stage("n2"), first, second, large)
    limits = Release(share_per_namespace=0.5)
    held = GroupKey("default", "policy", "held")
    states = [
        GroupState(GroupKey("default", "policy", pod.name), ReleaseSpec(("zone",)), 1, (pod,))
        for pod in (second, large)
    ]
    seen = [[budget_excess(state, index.reserved, index.view.offered, limits) for state in states]]
    index.reserved.reserve(held, [Slot(first.uid, "n1")], until=1.0)
    seen.append([budget_excess(state, index.reserved, index.view.offered, limits) for state in states])
    text = "release.sharePerNamespace: the namespace would have more than 50% of cpu reserved"
    assert seen == [["", ""], ["", text]]
    index.delete(stage("n2"))
    assert [budget_excess(state, index.reserved, index.view.offered, limits) for state in states] == [text, text]
