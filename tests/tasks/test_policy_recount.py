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
from tests.verbs.policed import NODES, Asker


@asynccontextmanager
async def recounting(asker: Asker, clock: FakeClock) -> AsyncIterator[PolicyRecount]:
    index = asker.index
    task = PolicyRecount(index.counts, index.policies, index.view.namespace_changes, clock)
    job = asyncio.create_task(task.run())
    try:
        yield task
    finally:
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)


async def test_the_counts_follow_policies_and_namespaces_and_subscribers_are_told_afterwards() -> None:
    asker = Asker(preemption={"mode": "off"})
    asker.index.upsert(db())
    told: list[list[str]] = []
    asker.index.policies.recounted.subscribe(lambda _change: told.append(asker.passed(web())))
    async with recounting(asker, FakeClock()) as task:
        asker.put(repelling(namespaceSelector={"matchLabels": {"team": "a"}}))
        asker.index.upsert(Namespace("default", {"team": "a"}))
        await until(lambda: told)
        assert task.recounted == 1
        asker.index.delete(PolicyObject(repelling()))
        await until(lambda: len(told) > 1)
    assert told == [["nb", "nc"], list(NODES)]


async def test_policies_about_nodes_alone_recount_nothing() -> None:
    asker = Asker()
    asker.index.upsert(db())
    clock = FakeClock(step=SLICE_SECONDS)
    async with recounting(asker, clock):
        asker.put(policy("zonal", nodeSelector={"zone": "a"}))
        asker.index.upsert(Namespace("default", {"team": "a"}))
        for _ in range(10):
            await asyncio.sleep(0)
    assert clock.slept == []


async def test_a_long_recount_gives_way() -> None:
    asker = Asker()
    for number in range(20):
        asker.index.upsert(contender(f"p{number}", on="na", app="db", version=str(number)))
    clock = FakeClock(step=SLICE_SECONDS / 4)
    async with recounting(asker, clock) as task:
        asker.put(repelling())
        await until(lambda: task.recounted == 20)
    assert len(clock.slept) >= 4
    assert set(clock.slept) == {PAUSE_SECONDS}
    assert asker.passed(contender_json("asking", app="web")) == ["nb", "nc"]


async def test_an_index_to_which_the_noted_changes_are_applied_counts_alike() -> None:
    asker, again, noted = Asker(preemption={"mode": "off"}), Asker(preemption={"mode": "off"}), list[Change]()
    asker.index.journal.note = noted.append
    asker.index.upsert(db())
    async with recounting(asker, FakeClock()) as task:
        asker.put(repelling())
        await until(lambda: task.recounted == 1)
    assert sum(isinstance(each, PolicyRecheck) for each in noted) == 1
    for change in noted:
        apply_change(again.index, change)
    assert again.passed(web()) == asker.passed(web()) == ["nb", "nc"]


async def test_gated_pods_are_filed_again_in_slices() -> None:
    asker, clock = Asker(), FakeClock(step=2 * SLICE_SECONDS)
    for number in range(500):
        asker.index.upsert(gated(f"p{number}", "x"))
    async with running(GroupUpkeep(asker.index.gated, clock).run):
        await asyncio.sleep(0)
        asker.put(release_policy())
        assert len(asker.index.gated) == 0
        await until(lambda: len(asker.index.gated) and not asker.index.gated.orphans)
    assert clock.slept.count(PAUSE_SECONDS) >= 4
