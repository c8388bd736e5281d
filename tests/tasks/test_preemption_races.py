"""The four races of KEP-4832: pod2 comes along while pod1's preemption on node n1 is being carried out.

Once by room (the scheduler knows of it, and asks preempt), once by a constraint that only we know (filter).
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.kube.errors import OverBudget, Rejected
from extender.model.objects import Object
from tests.builders import extender_args, term
from tests.contenders import budget, contender, contender_json, stage
from tests.tasks.preemption_scene import Scene, plan
from tests.tasks.racing_preemptions import (
    IMPORTANT,
    INCOMING,
    POD1,
    VICTIMS,
    finished,
    pod2,
    preempted,
    scene,
    scene_with_pod1_preempting,
)


@pytest.mark.parametrize("priority", [100, 50])
async def test_pod2_of_equal_or_lower_priority_does_not_take_the_place_that_is_being_made(priority: int) -> None:
    s = await scene_with_pod1_preempting(stage("n2"), contender("w2", on="n2", app="web", priority=500))
    await finished(s)
    assert list(s.filter("n1", **pod2(priority)).passed) == []
    assert list(s.filter("n1", **POD1).passed) == ["n1"]


async def test_pod2_of_higher_priority_may_take_it_and_pod1_begins_anew() -> None:
    s = await scene_with_pod1_preempting()
    await finished(s)
    assert list(s.filter(**pod2(200)).passed) == ["n1"]
    s.api.put(contender(**pod2(200), on="n1"))
    s.api.put(stage("n2"))
    s.api.put(contender("low2", on="n2", app="web"))
    s.filter(**POD1)
    await finished(s)
    assert (s.shown("pod1").nominated_node, s.api.names()) == ("n2", ["pod1", "pod2"])


async def test_pod2_of_equal_priority_finds_no_second_place_on_a_node_that_has_only_one() -> None:
    s = await scene_with_pod1_preempting()
    s.api.put(contender(**pod2(100)))
    s.filter(**pod2(100))
    assert s.phases() == {"executing": 1}
    await finished(s)
    assert s.shown("pod2").nominated_node == ""


@pytest.mark.parametrize(("priority", "victims"), [(100, ["a", "b"]), (50, ["a", "b"]), (200, ["a"])])
async def test_pod2_preempting_on_the_same_node_makes_room_for_both_unless_it_is_more_important(
    priority: int, victims: list[str]
) -> None:
    pods: list[Object] = [contender(name, on="n1", cpu=2000, minute=minute) for name, minute in (("a", 1), ("b", 0))]
    first: dict[str, Any] = {"name": "pod1", "priority": 100, "cpu": 2000}
    second: dict[str, Any] = {"name": "pod2", "priority": priority, "cpu": 2000}
    s = Scene(stage("n1"), *pods, contender(**first), contender(**second))
    s.preempt({"n1": ["a"]}, **first)
    s.preempt({"n1": ["a"]}, **second)
    async with s.running():
        await s.go()
        await s.pass_time(0.2)
    assert sorted(each.name for each in s.api.pods.values() if each.terminating) == victims
    assert s.shown("pod2").nominated_node == "n1"


async def test_pod2_of_higher_priority_takes_the_same_victims_and_pod1_looks_elsewhere() -> None:
    s = await scene_with_pod1_preempting(contender(**pod2(200)))
    s.filter(**pod2(200))
    await finished(s)
    assert s.api.said("delete") == ["delete low"]
    assert (s.shown("pod1").nominated_node, s.shown("pod2").nominated_node) == ("", "n1")
    s.api.put(msgspec.structs.replace(s.shown("pod2"), node="n1"))
    assert set(s.filter(**POD1).unresolvable) == {"n1"}


async def test_a_second_request_for_pod1_starts_nothing_and_keeps_the_nomination() -> None:
    s = await scene_with_pod1_preempting()
    answers = [s.filter(**POD1) for _ in range(3)]
    s.preempt({"n1": ["low"]}, **POD1)
    assert [(set(answer.failed), set(answer.unresolvable)) for answer in answers] == [({"n1"}, set())] * 3
    await finished(s)
    assert s.counted.recorded["began"] == 1
    assert s.api.said("delete") == ["delete low"]


async def test_a_pod_that_was_offered_nothing_but_taken_nodes_gets_the_next_free_one() -> None:
    """The first prototype left such a pod stuck for good."""
    nodes: list[Object] = [stage(f"n{number}") for number in range(3)]
    low: list[Object] = [contender(f"low{number}", on=f"n{number}", cpu=4000) for number in range(3)]
    pods: list[dict[str, Any]] = [{"name": f"pod{number}", "priority": 100, "cpu": 4000} for number in range(3)]
    s = Scene(*nodes, *low, *(contender(**each) for each in pods), graceful=False)
    for each in pods:
        s.preempt({"n0": ["low0"]}, **each)
    await finished(s)
    assert sorted(s.shown(each["name"]).nominated_node for each in pods) == ["n0", "n1", "n2"]


# -- The preempt verb with its effect: the plan is submitted, or the pod requeued, before the answer is given ----------

FULL: tuple[Object, ...] = (stage("n1"), contender("a", on="n1", cpu=4000))
RIVAL = contender("rival", cpu=4000, priority=IMPORTANT, nominated="n1")


async def test_a_plan_is_submitted_and_no_candidate_left_to_the_scheduler() -> None:
    answered, plans = await preempted(*FULL, contender("incoming", priority=IMPORTANT, cpu=2000))
    assert (answered, plans.submitted, plans.requeued) == ([], [("n1", ["a"])], [])


async def test_a_pod_that_no_candidate_helps_is_requeued() -> None:
    """Its claim may be bound to any node: only the scheduler can try other ones."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    incoming = contender("incoming", priority=IMPORTANT, cpu=2000, volumes=volumes)
    answered, plans = await preempted(*FULL, stage("n2"), RIVAL, incoming)
    assert (answered, plans.submitted, plans.requeued) == ([], [], [("incoming", "n1")])


async def test_nothing_is_preempted_for_a_pod_that_the_watch_does_not_show_pending() -> None:
    """A request alone is no proof that the pod exists, and its priority is not believed."""
    missing = await preempted(*FULL)
    bound = await preempted(*FULL, contender("incoming", on="n1", priority=IMPORTANT))
    modest = await preempted(*FULL, contender("incoming", priority=-1, cpu=2000))
    assert [(answered, plans.submitted) for answered, plans in (missing, bound, modest)] == [([], [])] * 3
    assert [plans.unknown for _, plans in (missing, bound, modest)] == [1, 1, 0], "it may be pending by now"


# -- Preemption by the Eviction API: what disruption budgets forbid is left alone until they change, and what is
#    counted

EVICT: dict[str, Any] = {"preemption": {"eviction": "evict"}}
REFUSED = OverBudget("429 Cannot evict pod", status=429, retry_after=10.0)


async def test_a_preemption_that_budgets_forbid_writes_nothing_until_they_allow_it() -> None:
    async with scene(1, **EVICT).running() as s:
        assert not s.preempting.submit(plan(INCOMING, "n1", *VICTIMS))
        for _ in range(5):
            await s.pass_time(30.0)
            assert not s.preempting.submit(plan(INCOMING, "n1", *VICTIMS))
        assert (s.api.effects, s.phases()) == ([], {"to_requeue": 1})
        s.api.put(budget("keep-0", 2, app="web"))
        await s.pass_time(0.2)
        requeued = ["nominate asking n1", "nominate asking -", "annotate asking placement.extender.dev/requeued"]
        assert s.api.effects == requeued
        assert s.preempting.submit(plan(INCOMING, "n1", *VICTIMS))
        await s.go()
    assert s.api.said("evict") == ["evict victim-1", "evict victim-0"]
    assert (s.counted.recorded["success"], s.counted.violations) == (1, 0)


async def test_a_pod_with_two_budgets_cannot_be_evicted_at_all() -> None:
    async with scene(9, 9, **EVICT).running() as s:
        assert not s.preempting.submit(plan(INCOMING, "n1", *VICTIMS))


async def test_a_pod_that_is_bound_meanwhile_waits_for_no_budget() -> None:
    async with scene(0, **EVICT).running() as s:
        s.preempting.submit(plan(INCOMING, "n1", *VICTIMS))
        s.api.put(contender("asking", priority=100, on="n9"))
        await s.pass_time(0.2)
    assert (s.api.effects, s.phases()) == ([], {})


async def test_a_refusal_that_the_watch_does_not_explain_is_tried_again_after_a_wait_that_doubles() -> None:
    async with scene(**EVICT).running() as s:
        tried = []
        for pause in (0.0, 0.9, 0.2, 1.0, 1.1):
            await s.pass_time(pause)
            s.api.fail("evict", "victim-0", REFUSED)
            tried.append(s.preempting.submit(plan(INCOMING, "n1", VICTIMS[0])))
            await s.go()
    assert tried == [True, False, True, False, True]
    assert s.counted.recorded == {"began": 3, "forbidden": 3, "ended forbidden": 3}
    assert (s.api.said("condition"), len(s.api.said("annotate"))) == ([], 2)  # requeued after each wait, and not before
    assert s.shown("asking").nominated_node == ""


@pytest.mark.parametrize(("refused", "violations"), [(False, 2), (True, 1)])
async def test_a_violation_is_a_pod_that_was_deleted(*, refused: bool, violations: int) -> None:
    async with scene(0).running() as s:
        if refused:
            s.api.fail("delete", "victim-0", Rejected("422", status=422))
        s.preempting.submit(plan(INCOMING, "n1", *VICTIMS))
        assert s.counted.violations == 0
        await s.go()
    assert s.counted.violations == violations


@pytest.mark.parametrize(("allowed", "is_begun"), [(0, False), (1, True)])
async def test_the_filter_reports_a_preemption_only_where_one_is_begun(allowed: int, *, is_begun: bool) -> None:
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
    args = extender_args(contender_json(**lonely), "n1")
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
