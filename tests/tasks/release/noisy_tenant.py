"""A tenant with the worst groups, and the time until another tenant's group is released."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from extender.model.policies import PolicyObject
from extender.model.release import Domain, GroupKey, GroupSize, Strategy
from extender.model.resources import PODS
from extender.model.units import Duration
from extender.settings.policies import Release
from tests.gangs import gated_json, release_policy
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
            groups, room = scene.index.reserved.beside(GroupKey(NOISE, "", "none"))
            assert (room.get(PODS, 0), groups) <= (200, 20)
            scene.bind()
        return scene.clock.time - begun


class Limited(Scene):
    """Pods of a namespace, of which it may have room reserved for so many at a time."""

    def __init__(self, pods: int, **release: object) -> None:
        super().__init__({"a": 100, "b": 100}, **release)
        self.budget = Release(pods_per_namespace=pods, unasked=Duration(60))

    @property
    def reserved(self) -> int:
        return self.index.reserved.room_of("default").get(PODS, 0)


def is_own(body: dict[str, Any]) -> bool:
    return str(body["metadata"]["name"]).startswith("own")
