"""Groups that fail, wait and change while the workers of the queue release them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from extender.kube.errors import Conflict, KubeError, Rejected, Throttled, Unreachable
from extender.kube.timing import BackoffOptions
from extender.model.release import GroupKey
from extender.tasks.fair_queue import RateLimiter
from extender.tasks.release.orphans import OrphanReleaser
from extender.tasks.release.writes import PodReleaser
from tests.fakes import settle
from tests.tasks.release.scene import Scene


def key(namespace: str, value: str = "x") -> GroupKey:
    return GroupKey(namespace, "ClusterPodSchedulingPolicy/gangs", value)


@asynccontextmanager
async def releasing(scene: Scene) -> AsyncIterator[OrphanReleaser]:
    """The task, with a grace of 30 seconds."""
    clock, index = scene.clock, scene.index
    releaser = PodReleaser(scene.objects, RateLimiter(clock, 8, 1000), clock, BackoffOptions(0.1, 1.0), Random(1))
    task = OrphanReleaser(
        index.gated.orphans,
        index.pods,
        index.gated.orphan_changes,
        releaser,
        scene.counts,
        clock,
        scene.utc_now,
        30.0,
    )
    job = asyncio.ensure_future(task.run())
    await settle()
    try:
        yield task
    finally:
        job.cancel()
        await asyncio.wait({job})


ROOMS = {"a": 7, "b": 5, "c": 4}
SIZES = {"p": 2, "q": 4, "r": 4, "s": 5, "t": 3}


def failing(rng: Random, share: float) -> KubeError | None:
    """An error in so many of the cases."""
    if rng.random() >= share:
        return None
    errors: list[KubeError] = [
        *(Unreachable("no answer"), Throttled("429", status=429, retry_after=0.5), Conflict("409", status=409)),
        Rejected("403", status=403),
    ]
    return rng.choice(errors)


def judge(scene: Scene, most: int = 100) -> None:
    assert not scene.manager.failures
    zones: Counter[str] = Counter(filter(None, scene.released().values()))
    assert all(count <= min(ROOMS[zone], most) for zone, count in zones.items()), zones
    for gang, size in SIZES.items():
        released = scene.released(gang)
        assert len(set(released.values())) <= 1, released
        assert len(released) <= size, released


def show_some(scene: Scene, rng: Random) -> None:
    """The watch shows up to three pods."""
    names = [body["metadata"]["name"] for body in scene.api.pods.values()]
    scene.show(*rng.sample(names, min(3, len(names))))


def bind_some(scene: Scene, rng: Random) -> None:
    """Up to two released pods are bound."""
    scene.bind(*rng.sample(sorted(scene.released()), min(2, len(scene.released()))))


async def disturb(scene: Scene, rng: Random, most: int) -> None:
    match rng.randrange(6):
        case 0:
            show_some(scene, rng)
        case 1:
            bind_some(scene, rng)
        case 2 if bound := [
            name for name in scene.released() if scene.api.pods[f"default/{name}"]["spec"].get("nodeName")
        ]:
            deleted = rng.choice(bound)
            gang = deleted[0]
            scene.delete(deleted)
            scene.create(gang, rng.randrange(100, 10_000), size=SIZES[gang])
        case 3:
            scene.show_placements()
        case _:
            await scene.pass_time(rng.uniform(0.1, 3.0), shown=rng.random() < 0.3)
    judge(scene, most)
