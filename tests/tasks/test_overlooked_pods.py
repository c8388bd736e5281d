"""Pods that kube-scheduler gave up on while no extender answered, or that an earlier leader has rejected, are requeued."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest

from extender.model.objects import Object, Pod
from extender.tasks.overlooked_pods import WAITS
from tests.builders import namespace, node, pod, term
from tests.contenders import contender, stage
from tests.fakes import running, settle, until
from tests.tasks.overlooked_scene import Scene, given_up

IN_TEAM = {**term("host", app="web"), "namespaceSelector": {"matchLabels": {"team": "a"}}}
ANNOTATED = "annotate asking placement.extender.dev/requeued"
INCOMING = contender("asking", priority=100, cpu=4000)
FULL: Sequence[Object] = (stage("n1"), contender("low", on="n1", cpu=4000))


async def test_a_pod_that_a_node_takes_now_is_requeued() -> None:
    async with Scene(stage("n1"), given_up(INCOMING)).looked() as s:
        assert s.effects() == [ANNOTATED]


async def test_a_pod_whose_preemption_was_lost_is_requeued_by_a_nomination_that_ends() -> None:
    """kube-scheduler does not try a pod again for its annotation that in-tree plugins have rejected."""
    async with Scene(*FULL, given_up(INCOMING)).looked() as s:
        assert s.effects() == ["nominate asking n1", "nominate asking -", ANNOTATED]


async def test_a_pod_whose_victims_only_our_rules_know_is_requeued_too() -> None:
    lonely = contender("asking", priority=100, apart=[term("host", app="web")])
    async with Scene(stage("n1"), contender("low", on="n1", app="web"), given_up(lonely)).looked() as s:
        assert s.effects()[-1] == ANNOTATED


@pytest.mark.parametrize(
    "incoming",
    [
        INCOMING,  # was not tried yet
        given_up(INCOMING, "SchedulerError: connection refused"),  # kube-scheduler repeats it by itself
        given_up(INCOMING, gated=True),
        given_up(INCOMING, nominated_node="n1", terminating=True),
        msgspec.structs.replace(INCOMING, nominated_node="n1"),
        given_up(INCOMING, terminating=True),
        given_up(contender("incoming", priority=0, cpu=4000)),  # no pod of lower priority is there
        given_up(contender("incoming", priority=100, cpu=4000, never_preempts=True)),
        given_up(contender("incoming", priority=100, cpu=9000)),
    ],
)
async def test_no_other_pod_is_written_to(incoming: Pod) -> None:
    async with Scene(*FULL, incoming).looked() as s:
        assert s.effects() == []


@pytest.mark.parametrize("why", ["a plan runs for it", "it has passed since"])
async def test_a_pod_that_is_on_its_way_is_left_alone(why: str) -> None:
    s = Scene(*FULL, given_up(INCOMING))
    if why == "a plan runs for it":
        s.index.nominate_in_memory(INCOMING, "n1", ["uid-low"])
    else:
        s.index.assume(INCOMING, ("n1",), 0.0)
    async with s.looked():
        assert s.effects() == []


@pytest.mark.parametrize(
    ("low", "effects"),
    [
        (contender("low", on="n1", cpu=4000), [ANNOTATED]),
        (contender("low", on="n1", preempted=True, terminating=True), []),
    ],
    ids=["nothing terminates", "a victim terminates"],
)
async def test_a_nomination_that_a_scheduler_without_hints_has_not_followed_is_reported_again(
    low: Pod, effects: list[str]
) -> None:
    """An earlier leader was to requeue the pod. The nomination stays."""
    async with Scene(stage("n1"), low, given_up(INCOMING, nominated_node="n1")).looked() as s:
        assert s.effects() == effects


@pytest.mark.parametrize("is_noted", [True, False])
async def test_a_pod_that_an_earlier_leader_has_rejected_is_requeued_after_the_change_that_helps_it(
    *, is_noted: bool
) -> None:
    web = pod("web", on="n1", namespace="shop", app="web")
    apart = given_up(pod("asking", apart=[IN_TEAM]))
    s = Scene(node("n1"), namespace("shop", team="a"), namespace("default"), web, apart)
    async with running(s.requeuer.run):
        if is_noted:
            async with s.looked():
                assert s.effects() == []
        s.index.upsert(namespace("shop", team="b"))
        await settle()
    assert s.effects() == ([ANNOTATED] if is_noted else [])


async def test_a_pod_that_no_rule_concerns_is_not_noted() -> None:
    async with Scene(stage("n1"), given_up(contender("asking", cpu=9000))).looked() as s:
        assert not s.index.rejected.held


async def test_equal_pods_that_nothing_helps_cost_one_search() -> None:
    pods = [given_up(contender(f"asking-{number}", priority=100, cpu=9000)) for number in range(500)]
    async with Scene(*FULL, *pods).looked() as s:
        assert len(s.searched) == 1


async def test_the_first_pod_of_a_namespace_does_not_wait_for_those_of_another() -> None:
    noise = [given_up(pod(f"noise-{number}", namespace="noise")) for number in range(300)]
    s = Scene(stage("n1"), *noise, given_up(pod("honest", namespace="shop")))
    async with s.looked():
        at = next(place for place, effect in enumerate(s.effects()) if "honest" in effect)
        assert at < 3


async def test_a_refused_preemption_leads_to_another_look() -> None:
    async with Scene(*FULL).looked(len(WAITS)) as s:
        await settle()
        s.index.upsert(given_up(INCOMING))
        await settle()
        assert s.effects() == []
        s.looks_left = 1
        s.overlooked.note_refused()
        await until(lambda: s.overlooked.looks > len(WAITS))
        assert s.effects()[-1] == ANNOTATED


async def test_a_pod_that_stays_pending_is_requeued_ever_more_rarely() -> None:
    """Any client of the port can have its calls of preempt refused."""
    s = Scene(stage("n1"), given_up(INCOMING))
    async with s.looked(len(WAITS)):
        s.looks_left = 1000
        for _ in range(60):
            s.overlooked.note_refused()
            before = s.overlooked.looks
            await until(lambda before=before: s.overlooked.looks >= before + len(WAITS))  # type: ignore[misc]  # bound early
        times = [float(effect.partition("=")[2]) for effect in s.writer.effects]
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert 5 <= waits[0] < 15
    assert all(60 <= each < 75 for each in waits[4:-1])


async def test_a_pod_that_a_look_has_passed_over_is_looked_at_when_its_time_has_come() -> None:
    s = Scene(stage("n1"), given_up(INCOMING))
    async with s.looked(len(WAITS)):
        s.looks_left = 1000
        assert len(s.writer.effects) == 2
        s.overlooked.note_refused()
        await until(lambda: len(s.writer.effects) > 2)


async def test_a_nomination_that_cannot_be_cleared_at_once_is_cleared_later() -> None:
    s = Scene(*FULL, given_up(INCOMING))
    s.writer.uncleared = 3
    async with s.looked():
        assert s.effects() == ["nominate asking n1", "nominate asking -", ANNOTATED]


async def test_a_node_is_found_among_many_where_nothing_helps_and_other_work_runs_in_between() -> None:
    """The only node with pods of lower priority is the last of 2,000."""
    nodes = [stage(f"n{number}") for number in range(2000)]
    equals = [contender(f"equal-{number}", on=f"n{number}", cpu=4000, priority=100) for number in range(1999)]
    s = Scene(*nodes, *equals, contender("low", on="n1999", cpu=4000), given_up(INCOMING))
    async with s.looked():
        assert s.effects()[0] == "nominate asking n1999"
    assert len(s.clock.slept) > 2000 / 25
