"""What an answer does before the watch shows it: it counts, others wait for it or take the worst case, and it ends."""

from __future__ import annotations

import asyncio
from collections import deque

import orjson
import pytest
from msgspec.structs import replace

from extender.index.audit import audit
from extender.index.claims.assumed import AssumptionTimeouts
from extender.model.objects import ON_ITS_WAY
from extender.tasks.filter_service import ScheduledPods, SchedulerCounts
from extender.wire.extender_v1 import FilterResult, decode_args
from extender.wire.objects.kinds import NODES
from tests.builders import read_pod
from tests.fakes import until
from tests.tasks.filter_scene import APART, HOST, NODE_NAMES, NOW, ON_EACH, JsonObject, Played, decoded, pending_pod

ON_ITS_WAY_ERROR = FilterResult((), error=f"cannot decide: {ON_ITS_WAY}")

SPREAD = {
    "topologySpreadConstraints": [{**ON_EACH, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}],
}
EVEN = {
    "topologySpreadConstraints": [{**ON_EACH, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}],
}


async def test_two_pods_that_must_be_apart_get_different_nodes_before_any_watch_event() -> None:
    played = Played("decisive")
    chosen = [await played.filter(f"w{i}", APART) for i in range(4)]
    assert sorted(chosen) == [[], ["n1"], ["n2"], ["n3"]]
    assert audit(played.index) == []


async def test_without_assumed_pods_they_meet() -> None:
    """What the feature is for: the same questions, and nothing remembered of the answers."""
    played = Played("decisive", assumes=False)
    chosen = [await played.filter(f"w{i}", APART) for i in range(4)]
    assert all(chosen)


@pytest.mark.parametrize("placement", ["decisive", "cooperative"])
async def test_a_pod_asked_again_gets_the_same_nodes_and_is_assumed_as_before(placement: str) -> None:
    """The request may be forged, and the pod on its way to the node of the first answer."""
    played = Played(placement)
    first = await played.filter("w0", APART)
    before = dict(played.index.assumed.held)
    assert await played.filter("w0", APART) == first
    assert await played.filter("w0", APART, tuple(first[:1])) == first[:1]
    assert played.index.assumed.held == before
    assert audit(played.index) == []


async def test_a_request_without_the_node_leaves_the_pod_there_and_counts_it_on_the_other_too() -> None:
    played = Played("decisive")
    (node,) = await played.filter("w0", APART)
    (other, last) = [name for name in NODE_NAMES if name != node]
    assert await played.filter("w0", APART, (other,)) == [other]
    (held,) = played.index.assumed.held.values()
    assert (held.nodes, held.doubted) == ((node, other), True)
    assert await played.filter("w1", APART) == [last]
    played.show("w0", APART, on=node)
    assert list(played.index.assumed.held) == ["w1"]
    assert audit(played.index) == []


@pytest.mark.parametrize("names", [(), ("no-such-node",), ("full",)], ids=str)
async def test_a_request_that_no_node_of_passes_ends_no_assumption_and_plans_no_preemption(
    names: tuple[str, ...],
) -> None:
    played = Played("decisive")
    (node,) = await played.filter("w0", APART)
    full = next(name for name in NODE_NAMES if name != node)
    played.show("low", {"priority": -1}, on=full)
    before = dict(played.index.assumed.held)
    sent = tuple(full if name == "full" else name for name in names)
    assert await played.result("w0", APART, sent) == ON_ITS_WAY_ERROR
    assert (played.index.assumed.held, played.plans.plans, played.rejected) == (before, [], [])
    assert audit(played.index) == []


async def test_a_pod_does_not_count_on_more_and_more_nodes() -> None:
    played = Played("decisive")
    many = [f"m{number}" for number in range(120)]
    for name in many:
        body = {"metadata": {"name": name, "labels": {HOST: name}}}
        played.index.upsert(NODES.decode_object(orjson.dumps(body)))
    results = [await played.result("w0", APART, (name,)) for name in many]
    assert [list(each.passed) for each in results[:100]] == [[name] for name in many[:100]]
    assert results[100:] == [ON_ITS_WAY_ERROR] * 20
    assert [len(held.nodes) for held in played.index.assumed.held.values()] == [100]


@pytest.mark.parametrize("out", ["deleted", "cordoned", "tainted", "taken"])
async def test_it_moves_where_its_node_is_out(out: str) -> None:
    played = Played("decisive")
    (node,) = await played.filter("w0", APART)
    body: JsonObject = {"metadata": {"name": node, "labels": {HOST: node}}, "spec": {}}
    match out:
        case "deleted":
            played.index.delete(NODES.decode_object(orjson.dumps(body)))
        case "cordoned":
            played.index.upsert(NODES.decode_object(orjson.dumps(body | {"spec": {"unschedulable": True}})))
        case "tainted":
            taint = {"key": "gone", "effect": "NoExecute"}
            played.index.upsert(NODES.decode_object(orjson.dumps(body | {"spec": {"taints": [taint]}})))
        case "taken":
            played.show("bound without us", {}, on=node)
    (other,) = await played.filter("w0", APART, tuple(name for name in NODE_NAMES if name != node))
    assert [held.nodes for held in played.index.assumed.held.values()] == [(other,)]
    assert audit(played.index) == []


async def test_a_doubted_pod_is_sent_elsewhere_and_may_still_be_where_it_was_sent_first() -> None:
    """The scheduler may fail there again and again."""
    played = Played("decisive")
    (node,) = await played.filter("w0", APART)
    played.index.assumed.review(played.clock.now() + 5, AssumptionTimeouts(expiry=120, failure_grace=2, doubt=5))
    (other,) = await played.filter("w0", APART)
    assert other != node
    assert [held.nodes for held in played.index.assumed.held.values()] == [(node, other)]
    assert audit(played.index) == []


async def test_the_report_of_our_error_ends_the_assumption_without_a_grace_period() -> None:
    """Only the scheduler reports it: its attempt has failed, and it decides the pod afresh."""
    played = Played("decisive")
    await played.filter("w0", APART)
    assert await played.result("w0", APART, ()) == ON_ITS_WAY_ERROR
    played.show("w0", APART, **_refused(ON_ITS_WAY_ERROR.error))
    assert played.index.assumed.held == {}
    assert await played.filter("w0", APART)
    assert audit(played.index) == []


async def test_the_report_of_that_error_also_counts_after_others_that_never_came() -> None:
    played = Played("decisive")
    pod = decoded("w0", APART)
    played.show("w0", APART)
    played.index.assume(pod, ("n1",), now=0.0)
    played.index.assumed.forget("w0")  # an attempt whose report of a failed binding may still come
    await played.filter("w0", APART, ("n1",))
    played.show("w0", APART, **_refused(f"running filter: {ON_ITS_WAY_ERROR.error}"))
    assert played.index.assumed.held == {}


@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["the same node", "another node"])
async def test_the_late_report_of_a_failed_binding_leaves_the_next_attempt_its_room(is_elsewhere: bool) -> None:  # noqa: FBT001 (a parameter)
    """The scheduler tries the pod again before the watch shows the report: the pod is on its way once more."""
    played = Played("decisive")
    (node,) = await played.filter("w0", APART)
    (again,) = await played.filter("w0", APART, tuple(name for name in NODE_NAMES if (name == node) != is_elsewhere))
    played.show("w0", APART, **_refused("binding rejected: timeout", "SchedulerError"))
    assert again in played.index.assumed.held["w0"].nodes
    assert await played.filter("w1", APART, (again,)) == []
    played.show("w0", APART, **_refused("binding rejected: another timeout", "SchedulerError"))
    assert played.index.assumed.held == {}
    assert audit(played.index) == []


async def test_the_late_report_of_our_error_leaves_the_next_attempt_its_room() -> None:
    played = Played("decisive")
    (node,) = await played.filter("w0", APART)
    assert await played.result("w0", APART, ()) == ON_ITS_WAY_ERROR
    assert await played.filter("w0", APART, (node,)) == [node]
    played.show("w0", APART, **_refused(ON_ITS_WAY_ERROR.error))
    assert played.index.assumed.held["w0"].nodes == (node,)
    # After a further answer with this error the last attempt is over.
    assert await played.result("w0", APART, ()) == ON_ITS_WAY_ERROR
    played.show("w0", APART, **_refused(f"running filter: {ON_ITS_WAY_ERROR.error}"))
    assert played.index.assumed.held == {}


async def test_another_late_report_counts_only_some_time_after_the_last_answer() -> None:
    played = Played("decisive")
    limits = AssumptionTimeouts(expiry=120, failure_grace=2)
    played.show("w0", APART)
    begun = played.clock.now()
    played.index.assume(decoded("w0", APART), ("n1",), begun - 3)
    assert await played.filter("w0", APART, ("n1",)) == ["n1"]
    for text, now, ended in (("an earlier attempt", begun + 1, 0), ("this attempt", begun + 5, 1)):
        played.show("w0", APART, **_refused(text))
        assert played.index.assumed.review(now, limits) == ended


async def test_a_pod_that_is_only_nominated_elsewhere_is_decided_afresh() -> None:
    """No answer has let it go there: the scheduler asks about that node, and places the pod where it likes."""
    played = Played("decisive")
    played.show("w0", APART)
    played.index.assume(decoded("w0", APART), ("n1",), played.clock.now(), doubted=True)
    (node,) = await played.filter("w0", APART, ("n2", "n3"))
    assert played.index.assumed.held["w0"].nodes == (node,)


async def test_two_requests_about_one_pod_at_once_leave_one_assumption_and_get_one_answer() -> None:
    """A scheduler that gave up waiting asks again while the first question is still being answered."""
    played = Played("decisive")
    played.index.assume(decoded("other", {}), ("n1", "n2"), now=0.0)
    first = asyncio.create_task(played.filter("w0", APART))
    await until(lambda: played.filter_service.waits)
    played.index.assume(decoded("w0", APART), ("n2",), now=0.0)  # what the second question was answered meanwhile
    played.show("other", {}, on="n1")
    assert await first == ["n2"]
    assert {uid: held.nodes for uid, held in played.index.assumed.held.items()} == {"w0": ("n2",)}
    assert audit(played.index) == []


async def test_a_request_waits_for_the_pod_that_its_result_depends_on() -> None:
    played = Played("cooperative", wait=30)
    await played.filter("w0", APART)
    waiting = asyncio.create_task(played.filter("w1", APART))
    await until(lambda: played.filter_service.waits)
    assert (waiting.done(), len(played.index.assumed.changes)) == (False, 1)
    played.show("w0", APART, on="n2")
    assert sorted(await waiting) == ["n1", "n3"]
    assert len(played.index.assumed.changes) == 0, "an event costs nothing while no request waits"


async def test_it_waits_no_longer_once_no_assumed_pod_left_can_change_its_answer() -> None:
    played = Played("cooperative", wait=30)
    played.show("there", {}, on="n1")
    await played.filter("w0", {}, ("n2", "n3"))
    await played.filter("w1", {}, ("n1", "n2"))
    waiting = asyncio.create_task(played.filter("asking", APART))
    await until(lambda: played.filter_service.waits)
    played.show("w0", {}, on="n2")
    assert await waiting == ["n3"]
    assert "w1" in played.index.assumed.held
    assert (played.filter_service.requests, played.filter_service.waits, played.filter_service.given_up) == (3, 1, 0)
    assert played.filter_service.waited > 0


@pytest.mark.parametrize("spec", [APART, SPREAD])
async def test_after_the_wait_the_pod_counts_wherever_it_may_be(spec: JsonObject) -> None:
    played = Played("cooperative", wait=0.01)
    assert sorted(await played.filter("w0", spec, ("n1", "n2"))) == ["n1", "n2"]
    assert await played.filter("w1", spec) == ["n3"]
    assert played.filter_service.given_up == 1


async def test_a_request_waits_for_the_pods_that_its_scores_count() -> None:
    """Else replicas that are asked about before the last binding is seen come to the same domain."""
    played = Played("cooperative", wait=30)
    played.show("there", EVEN, on="n1")
    await played.filter("w0", EVEN)
    waiting = asyncio.create_task(played.filter("w1", EVEN))
    await until(lambda: played.filter_service.waits)
    played.show("w0", EVEN, on="n2")
    assert len(await waiting) == 3
    assert played.filter_service.given_up == 0


async def test_a_binding_that_takes_long_is_waited_for_once_by_all_whose_scores_count_it() -> None:
    played = Played("cooperative", wait=30)
    await played.filter("slow", EVEN)
    assert len(await played.filter("w0", EVEN)) == 3
    played.show("w0", EVEN, on="n2")
    assert len(await played.filter("w1", EVEN)) == 3
    assert (played.filter_service.waits, played.filter_service.given_up) == (1, 0)


async def test_a_request_that_depends_on_no_pod_never_waits() -> None:
    played = Played("cooperative", wait=30)
    await played.filter("w0", APART)
    other = {"metadata": {"name": "x", "uid": "x", "namespace": "other"}, "spec": {}}
    played.index.upsert(read_pod(other))
    body = {"Pod": other, "NodeNames": NODE_NAMES}
    result = await played.filter_service.filter(decode_args(orjson.dumps(body)))
    assert sorted(result.passed) == ["n1", "n2", "n3"]
    assert played.filter_service.waits == 0


def _refused(text: str, reason: str = "Unschedulable") -> JsonObject:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": text}
    return {"status": {"phase": "Pending", "conditions": [condition]}}


async def test_a_rejection_counts_also_where_it_is_the_first_that_the_watch_shows_of_the_pod() -> None:
    played = Played("decisive")
    pod = decoded("w0", APART)
    played.index.assume(pod, ("n1",), now=0.0)
    played.show("w0", APART, **_refused("this time"))
    limits = AssumptionTimeouts(expiry=120, failure_grace=2)
    assert played.index.assumed.review(5.0, limits) == 1
    assert played.index.assumed.held == {}


async def test_a_request_that_cannot_be_decided_brings_the_last_attempt_into_doubt() -> None:
    """A pod whose binding failed would raise the minimum of its zone for as long as nothing can be answered."""
    played = Played("decisive")
    await played.filter("w0", SPREAD)
    (held,) = played.index.assumed.held.values()
    for _ in range(2):
        played.filter_service.attempt_failed(held.pod)
        assert [(each.nodes, each.doubted) for each in played.index.assumed.held.values()] == [(held.nodes, True)]
    assert audit(played.index) == []


async def test_pods_that_do_not_exist_take_no_place_and_keep_no_other_pod_out() -> None:
    """Three answers for made-up pods would fill three nodes until they expire."""
    played = Played("decisive")
    for number in range(3):
        body = {"Pod": pending_pod(f"made-up-{number}", APART), "NodeNames": NODE_NAMES}
        result = await played.filter_service.filter(decode_args(orjson.dumps(body)))
        assert (list(result.passed), result.error) == ([], "cannot decide: the watch does not show this pod yet")
    assert (played.index.assumed.held, played.rejected, len(played.index.rejected)) == ({}, [], 0)
    assert await played.filter("w0", APART) != []


async def test_a_request_under_another_name_does_not_end_the_assumption_of_the_pod_that_has_the_uid() -> None:
    played = Played("decisive")
    await played.filter("w0", APART)
    forged = pending_pod("w0", APART) | {"metadata": {"name": "other", "namespace": "ns", "uid": "w0"}}
    args = decode_args(orjson.dumps({"Pod": forged, "NodeNames": NODE_NAMES}))
    result = await played.filter_service.filter(args)
    played.filter_service.attempt_failed(args.pod)
    assert result.error == "cannot decide: the watch shows a pod of another name under this UID"
    assert list(played.index.assumed.held) == ["w0"]


async def test_what_a_request_says_of_a_pod_is_not_believed() -> None:
    """Without its anti-affinity the pod would be let through to the one node that is taken."""
    played = Played("cooperative")
    played.show("there", {}, on="n1")
    played.show("w0", APART)
    body = {"Pod": pending_pod("w0", {}), "NodeNames": ("n1",)}
    assert list((await played.filter_service.filter(decode_args(orjson.dumps(body)))).passed) == []


async def test_a_pod_that_is_bound_while_its_request_waits_is_not_decided_on() -> None:
    played = Played("cooperative", wait=30)
    await played.filter("w0", APART)
    waiting = asyncio.create_task(played.filter("w1", APART))
    await until(lambda: played.filter_service.waits)
    played.show("w1", APART, on="n3")
    played.show("w0", APART, on="n2")
    assert await waiting == []
    assert played.index.assumed.held == {}


async def test_the_plan_of_a_rejection_is_submitted_with_its_answer() -> None:
    played = Played("cooperative")
    for name in NODE_NAMES:
        played.show(f"low-{name}", {"priority": -1}, on=name)
    assert await played.filter("w0", APART) == []
    (plan,) = played.plans.plans
    assert (plan.preemptor.name, [f"low-{plan.node}"]) == ("w0", [each.name for each in plan.victims])
    assert [args.pod.name for args in played.rejected] == ["w0"]


def test_decisions_are_counted_by_scheduler_and_there_are_not_more_names_than_that() -> None:
    """Any pod may name any scheduler."""
    counts = SchedulerCounts()
    for number in range(40):
        counts.record(f"s{number}", FilterResult(("n1",)), float(number))
        counts.record(f"s{number}", FilterResult(()), float(number))
    counts.record("s0", FilterResult((), error="no"), 50.0)
    assert len({name for name, _ in counts.counts}) == 33
    assert counts.counts["(others)", "rejected"] == 8
    assert [counts.counts["s0", result] for result in ("passed", "rejected", "error")] == [1, 1, 1]
    assert (counts.last["s0"], counts.last["s1"], counts.last["(others)"], len(counts.last)) == (50.0, 1.0, 39.0, 33)


def created(name: str) -> JsonObject:
    """The metadata of a pod that is ten seconds old."""
    made: JsonObject = pending_pod(name, {})["metadata"]
    return made | {"creationTimestamp": "2026-01-01T00:00:00Z"}


async def test_a_bound_pod_is_reported_with_its_age_and_its_attempts_once() -> None:
    """KEP-2249, "What are the SLIs": ``pod_scheduling_duration_seconds``; attempts as kube-scheduler's of that name."""
    played = Played("decisive")
    await played.filter("w1", APART, ("n1",))
    played.show("w0", APART, metadata=created("w0"))
    for _ in range(2):
        assert await played.filter("w0", APART, ("n1",)) == []
    played.scheduled.take(played.index.assumed.bound)
    assert await played.filter("w0", APART, ("n2",)) == ["n2"]
    for _ in range(2):
        played.show("w0", APART, on="n2", metadata=created("w0"))
    played.scheduled.take(played.index.assumed.bound)
    assert played.bound == [(10.0, 3)]
    played.scheduled.take(played.index.assumed.bound)
    assert len(played.bound) == 1


async def test_a_pod_without_a_binding_or_without_a_time_is_not_reported() -> None:
    played = Played("decisive")
    for name, metadata in (("gone", created("gone")), ("odd", pending_pod("odd", {})["metadata"])):
        played.show(name, {}, metadata=metadata)
        await played.filter(name, APART)
    played.index.delete(decoded("gone", {}))
    played.show("odd", {}, on="n1")
    assert [pod.uid for pod in played.index.assumed.bound] == ["odd"]
    played.scheduled.take(played.index.assumed.bound)
    assert played.bound == []


def test_failed_attempts_of_pods_that_are_never_bound_are_bounded() -> None:
    reported: list[int] = []
    scheduled = ScheduledPods(lambda _seconds, attempts: reported.append(attempts), lambda: NOW)
    for number in range(10_001):
        scheduled.note_failed(f"u{number}")
    shown = {name: replace(decoded(name, {}), created="2026-01-01T00:00:00Z") for name in ("u0", "u10000")}
    scheduled.take(deque(shown.values()))
    assert reported == [1, 2]
