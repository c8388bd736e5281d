"""Groups under any policy: what it may say of a group without room, of later pods and of domains, in a random order of events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from extender.kube.errors import Unreachable
from extender.model.objects import Pod
from extender.model.release import GroupKey, LaterPods, NoRoom, NoRoomAction
from extender.settings.policies import Release
from extender.verbs.release.states import Event, State, advance
from tests.fake_api import never
from tests.tasks.release.queued_groups import bind_some, failing, show_some
from tests.tasks.release.quota_scene import QuotaScene, domain
from tests.tasks.release.scene import POLICY

ROOMS = {"a": 5, "b": 3, "c": 2}
SIZES = {"p": 2, "q": 3, "r": 1}
PRIORITIES = {"p": 0, "q": 10, "r": 5}


def any_options(rng: Random) -> dict[str, Any]:
    """Fields of a policy that validation accepts together."""
    has_domains = rng.random() < 0.5
    domains = tuple(domain(zone, rng.choice([None, 5]), may_grow=zone != "c") for zone in ROOMS) if has_domains else ()
    possible = [NoRoom.PREEMPT, NoRoom.GROWING_DOMAIN if has_domains else NoRoom.SEVERAL_DOMAINS]
    rng.shuffle(possible)
    actions, after = list[NoRoomAction](), 0.0
    for action in possible[: rng.randrange(3)]:
        after += rng.choice([0.0, 0.0, 4.0])
        actions.append(NoRoomAction(action, after))
    last = NoRoom.WAIT if has_domains else rng.choice([NoRoom.WAIT, NoRoom.ANYWHERE, NoRoom.COARSER_DOMAIN])
    return {
        "domains": domains,
        "no_room": (*actions, NoRoomAction(last, rng.choice([8.0, 60.0, 100_000.0]))),
        "later_pods": rng.choice(list(LaterPods)),
        "exclusive": rng.random() < 0.3,
    }


class AnyPolicy(QuotaScene):
    """One that preempts removes no pod at once, and fails at times."""

    def __init__(self, rng: Random) -> None:
        super().__init__(dict(ROOMS), **any_options(rng))
        self.rng = rng
        pods = rng.choice([2, 200, 200])
        self.budget = Release(groups_per_namespace=50, pods_per_namespace=pods, share_per_namespace=1.0)

    async def remove(self, pod: Pod, victims: Sequence[Pod]) -> bool:
        await super().remove(pod, victims)
        return self.rng.random() < 0.7

    def pods_of(self, gang: str) -> list[str]:
        return [name for name in (body["metadata"]["name"] for body in self.api.pods.values()) if name[0] == gang]

    def delete_victims(self) -> None:
        for name in {name for names in self.removed for name in names}:
            if f"default/{name}" in self.api.pods:
                self.delete(name)


class Transitions(Counter[tuple[type[Event], type[State], type[State]]]):
    """The transitions that the release makes: by event, the state before and the state after."""

    def advance(self, state: State, event: Event) -> State:
        """In place of the function of this name."""
        after = advance(state, event)
        self[type(event), type(state), type(after)] += 1
        return after


def key_of(gang: str) -> GroupKey:
    return GroupKey("default", POLICY, gang)


def judge(scene: AnyPolicy) -> None:
    assert not scene.manager.failures
    for gang in SIZES:
        assert len(set(scene.released(gang).values())) <= 1, scene.released(gang)


def create(scene: AnyPolicy, rng: Random, gang: str) -> None:
    numbers = (rng.randrange(100, 10_000) for _ in range(rng.randrange(1, 4)))
    scene.create(gang, *numbers, size=SIZES[gang], priority=PRIORITIES[gang])


async def fill(scene: AnyPolicy) -> None:
    """Each domain is full of pods of the lowest priority."""
    for number in range(sum(ROOMS.values())):
        scene.create(f"f{number}", 0, size=1, priority=-1)
    async with scene.leading():
        for _ in range(3):
            await scene.pass_time(2)
            scene.bind()


async def disturb(scene: AnyPolicy, rng: Random) -> None:
    gang = rng.choice(list(SIZES))
    match rng.randrange(13):
        case 0:
            show_some(scene, rng)
        case 1 | 2:
            bind_some(scene, rng)
        case 3:
            create(scene, rng, gang)
        case 4 | 5:
            there = scene.pods_of(gang)
            for name in rng.sample(there, rng.choice([min(1, len(there)), len(there)])):
                scene.delete(name)
        case 6:
            zone = rng.choice(list(ROOMS))
            scene.add_node(zone, rng.choice([0, 1, ROOMS[zone], ROOMS[zone]]))
        case 7:
            scene.delete_victims()
        case 8:  # the scheduler asks about the pods of the group, so they keep their room until it expires
            scene.index.reserved.requests.pods.update(scene.index.reserved.pods_of(key_of(gang)))
        case 9:
            await scene.pass_time(rng.uniform(30.0, 400.0))
        case _:
            await scene.pass_time(rng.uniform(0.1, 6.0), shown=rng.random() < 0.5)
    judge(scene)


async def play(seed: int) -> None:
    """Events, failures and killed leaders; at last all works, and all pods are deleted."""
    rng = Random(seed)
    scene = AnyPolicy(rng)
    if rng.random() < 0.5:
        await fill(scene)
    for gang in SIZES:
        create(scene, rng, gang)
    scene.api.fail = lambda _call, _name: failing(rng, 0.1)
    scene.api.lose_answer = lambda _call, _name: Unreachable("lost") if rng.random() < 0.2 else None
    for _ in range(rng.randrange(1, 4)):
        async with scene.leading():
            for _ in range(rng.randrange(5, 25)):
                await disturb(scene, rng)
    scene.api.fail = scene.api.lose_answer = never
    async with scene.leading():
        await scene.pass_time(30)
        judge(scene)
        for gang in (*SIZES, "f"):
            for name in scene.pods_of(gang):
                scene.delete(name)
        await scene.pass_time(800)
        assert scene.api.placements == {}
        assert not scene.manager.memory
        assert scene.index.reserved.statistics() == {"reserved_slots": 0, "groups_with_slots": 0}
        judge(scene)
