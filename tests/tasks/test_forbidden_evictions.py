"""Preemption by the Eviction API: what disruption budgets forbid is left alone until they change, and what is counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from extender.kube.errors import OverBudget, Rejected
from extender.model.objects import Pod
from tests.builders import asking, term
from tests.contenders import budget, contender, contender_json, stage
from tests.tasks.preemption_scene import Scene, plan

ASKING = contender("asking", priority=100)
VICTIMS = tuple(contender(f"victim-{number}", on="n1", app="web") for number in range(2))
EVICT: dict[str, Any] = {"preemption": {"eviction": "evict"}}
REFUSED = OverBudget("429 Cannot evict pod", status=429, retry_after=10.0)


def scene(*allowed: int, pods: Sequence[Pod] = (ASKING, *VICTIMS), **sections: Any) -> Scene:
    """Two web pods on a node, and a budget for them that allows so many disruptions; no budget without a number."""
    budgets = [budget(f"keep-{number}", each, app="web") for number, each in enumerate(allowed)]
    return Scene(stage("n1"), *pods, *budgets, **sections)


async def test_a_preemption_that_budgets_forbid_writes_nothing_until_they_allow_it() -> None:
    async with scene(1, **EVICT).running() as s:
        assert not s.preempting.submit(plan(ASKING, "n1", *VICTIMS))
        for _ in range(5):
            await s.pass_time(30.0)
            assert not s.preempting.submit(plan(ASKING, "n1", *VICTIMS))
        assert (s.api.effects, s.phases()) == ([], {"to_requeue": 1})
        s.api.put(budget("keep-0", 2, app="web"))
        await s.pass_time(0.2)
        requeued = ["nominate asking n1", "nominate asking -", "annotate asking placement.extender.dev/requeued"]
        assert s.api.effects == requeued
        assert s.preempting.submit(plan(ASKING, "n1", *VICTIMS))
        await s.go()
    assert s.api.said("evict") == ["evict victim-1", "evict victim-0"]
    assert (s.counted.told["success"], s.counted.violations) == (1, 0)


async def test_a_pod_with_two_budgets_cannot_be_evicted_at_all() -> None:
    async with scene(9, 9, **EVICT).running() as s:
        assert not s.preempting.submit(plan(ASKING, "n1", *VICTIMS))


async def test_a_pod_that_is_bound_meanwhile_waits_for_no_budget() -> None:
    async with scene(0, **EVICT).running() as s:
        s.preempting.submit(plan(ASKING, "n1", *VICTIMS))
        s.api.put(contender("asking", priority=100, on="n9"))
        await s.pass_time(0.2)
    assert (s.api.effects, s.phases()) == ([], {})


async def test_a_refusal_that_the_watch_does_not_explain_is_tried_again_after_a_wait_that_doubles() -> None:
    async with scene(**EVICT).running() as s:
        tried = []
        for pause in (0.0, 0.9, 0.2, 1.0, 1.1):
            await s.pass_time(pause)
            s.api.fail("evict", "victim-0", REFUSED)
            tried.append(s.preempting.submit(plan(ASKING, "n1", VICTIMS[0])))
            await s.go()
    assert tried == [True, False, True, False, True]
    assert s.counted.told == {"began": 3, "forbidden": 3, "ended forbidden": 3}
    assert (s.api.said("condition"), len(s.api.said("annotate"))) == ([], 2)  # requeued after each wait, and not before
    assert s.shown("asking").nominated_node == ""


@pytest.mark.parametrize(("refused", "violations"), [(False, 2), (True, 1)])
async def test_a_violation_is_a_pod_that_was_deleted(*, refused: bool, violations: int) -> None:
    async with scene(0).running() as s:
        if refused:
            s.api.fail("delete", "victim-0", Rejected("403", status=403))
        s.preempting.submit(plan(ASKING, "n1", *VICTIMS))
        assert s.counted.violations == 0
        await s.go()
    assert s.counted.violations == violations


@pytest.mark.parametrize(("allowed", "is_begun"), [(0, False), (1, True)])
async def test_the_filter_tells_of_a_preemption_only_where_one_is_begun(allowed: int, *, is_begun: bool) -> None:
    """Else the scheduler tries one itself, on another node each time."""
    lonely: dict[str, Any] = {"name": "asking", "priority": 100, "apart": [term("host", app="web")]}
    async with scene(allowed, pods=(contender(**lonely), VICTIMS[0]), **EVICT).running() as s:
        answers = [s.filter(**lonely) for _ in range(2)]
        assert [bool(each.failed) for each in answers] == [is_begun, is_begun]
        await s.go()
        assert s.api.said("evict") == ["evict victim-0"] * is_begun
        if not is_begun:
            s.api.put(budget("keep-0", 1, app="web"))
            await s.pass_time(1.1)
            assert s.filter(**lonely).failed


async def test_a_preemption_that_the_scheduler_asks_for_waits_for_the_budget_as_well() -> None:
    large: dict[str, Any] = {"name": "asking", "priority": 100, "cpu": 4000}
    async with scene(
        0, pods=(contender(**large), contender("full", on="n1", cpu=4000, app="web")), **EVICT
    ).running() as s:
        s.preempt({"n1": ["full"]}, **large)
        await s.go()
        assert s.api.effects == []
        s.api.put(budget("keep-0", 1, app="web"))
        await s.pass_time(1.1)
        s.preempt({"n1": ["full"]}, **large)
        await s.go()
    assert s.api.said("evict") == ["evict full"]


def test_a_pod_that_is_rejected_again_costs_no_dry_run_before_the_budget_changes() -> None:
    lonely: dict[str, Any] = {"name": "asking", "priority": 100, "apart": [term("host", app="web")]}
    s = scene(0, pods=(contender(**lonely), VICTIMS[0]), **EVICT)
    args = asking(contender_json(**lonely), "n1")
    plans = [s.filter_verb.decide(args, 0).plan for _ in range(2)]
    s.api.put(budget("keep-0", 1, app="web"))
    plans.append(s.filter_verb.decide(args, 0).plan)
    assert [each is not None for each in plans] == [True, False, True]


@pytest.mark.parametrize("allowed", [(0,), (9, 9)], ids=["no disruption allowed", "two budgets"])
async def test_of_two_nodes_the_one_is_chosen_whose_pods_may_be_evicted(allowed: tuple[int, ...]) -> None:
    lonely: dict[str, Any] = {"name": "asking", "priority": 100, "apart": [term("host", tier="old")]}
    guarded = contender("guarded", on="n1", tier="old", app="web")
    free = contender("free", on="n2", tier="old", priority=50)
    async with scene(*allowed, pods=(contender(**lonely), guarded, free), **EVICT).running() as s:
        s.api.put(stage("n2"))
        s.filter(**lonely)
        await s.go()
        assert s.api.said("evict") == ["evict free"]
