"""Forged requests by the thousand, for every combination of pod, node, victims and priority, and what the documents say of them.

Each sentence of config/reference/http.md, Forged requests, is the claim of a test here: `says` names it.
"""

from __future__ import annotations

import asyncio
from itertools import combinations, product
from pathlib import Path
from typing import Final

import pytest

from extender.index.audit import audit
from extender.simulator.apiserver.kinds import PODS
from tests.cli.forged_requests import (
    APART,
    CLAIMS,
    FULL,
    HIGHEST,
    PRIORITY,
    ROOMY,
    askers,
    low,
    running,
    says,
    with_lies,
)
from tests.fakes import until
from tests.simulator.plain import node

DOCUMENT: Final = Path(__file__).parents[2] / "config" / "reference" / "http.md"
NAMES: Final = ("full", "vital", "free", "no-such-node")


@says(
    "A request about a pod that the watch does not show pending and without scheduling gates changes nothing.",
    "A `preempt` request deletes nothing for a pod that fits on a node as it is, as far as the extender knows.",
    "A `bind` request binds a pod only to a node that `filter` has let pass; with a forged `filter` before it, to any node "
    "that passes the extender's rules.",
)
async def test_no_combination_deletes_a_pod_or_binds_or_assumes_one_that_is_not_pending() -> None:
    async with running(*ROOMY) as cluster:
        requested = await askers(cluster)
        before = set(cluster.shown())
        for each, name in product(with_lies(requested), NAMES):
            assert await cluster.bind(each, name) != ""
        victims = [cluster.uid(name) for name in ("low-0", "low-1", "low-2", "low-3", "critical", "high", "lonely")]
        some = [victims[:count] for count in range(len(victims) + 1)]
        alone = [[each] for each in (*victims, "made-up")]
        for each, name, offered in product(with_lies(requested), NAMES, [*some, *alone, [*victims, "made-up"]]):
            answered = await cluster.preempt(each, {name: offered})
            assert answered in ({}, {name: offered})
        assert (cluster.preemptions(), cluster.assumed()) == ({}, {})
        for each, names in product(with_lies(requested), [NAMES, *([name] for name in NAMES), []]):
            await cluster.post("filter", Pod=each, NodeNames=names)
            await cluster.post("prioritize", Pod=each, NodeNames=names)
        assert cluster.preemptions() == {}
        assert cluster.service.index.view.nominated == {}
        assumed = cluster.assumed()
        assert set(assumed) == {"high", "equal", "lonely", "modest"}
        assert assumed["lonely"] == ("free",), "the others have no constraints: kube-scheduler checks their room"
        assert set(cluster.shown()) == before
        assert audit(cluster.service.index) == []
        for each, name in product(requested, NAMES):
            is_bound = await cluster.bind(each, name) == ""
            assert not is_bound or name in assumed[each["metadata"]["name"]]
        placed = {name: each["spec"].get("nodeName") for name, each in cluster.shown().items() if name in assumed}
        assert all(where in assumed[name] for name, where in placed.items())


async def test_a_forged_priority_or_preemption_policy_removes_no_pod_and_that_of_the_watch_does() -> None:
    async with running(node("a"), low("vital", "a", labels={"app": "web"}, priority=PRIORITY)) as cluster:
        requested = [
            await cluster.create("tenant", priority=0, **APART),
            await cluster.create("modest", priority=HIGHEST, preemptionPolicy="Never", **APART),
        ]
        for each in with_lies(requested):
            assert (await cluster.post("filter", Pod=each, NodeNames=["a"]))["NodeNames"] == []
            assert await cluster.preempt(each, {"a": [cluster.uid("vital")]}) == {}
            assert (cluster.preemptions(), cluster.service.index.view.nominated) == ({}, {})
        critical = await cluster.create("critical", priority=PRIORITY + 1, **APART)
        await cluster.post("filter", Pod=critical, NodeNames=["a"])
        await until(lambda: set(cluster.shown()) == {"tenant", "modest", "critical"})


OTHERS: Final = ("b0", "waits", "made-up")


@says(
    "A pod is deleted only if it is bound and its priority is lower than the pending pod's.",
    "The victims of a `preempt` request are computed, for one of its nodes, or for another node if none of its nodes helps. "
    "Each victim is needed.",
    "A `preempt` request with a victim that is not needed deletes nothing on that node: the candidate is answered unchanged.",
)
async def test_of_all_sets_of_victims_only_those_that_are_needed_begin_a_preemption() -> None:
    """Two of four cores are needed: the two least important pods, whichever other ones a request names."""
    async with running(*FULL) as cluster:
        urgent = await cluster.create("urgent", priority=PRIORITY, cpu="2")
        await cluster.create("waits", priority=1, cpu="4")
        uids = {name: cluster.uid(name) for name in ("a0", "a1", "a2", "a3", "b0", "waits")} | {"made-up": "made-up"}
        sets = [chosen for size in range(1, 5) for chosen in combinations(["a0", "a1", "a2", "a3"], size)]
        needed = ({"a0"}, {"a1"}, {"a0", "a1"})
        for chosen, more in product(sets, ((), *((name,) for name in OTHERS))):
            offered = [uids[name] for name in (*chosen, *more)]
            if set(chosen) in needed and not more:
                continue
            answered = await cluster.preempt(urgent, {"a": offered})
            assert answered == {"a": offered}
        for name in ("waits", "made-up"):
            assert await cluster.preempt(urgent, {"b": [uids[name]]}) == {"b": [uids[name]]}
        assert cluster.preemptions() == {}
        assert await cluster.preempt(urgent, {"b": [uids["b0"]]}) == {}, "as important as the pod itself"
        assert cluster.preemptions() == {"urgent": ["a0", "a1"]}
        await until(lambda: set(cluster.shown()) == {"urgent", "waits", "a2", "a3", "b0"})


@says(
    "A `filter` request deletes only victims that are computed, on one of its nodes, and none if the search outside of them "
    "finds a node."
)
async def test_a_filter_request_preempts_on_its_nodes_only_where_no_other_node_takes_the_pod() -> None:
    there = [low(f"web-{name}", name, labels={"app": "web"}) for name in ("a", "b")]
    async with running(node("a"), node("b"), node("free"), *there, low("idle", "a")) as cluster:
        lonely = await cluster.create("lonely", priority=PRIORITY, **APART)
        for names in (["a"], ["b"], ["a", "b"], ["a"] * 9, ["a", "no-such-node", "neither"]):
            assert (await cluster.post("filter", Pod=lonely, NodeNames=names))["NodeNames"] == []
        assert cluster.preemptions() == {}
        cluster.api.store.put(PODS, low("web-free", "free", labels={"app": "web"}, priority=HIGHEST))
        await until(lambda: len(cluster.service.index.pods) == 5)
        await cluster.post("filter", Pod=lonely, NodeNames=["a"])
        await until(lambda: set(cluster.shown()) == {"lonely", "web-b", "web-free", "idle"})


@says(
    "A `filter` request can have a pending pod assumed on a node that passes; it counts there until the pod is bound, at most "
    "`assumedPods.expiry`.",
    "A `filter` request takes no assumed pod away from a node that still passes; the pod may count on both.",
)
async def test_a_pod_that_is_on_its_way_stays_assumed_where_it_goes() -> None:
    async with running(*(node(name) for name in ("a", "b", "c"))) as cluster:
        moving = await cluster.create("moving", **APART)
        (way,) = (await cluster.post("filter", Pod=moving, NodeNames=["a", "b", "c"]))["NodeNames"]
        others = [name for name in ("a", "b", "c") if name != way]
        for names in (others, others[:1], [], ["no-such-node"], [way], ["a", "b", "c"]):
            await cluster.post("filter", Pod=moving, NodeNames=names)
            assert way in cluster.assumed()["moving"]
        second = await cluster.create("second", **APART)
        answer = await cluster.post("filter", Pod=second, NodeNames=["a", "b", "c"])
        assert way not in answer["NodeNames"]
        assert audit(cluster.service.index) == []


@says(
    "A request that a page of another site sends is refused: by its Host, Origin, Sec-Fetch-Site or content type ([hosts](#hosts))."
)
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example.org"},
        {"Origin": "https://evil.example.org"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Content-Type": "text/plain"},
    ],
    ids=lambda headers: next(iter(headers)),
)
async def test_two_hundred_pods_are_not_deleted_for_a_page_of_another_site(headers: dict[str, str]) -> None:
    crowd = [low(f"low-{number}", "a", cpu="100m") for number in range(200)]
    async with running(node("a", cpu="20"), *crowd) as cluster:
        one = await cluster.create("one", priority=1, cpu="100m")
        uids = [each["metadata"]["uid"] for name, each in cluster.shown().items() if name != "one"]
        body = {"Pod": one, "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": uid} for uid in uids]}}}
        with pytest.raises(AssertionError, match=r"another site|server\.hosts|application/json"):
            await cluster.post("preempt", headers, **body)
        assert cluster.preemptions() == {}
        assert await cluster.preempt(one, {"a": uids}) == {"a": uids}, "it goes back to a scheduler that asks so"
        await asyncio.sleep(0)
        assert (cluster.preemptions(), len(cluster.shown())) == ({}, 201)


def test_each_sentence_of_the_document_is_the_claim_of_a_test_here() -> None:
    _, _, section = DOCUMENT.read_text().partition("### Forged requests\n")
    section, _, _ = section.partition("\n## ")
    lines = [line.removeprefix("- ") for line in section.splitlines() if line.startswith("- ")]
    assert set(lines) == CLAIMS
