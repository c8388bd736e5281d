"""The scheduling loop's own preemption: which pods have to go, what the extender may say, and what it may not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from extender.simulator.apiserver.kinds import NAMESPACES, PODS
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.json_objects import JsonObject, condition_of
from extender.simulator.scheduler.extender_client import ExtenderEntry
from extender.simulator.scheduler.loop import LoopSettings, SchedulingLoop
from extender.simulator.scheduler.preemption import PostFilter
from tests.simulator.fake_extender import Answer, Cluster, FakeExtender, accept_all
from tests.simulator.plain import namespace, node, pod

Judge = Callable[[JsonObject], JsonObject]
LOW = [pod(f"low-{number}", on="node-a", cpu="2", priority=number) for number in range(2)]
ASKING = pod("asking", cpu="2", priority=100)


def echo(body: JsonObject) -> JsonObject:
    """All candidates as they came."""
    return {"NodeNameToMetaVictims": body["NodeNameToMetaVictims"]}


def nothing(_: JsonObject) -> JsonObject:
    """No candidate: the extender preempts by itself."""
    return {"NodeNameToMetaVictims": {}}


@asynccontextmanager
async def contested(
    *objects: JsonObject,
    judge: Judge = echo,
    answer: Answer = accept_all,
    is_async: bool = True,
    sends_empty_candidates: bool = False,
) -> AsyncIterator[tuple[Cluster, PostFilter]]:
    """A cluster with a loop that preempts, and an extender whose preempt and filter verbs answer as told."""
    extender = FakeExtender(answer, scores=lambda body: judge(body) if "NodeNameToMetaVictims" in body else [])
    async with ApiServer() as api, extender.running():
        api.store.load(objects)
        api.operations.create(NAMESPACES, namespace("default"))
        entry = ExtenderEntry(url_prefix=extender.url, preempt_verb="preempt")
        preemption = PostFilter(
            api.store, api.url, entry, is_async=is_async, sends_empty_candidates=sends_empty_candidates
        )
        loop = SchedulingLoop(api.store, api.url, entry, LoopSettings(), after_filter=preemption)
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


async def test_no_pod_goes_for_one_of_the_same_priority_or_one_that_never_preempts() -> None:
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


class Grudge:
    """An extender that refuses node-a for as long as low-0 stands there, and names the victims that it is told to."""

    def __init__(self, *victims: str) -> None:
        self.victims = victims
        self.cluster: Cluster | None = None

    def answer(self, asked: JsonObject) -> JsonObject:
        if self.cluster is not None and "low-0" in names(self.cluster):
            return {"NodeNames": [], "FailedNodes": dict.fromkeys(asked["NodeNames"], "low-0 is there")}
        return accept_all(asked)

    def judge(self, asked: JsonObject) -> JsonObject:
        assert self.cluster is not None
        assert asked["NodeNameToMetaVictims"] == {"node-a": {"Pods": [], "NumPDBViolations": 0}}
        pods = [{"UID": self.cluster.pod(name)["metadata"]["uid"]} for name in self.victims]
        return {"NodeNameToMetaVictims": {"node-a": {"Pods": pods, "NumPDBViolations": 0}}}


@pytest.mark.parametrize(
    ("sends_empty_candidates", "victims", "left", "fails"),
    [
        pytest.param(True, ["low-0"], ["asking", "low-1"], False, id="from 135486 on, with a victim"),
        pytest.param(True, [], ["asking", "low-0", "low-1"], False, id="from 135486 on, without one"),
        pytest.param(False, ["low-0"], ["asking", "low-0", "low-1"], True, id="before"),
    ],
)
async def test_a_node_that_only_the_extender_rejects_is_a_candidate_without_victims(
    victims: list[str], left: list[str], *, sends_empty_candidates: bool, fails: bool
) -> None:
    grudge = Grudge(*victims)
    arguments = {"judge": grudge.judge, "answer": grudge.answer, "sends_empty_candidates": sends_empty_candidates}
    async with contested(node("node-a", cpu="8"), *LOW, **arguments) as (cluster, preemption):  # type: ignore[arg-type]  # as the test gives it
        grudge.cluster = cluster
        cluster.create(ASKING)
        await cluster.quiet()
        assert (names(cluster), bool(preemption.failures)) == (left, fails)
        assert cluster.node_of("asking") == ("node-a" if "low-0" not in left else "")
