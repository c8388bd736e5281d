"""Pods that have our gate and that no policy releases any more: the gate goes after a grace, and nothing else does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from extender.kube.errors import KubeError, Unreachable
from extender.kube.timing import BackoffOptions
from extender.model.policies import PolicyObject
from extender.model.release import RELEASE_GATE
from extender.tasks.fair_queue import RateLimiter
from extender.tasks.release.orphans import OrphanReleaser
from extender.tasks.release.writes import PodReleaser
from tests.gangs import FOREIGN_GATE
from tests.tasks.release.scene import Scene, settle


@asynccontextmanager
async def releasing(scene: Scene) -> AsyncIterator[OrphanReleaser]:
    """The task, with a grace of 30 seconds."""
    clock, index = scene.clock, scene.index
    releaser = PodReleaser(scene.api, RateLimiter(clock, 8, 1000), clock, BackoffOptions(0.1, 1.0), Random(1))
    task = OrphanReleaser(
        index.gated.orphans,
        index.pods,
        index.gated.orphan_changes,
        releaser,
        scene.counts,
        clock,
        clock.utc_now,
        30.0,
    )
    job = asyncio.ensure_future(task.run())
    await settle()
    try:
        yield task
    finally:
        job.cancel()
        await asyncio.wait({job})


async def test_the_pods_of_a_deleted_policy_are_released_unpinned_after_the_grace() -> None:
    scene = Scene({"a": 4})
    scene.create("x", 1, 2, size=3)
    async with releasing(scene) as task:
        await scene.pass_time(60)
        assert scene.released() == {}, "a policy releases them"
        scene.index.delete(PolicyObject(scene.policy))
        await scene.pass_time(20)
        assert (scene.released(), task.states()) == ({}, {"waiting": 2, "released": 0})
        await scene.pass_time(15)
        assert scene.released() == {"x-1": "", "x-2": ""}
        assert task.states() == {"waiting": 0, "released": 2}


async def test_a_policy_that_comes_back_in_time_keeps_its_pods() -> None:
    scene = Scene({"a": 4})
    scene.create("x", 1, size=2)
    async with releasing(scene):
        scene.index.delete(PolicyObject(scene.policy))
        await scene.pass_time(20)
        scene.index.upsert(PolicyObject(scene.policy))
        await scene.pass_time(40)
        assert scene.released() == {}


async def test_pods_that_were_there_before_the_leader_are_found_and_foreign_gates_stay() -> None:
    scene = Scene({"a": 4})
    scene.index.delete(PolicyObject(scene.policy))
    scene.create("x", 1, gates=(RELEASE_GATE, FOREIGN_GATE))
    async with releasing(scene):
        await scene.pass_time(40)
    assert scene.api.pods["default/x-1"]["spec"]["schedulingGates"] == [{"name": FOREIGN_GATE}]


async def test_a_gate_that_cannot_be_removed_is_tried_again() -> None:
    scene = Scene({"a": 4})
    scene.index.delete(PolicyObject(scene.policy))
    scene.create("x", 1)
    away = [True]

    def fail(_call: str, _name: str) -> KubeError | None:
        return Unreachable("away") if away[0] else None

    scene.api.fail = fail
    async with releasing(scene):
        await scene.pass_time(40)
        assert scene.released() == {}
        away[0] = False
        await scene.pass_time(60)
        assert scene.released() == {"x-1": ""}
