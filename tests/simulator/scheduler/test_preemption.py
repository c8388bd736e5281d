"""The scheduling loop's own preemption: which pods have to go, and which answers of the extender count."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from extender.simulator.apiserver.kinds import PODS
from extender.simulator.json_objects import JsonObject, condition_of
from tests.simulator.fake_extender import Answer, Cluster, FakeExtender, accept_all, cluster
from tests.simulator.plain import node, pod

LOW = [pod(f"low-{number}", on="node-a", cpu="2", priority=number) for number in range(2)]
INCOMING = pod("incoming", cpu="2", priority=100)


def victims(*uids: str) -> JsonObject:
    return {"NodeNameToMetaVictims": {"node-a": {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0}}}


def echo(body: JsonObject) -> JsonObject:
    """All candidates as they came."""
    return {"NodeNameToMetaVictims": body["NodeNameToMetaVictims"]}


def contested(
    judge: Callable[[JsonObject], JsonObject] = echo, answer: Answer = accept_all, cpu: str = "4", **preemption: Any
) -> AbstractAsyncContextManager[Cluster]:
    """A node with two pods, a loop that preempts, and an extender with these answers of its preempt and filter verbs."""
    extender = FakeExtender(answer, scores=lambda body: judge(body) if "NodeNameToMetaVictims" in body else [])
    entry = {"preempt_verb": "preempt"}
    return cluster(node("node-a", cpu=cpu), *LOW, extender=extender, entry=entry, preemption=preemption)


@pytest.mark.parametrize("is_async", [True, False])
async def test_the_least_important_pod_goes_and_the_preemptor_gets_its_place(*, is_async: bool) -> None:
    async with contested(is_async=is_async) as there:
        there.create(INCOMING)
        await there.quiet()
        assert (there.pods, there.node_of("incoming")) == (["incoming", "low-1"], "node-a")
        assert (there.preemption.attempts, there.preemption.failures) == (1, [])


async def test_the_victim_is_marked_before_it_is_deleted() -> None:
    async with contested() as there:
        seen: list[str] = []
        table = there.api.store.table(PODS)
        stop = table.listen(lambda: seen.append(str(condition_of(table.changes[-1].stored.read(), "DisruptionTarget"))))
        there.create(INCOMING)
        await there.quiet()
        stop()
        assert any("PreemptionByScheduler" in text for text in seen)


async def test_no_pod_goes_for_one_of_the_same_priority_or_one_that_never_preempts() -> None:
    modest = pod("modest", cpu="2", priority=100, preemptionPolicy="Never")
    async with contested() as there:
        there.create(pod("peer", cpu="2", priority=0))
        there.create(modest)
        await there.quiet()
        assert (len(there.pods), there.preemption.attempts) == (4, 0)


@pytest.mark.parametrize(
    ("judged", "failures"),
    [({"NodeNameToMetaVictims": {}}, 0), (victims("made-up"), 1), (victims(), 1)],
    ids=["no candidate: the extender preempts by itself", "an unknown victim", "no victim"],
)
async def test_without_the_victims_of_a_candidate_no_pod_is_deleted(judged: JsonObject, failures: int) -> None:
    async with contested(judge=lambda _: judged) as there:
        there.create(INCOMING)
        await there.quiet()
        assert (len(there.pods), there.preemption.attempts, len(there.preemption.failures)) == (3, 1, failures)
        assert "nominatedNodeName" not in there.pod("incoming")["status"]


@pytest.mark.parametrize(
    ("sends_empty_candidates", "named", "left", "fails"),
    [
        pytest.param(True, ["low-0"], ["incoming", "low-1"], False, id="from 135486 on, with a victim"),
        pytest.param(True, [], ["incoming", "low-0", "low-1"], False, id="from 135486 on, without one"),
        pytest.param(False, ["low-0"], ["incoming", "low-0", "low-1"], True, id="before"),
    ],
)
async def test_a_node_that_only_the_extender_rejects_is_a_candidate_without_victims(
    named: list[str], left: list[str], *, sends_empty_candidates: bool, fails: bool
) -> None:
    """The extender rejects node-a for as long as low-0 is there."""
    running: list[Cluster] = []

    def answer(request: JsonObject) -> JsonObject:
        if running and "low-0" in running[0].pods:
            return {"NodeNames": [], "FailedNodes": dict.fromkeys(request["NodeNames"], "low-0 is there")}
        return accept_all(request)

    def judge(request: JsonObject) -> JsonObject:
        assert request["NodeNameToMetaVictims"] == victims()["NodeNameToMetaVictims"]
        return victims(*(running[0].pod(name)["metadata"]["uid"] for name in named))

    async with contested(judge, answer, "8", sends_empty_candidates=sends_empty_candidates) as there:
        running.append(there)
        there.create(INCOMING)
        await there.quiet()
        assert (there.pods, bool(there.preemption.failures)) == (left, fails)
        assert there.node_of("incoming") == ("node-a" if "low-0" not in left else "")
