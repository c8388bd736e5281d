"""After a change of policies the counts of existing pods follow, in slices, and pods that were rejected are tried again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from extender.index.state import apply_change
from extender.model.changes import Change, PolicyRecheck
from extender.model.objects import Namespace
from extender.model.policies import PolicyObject
from extender.tasks.index_upkeep import PAUSE_SECONDS, SLICE_SECONDS, GroupUpkeep, PolicyRecount
from tests.contenders import contender, contender_json
from tests.fakes import FakeClock, running, until
from tests.gangs import gated, release_policy
from tests.policies import policy
from tests.verbs.placed import db, repelling, web
from tests.verbs.policed import NODES, FilterScene


@asynccontextmanager
async def recounting(scene: FilterScene, clock: FakeClock) -> AsyncIterator[PolicyRecount]:
    index = scene.index
    task = PolicyRecount(index.counts, index.policies, index.view.namespace_changes, clock)
    job = asyncio.create_task(task.run())
    try:
        yield task
    finally:
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)


async def test_the_counts_follow_policies_and_namespaces_and_subscribers_are_reported_afterwards() -> None:
    scene = FilterScene(preemption={"mode": "off"})
    scene.index.upsert(db())
    reported: list[list[str]] = []
    scene.index.policies.recounted.subscribe(lambda _change: reported.append(scene.passed(web())))
    async with recounting(scene, FakeClock()) as task:
        scene.put(repelling(namespaceSelector={"matchLabels": {"team": "a"}}))
        scene.index.upsert(Namespace("default", {"team": "a"}))
        await until(lambda: reported)
        assert task.recounted == 1
        scene.index.delete(PolicyObject(repelling()))
        await until(lambda: len(reported) > 1)
    assert reported == [["nb", "nc"], list(NODES)]


async def test_policies_about_nodes_alone_recount_nothing() -> None:
    scene = FilterScene()
    scene.index.upsert(db())
    clock = FakeClock(step=SLICE_SECONDS)
    async with recounting(scene, clock):
        scene.put(policy("zonal", nodeSelector={"zone": "a"}))
        scene.index.upsert(Namespace("default", {"team": "a"}))
        for _ in range(10):
            await asyncio.sleep(0)
    assert clock.slept == []


async def test_a_long_recount_gives_way() -> None:
    scene = FilterScene()
    for number in range(20):
        scene.index.upsert(contender(f"p{number}", on="na", app="db", version=str(number)))
    clock = FakeClock(step=SLICE_SECONDS / 4)
    async with recounting(scene, clock) as task:
        scene.put(repelling())
        await until(lambda: task.recounted == 20)
    assert len(clock.slept) >= 4
    assert set(clock.slept) == {PAUSE_SECONDS}
    assert scene.passed(contender_json("asking", app="web")) == ["nb", "nc"]


async def test_an_index_to_which_the_noted_changes_are_applied_counts_alike() -> None:
    scene, again, noted = (
        FilterScene(preemption={"mode": "off"}),
        FilterScene(preemption={"mode": "off"}),
        list[Change](),
    )
    scene.index.journal.note = noted.append
    scene.index.upsert(db())
    async with recounting(scene, FakeClock()) as task:
        scene.put(repelling())
        await until(lambda: task.recounted == 1)
    assert sum(isinstance(each, PolicyRecheck) for each in noted) == 1
    for change in noted:
        apply_change(again.index, change)
    assert again.passed(web()) == scene.passed(web()) == ["nb", "nc"]


async def test_gated_pods_are_filed_again_in_slices() -> None:
    scene, clock = FilterScene(), FakeClock(step=2 * SLICE_SECONDS)
    for number in range(500):
        scene.index.upsert(gated(f"p{number}", "x"))
    async with running(GroupUpkeep(scene.index.gated, clock).run):
        await asyncio.sleep(0)
        scene.put(release_policy())
        assert len(scene.index.gated) == 0
        await until(lambda: len(scene.index.gated) and not scene.index.gated.orphans)
    assert clock.slept.count(PAUSE_SECONDS) >= 4
