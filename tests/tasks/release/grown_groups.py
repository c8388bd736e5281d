"""Groups that grow, shrink and are replaced, in a random order of events."""

from __future__ import annotations

from collections import Counter
from random import Random

from extender.kube.errors import Unreachable
from extender.model.release import NoRoom, NoRoomAction
from extender.tasks.release.groups import group_state
from extender.verbs.release.states import Emptied, Placed, decided_of
from tests.fake_api import never
from tests.gangs import actions
from tests.tasks.release.queued_groups import bind_some, failing, show_some
from tests.tasks.release.scene import Scene


async def grown(scene: Scene, *, size: int, to: int) -> None:
    """A gang of so many pods is bound, and then there are more of them, as if a StatefulSet is scaled."""
    scene.create("x", *range(size))
    await scene.pass_time(1)
    scene.bind()
    await scene.pass_time(1)
    scene.create("x", *range(size, to), size=size)
    await scene.pass_time(3)


ROOMS = {"a": 9, "b": 7, "c": 6}
SIZES = {"p": 2, "q": 4, "r": 3}


def judge(scene: Scene, *, exclusive: bool = False) -> None:
    """``exclusive``: no zone has pods of two gangs."""
    assert not scene.manager.failures
    zones: Counter[str] = Counter(filter(None, scene.released().values()))
    assert all(count <= ROOMS[zone] for zone, count in zones.items()), zones
    for gang in SIZES:
        assert len(set(scene.released(gang).values())) <= 1, scene.released(gang)
    if exclusive:
        used = Counter(zone for gang in SIZES for zone in set(scene.released(gang).values()))
        assert all(gangs == 1 for gangs in used.values()), scene.released()


def alive(scene: Scene, gang: str) -> list[str]:
    return [name for name in (body["metadata"]["name"] for body in scene.api.pods.values()) if name[0] == gang]


async def disturb(scene: Scene, rng: Random, cases: Counter[str], *, exclusive: bool) -> None:
    gang = rng.choice(list(SIZES))
    match rng.randrange(6):
        case 0:
            show_some(scene, rng)
        case 1:
            bind_some(scene, rng)
        case 2:
            scene.create(gang, *(rng.randrange(100, 10_000) for _ in range(rng.randrange(1, 4))), size=SIZES[gang])
        case 3 if there := alive(scene, gang):
            scene.delete(rng.choice(there))
        case _:
            await scene.pass_time(rng.uniform(0.1, 3.0), shown=rng.random() < 0.3)
    judge(scene, exclusive=exclusive)
    cases["beyond its size"] += any(len(scene.released(gang)) > size for gang, size in SIZES.items())


async def play(seed: int, cases: Counter[str], *, lost: float = 0.1, exclusive: bool = False) -> None:
    """``lost``: the share of writes whose answer is lost. ``exclusive``: each gang is to have a zone of its own."""
    rng = Random(seed)
    scene = Scene(dict(ROOMS), no_room=actions(NoRoomAction(NoRoom.WAIT, 100_000.0)), exclusive=exclusive)
    for gang, size in SIZES.items():
        scene.create(gang, *range(size), size=size)
    scene.api.fail = lambda _call, _name: failing(rng, 0.2)
    scene.api.lose_answer = lambda _call, _name: Unreachable("lost") if rng.random() < lost else None
    for _ in range(rng.randrange(1, 5)):
        async with scene.leading():
            for _ in range(rng.randrange(1, 14)):
                await disturb(scene, rng, cases, exclusive=exclusive)
    scene.api.fail = never
    scene.api.lose_answer = never
    scene.show()
    async with scene.leading():
        for _ in range(12):
            await scene.pass_time(30)
            scene.bind()
            judge(scene, exclusive=exclusive)
        used = Counter(scene.released().values())
        for gang, size in SIZES.items():
            there, released = alive(scene, gang), scene.released(gang)
            if not released:
                assert len(there) < size or all(ROOMS[zone] - used[zone] < size for zone in ROOMS), gang
            elif len(released) < len(there):
                cases["waits for room"] += 1
                (zone,) = set(released.values())
                missing = max(size - len(released), 1)  # pods that are due go first, and together
                assert ROOMS[zone] - used[zone] < missing, (gang, zone, used)
        for gang in SIZES:
            for name in alive(scene, gang):
                scene.delete(name)
        await scene.pass_time(800)  # their decision stays for a while
        assert scene.api.placements == {}
        assert scene.index.reserved.statistics() == {"reserved_slots": 0, "groups_with_slots": 0}
        assert not scene.manager.memory
        assert len(scene.index.gated) == 0
    assert scene.api.rejected == []


async def restart(seed: int, cases: Counter[str]) -> None:
    """A leader is killed, and no write of the next one succeeds: it knows each written decision, and which groups are placed."""
    rng = Random(seed)
    scene = Scene(dict(ROOMS), no_room=actions(NoRoomAction(NoRoom.WAIT, 100_000.0)))
    for gang, size in SIZES.items():
        scene.create(gang, *range(size), size=size)
    async with scene.leading() as manager:
        for _ in range(rng.randrange(4, 14)):
            await disturb(scene, rng, cases, exclusive=False)
        if rng.random() < 0.3:
            for name in alive(scene, "p"):
                scene.delete(name)
        scene.show()
        await scene.pass_time(1)
        before = {key: memory.state for key, memory in manager.memory.items()}
    scene.api.fail = lambda _call, _name: Unreachable("away")
    async with scene.leading() as manager:
        await scene.pass_time(0.5)
        for key, state in before.items():
            cases[type(state).__name__] += 1
            earlier, now = decided_of(state), decided_of(manager.memory[key].state)
            assert (earlier and earlier.decision) == (now and now.decision), (key, state)
            assert isinstance(state, Emptied) == isinstance(manager.memory[key].state, Emptied), (key, state)
            pods = group_state(key, scene.index)
            is_whole = pods is not None and now is not None and len(pods.released + pods.bound) >= now.decision.size
            assert not is_whole or isinstance(now, Placed), (key, state)
