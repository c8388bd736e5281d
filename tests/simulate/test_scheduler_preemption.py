"""The scheduling loop's own preemption: who has to go, what the extender may say, and what it may not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from extender.simulate.apiserver import ApiServer
from extender.simulate.extender_client import ExtenderStanza
from extender.simulate.json_objects import JsonObject, condition_of
from extender.simulate.kinds import NAMESPACES, PODS
from extender.simulate.scheduler import LoopSettings, SchedulingLoop
from extender.simulate.scheduler_preemption import Preemption
from tests.simulate.fake_extender import Cluster, FakeExtender
from tests.simulate.plain import namespace, node, pod

Judge = Callable[[JsonObject], JsonObject]
LOW = [pod(f"low-{number}", on="node-a", cpu="2", priority=number) for number in range(2)]
ASKING = pod("asking", cpu="2", priority=100)


def echo(body: JsonObject) -> JsonObject:
    """All candidates as they came."""
    return {"NodeNameToMetaVictims": body["NodeNameToMetaVictims"]}


def nothing(_: JsonObject) -> JsonObject:
    """No candidate: somebody else acts."""
    return {"NodeNameToMetaVictims": {}}


@asynccontextmanager
async def contested(
    *objects: JsonObject, judge: Judge = echo, is_async: bool = True
) -> AsyncIterator[tuple[Cluster, Preemption]]:
    """A cluster with a loop that preempts, and an extender whose preempt verb answers as told."""
    extender = FakeExtender(scores=lambda body: judge(body) if "NodeNameToMetaVictims" in body else [])
    async with ApiServer() as api, extender.running():
        api.store.load(objects)
        api.operations.create(NAMESPACES, namespace("default"))
        stanza = ExtenderStanza(url_prefix=extender.url, preempt_verb="preempt")
        preemption = Preemption(api.store, api.url, stanza, is_async=is_async)
        loop = SchedulingLoop(api.store, api.url, stanza, LoopSettings(), after_filter=preemption)
        preemption.attach(loop.cache)
        await loop.start()
        try:
            yield Cluster(api, loop), preemption
        finally:
            await loop.stop()
            await preemption.close()


def names(cluster: Cluster) -> list[str]:
    return [stored.key.rpartition("/")[2] for stored in cluster.api.store.table(PODS).latest()]


@pytest.mark.parametrize("is_async", [True, False])
async def test_the_least_important_pod_goes_and_the_preemptor_gets_its_place(*, is_async: bool) -> None:
    async with contested(node("node-a", cpu="4"), *LOW, is_async=is_async) as (cluster, preemption):
        cluster.create(ASKING)
        await cluster.quiet()
        assert (names(cluster), cluster.node_of("asking")) == (["asking", "low-1"], "node-a")
        assert (preemption.attempts, preemption.failures) == (1, [])


async def test_the_victim_is_marked_before_it_is_deleted() -> None:
    async with contested(node("node-a", cpu="4"), *LOW) as (cluster, _):
        seen: list[str] = []
        table = cluster.api.store.table(PODS)
        stop = table.listen(lambda: seen.append(str(condition_of(table.changes[-1].stored.read(), "DisruptionTarget"))))
        cluster.create(ASKING)
        await cluster.quiet()
        stop()
        assert any("PreemptionByScheduler" in text for text in seen)


async def test_nobody_goes_for_a_pod_of_the_same_priority_or_one_that_never_preempts() -> None:
    modest = pod("modest", cpu="2", priority=100, preemptionPolicy="Never")
    async with contested(node("node-a", cpu="4"), *LOW) as (cluster, preemption):
        cluster.create(pod("peer", cpu="2", priority=0))
        cluster.create(modest)
        await cluster.quiet()
        assert (len(names(cluster)), preemption.attempts) == (4, 0)


async def test_when_the_extender_leaves_no_candidate_nothing_is_done() -> None:
    async with contested(node("node-a", cpu="4"), *LOW, judge=nothing) as (cluster, preemption):
        cluster.create(ASKING)
        await cluster.quiet()
        assert (len(names(cluster)), preemption.attempts, preemption.failures) == (3, 1, [])
        assert "nominatedNodeName" not in cluster.pod("asking")["status"]


@pytest.mark.parametrize("uids", [["made-up"], []], ids=["an unknown victim", "no victim"])
async def test_an_answer_with_the_wrong_victims_fails_the_attempt(uids: list[str]) -> None:
    def wrong(_: JsonObject) -> JsonObject:
        return {"NodeNameToMetaVictims": {"node-a": {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0}}}

    async with contested(node("node-a", cpu="4"), *LOW, judge=wrong) as (cluster, preemption):
        cluster.create(ASKING)
        await cluster.quiet()
        assert len(names(cluster)) == 3
        assert len(preemption.failures) == 1
