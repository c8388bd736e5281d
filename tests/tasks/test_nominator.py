"""Rejected pods are nominated to nodes outside the sample, and requeued after changes that the scheduler ignores."""

from __future__ import annotations

import asyncio

import pytest

from extender.index.audit import audit
from extender.index.claims.assumed import AssumptionTimeouts
from extender.kube.errors import Conflict, NotFound
from extender.rules.interpod_affinity import own_terms
from tests.fakes import FakeClock, running, until
from tests.tasks.nominator_scene import (
    ALONE,
    APART,
    NEAR,
    OTHER,
    LateFailure,
    RequestingWriter,
    Scene,
    at_rest,
    nominated,
)


async def test_a_pod_rejected_on_the_whole_sample_is_nominated_to_the_node_that_would_take_it() -> None:
    scene = Scene()
    assert not scene.filter("asking", APART, "n0", "n1").passed
    async with scene.running():
        await until(lambda: bool(scene.nominated()))
    assert scene.nominated() == [("asking", "n3")]
    assert [held.nodes for held in scene.index.assumed.held.values()] == [("n3",)]


async def test_the_place_that_a_pod_is_nominated_to_is_held_for_it() -> None:
    scene = Scene()
    scene.filter("first", APART, "n0", "n1")
    scene.filter("second", APART, "n0", "n1")
    async with scene.running():
        await until(lambda: scene.writes.results["nominate", "no_node"] == 1)
    assert [name for name, _ in scene.nominated()] == ["first"]


async def test_a_pod_that_is_nominated_elsewhere_is_nothing_to_rely_on_before_it_stands_there() -> None:
    """Counted as placed it would satisfy affinity, and raise the minimum that skew is measured against."""
    scene = Scene()
    scene.filter("first", APART, "n0", "n1")
    async with scene.running():
        await until(lambda: bool(scene.nominated()))
    (group,) = own_terms(scene.index.view.compiled(scene.index.pods["first"].signature)).anti
    assert (sum(group.counts.values()), group.undetermined) == (3, 1)
    assert scene.index.assumed.places() == {"known": 0, "undetermined": 0, "doubted": 1}
    assert audit(scene.index) == []


async def test_a_node_that_would_reject_the_pod_in_tree_is_no_place_to_nominate_to() -> None:
    scene = Scene()
    scene.node("n3", taints=[{"key": "gpu", "effect": "NoSchedule"}])
    scene.filter("asking", APART, "n0", "n1")
    async with scene.running():
        await until(lambda: scene.writes.results["nominate", "no_node"] == 1)
    assert scene.nominated() == []


async def test_a_search_that_found_no_node_is_not_repeated_before_its_dependencies_change() -> None:
    scene = Scene()
    scene.show("web-3", {"nodeName": "n3"})
    async with scene.running():
        scene.filter("asking", APART, "n0", "n1")
        await until(lambda: scene.writes.results["nominate", "no_node"] == 1)
        scene.filter("asking", APART, "n1", "n2")
        scene.filter("twin", APART, "n1", "n2")
        scene.node("n4")
        scene.filter("asking", APART, "n1", "n2")
        await until(lambda: bool(scene.nominated()))
    assert scene.writes.results["nominate", "no_node"] == 1
    assert scene.nominated() == [("asking", "n4")]


async def test_gated_bound_and_otherwise_nominated_pods_are_left_alone() -> None:
    scene = Scene()
    scene.show("gated", {**APART, "schedulingGates": [{"name": "g"}]})
    scene.show("bound", {**APART, "nodeName": "n9"})
    scene.show("promised", APART, nominatedNodeName="n0")
    for name in ("gated", "bound", "promised", "asking"):
        scene.filter(name, APART, "n0", "n1")
    async with scene.running():
        await until(lambda: bool(scene.nominated()))
    assert [name for name, _ in scene.nominated()] == ["asking"]


async def test_a_nomination_that_fails_holds_no_place() -> None:
    scene = Scene()
    scene.writer.failures.append(Conflict("another client was faster"))
    scene.filter("asking", APART, "n0", "n1")
    async with scene.running():
        await until(lambda: scene.writes.results["nominate", "failed"] == 1)
    assert scene.index.assumed.held == {}


async def test_a_pod_that_has_passed_before_its_turn_stays_assumed_where_it_passed() -> None:
    """The scheduler is binding it there: its room is taken, and another node is not where it goes."""
    scene = Scene()
    scene.filter("asking", APART, "n0", "n1")
    scene.index.assume(scene.index.pods["asking"], ("n3",), 0.0)
    scene.node("n4")
    scene.filter("other", APART, "n0", "n1")
    async with scene.running():
        await until(lambda: bool(scene.nominated()))
    assert scene.nominated() == [("other", "n4")]
    assert [(held.nodes, held.doubted) for held in scene.index.assumed.held.values()] == [
        (("n3",), False),
        (("n4",), True),
    ]


async def test_a_pod_that_passes_while_its_nomination_fails_stays_assumed() -> None:
    writer = LateFailure()
    scene = Scene(writer=writer)
    scene.filter("asking", APART, "n0", "n1")
    async with scene.running():
        await writer.requested.wait()
        scene.index.assume(scene.index.pods["asking"], ("n3",), 0.0)
        writer.answer.set()
        await until(lambda: scene.writes.results["nominate", "failed"] == 1)
    assert [(held.nodes, held.doubted) for held in scene.index.assumed.held.values()] == [(("n3",), False)]


async def test_a_relabelled_namespace_requeues_the_pods_that_it_lets_pass_and_no_others() -> None:
    scene = Scene(nominates=False)
    scene.relabel("ns", team="b")
    assert not scene.filter("asking", NEAR, "n0", "n1").passed
    assert not scene.filter("hopeless", OTHER, "n0", "n1").passed
    assert await scene.requeued_by_relabelling() == ["asking"]


async def test_a_pod_that_becomes_the_first_of_its_own_group_is_requeued_although_no_count_changes() -> None:
    scene = Scene(nominates=False)
    for number in range(3):
        scene.index.delete(scene.index.pods[f"web-{number}"])
    scene.relabel("ns", team="b")
    assert not scene.filter("asking", NEAR, "n0", "n1").passed
    assert await scene.requeued_by_relabelling() == ["asking"]


async def test_a_pod_is_not_requeued_for_a_change_that_does_not_concern_it() -> None:
    """It would be refused again; where nodes that pass our rules are full, that would go on for ever."""
    scene = Scene(nominates=False)
    scene.relabel("ns", team="b")
    assert not scene.filter("elsewhere", ALONE, "n0", "n1").passed  # n3 passes our rules, and was not asked about
    assert not scene.filter("asking", NEAR, "n0", "n1").passed
    assert await scene.requeued_by_relabelling() == ["asking"]


async def test_the_requeuer_does_nothing_at_all_until_something_changes() -> None:
    clock = FakeClock()
    scene = Scene(nominates=False, clock=clock)
    scene.relabel("ns", team="b")
    others = [len(source) for source in scene.subscribers()]
    assert not scene.filter("asking", NEAR, "n0", "n1").passed
    async with scene.running():
        for _ in range(20):
            await asyncio.sleep(0)
        assert clock.slept == []
        scene.relabel("ns", team="a")
        await until(lambda: bool(scene.requeued()))
    assert scene.requeued() == ["asking"]
    assert [len(source) for source in scene.subscribers()] == others


async def test_an_assumption_that_expires_requeues_a_pod_that_it_kept_out() -> None:
    scene = Scene(nominates=False)
    scene.show("passing", ALONE)
    scene.index.assume(scene.index.pods["passing"], ("n3",), 0.0)
    assert not scene.filter("asking", ALONE, "n0", "n3").passed
    async with scene.running():
        await until(lambda: all(len(source) for source in scene.subscribers()))
        scene.index.assumed.review(60.0, AssumptionTimeouts(expiry=30.0, failure_grace=2.0))
        await until(lambda: bool(scene.requeued()))
    assert scene.requeued() == ["asking"]


async def test_a_pod_that_is_gone_is_no_cause_for_alarm(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.writer.failures.append(NotFound("pods not found"))
    scene.filter("asking", APART, "n0", "n1")
    async with scene.running():
        await until(lambda: scene.writes.results["nominate", "failed"] == 1)
    assert not caplog.records


# -- Nominated pods are requeued where the scheduler does not ask about them, as one without QueueingHints does not ----


@pytest.mark.parametrize("failures", [0, 3])
async def test_a_nominated_pod_that_the_scheduler_does_not_ask_about_is_requeued_once(failures: int) -> None:
    """As one without QueueingHints ignores the nomination."""
    clock = FakeClock()
    scene = Scene(clock=clock)
    nominated(scene, clock)
    scene.writer.failures += [Conflict("another client was faster")] * failures
    begun = clock.time
    async with running(scene.requeuer.run):
        await until(lambda: bool(scene.requeued()))
        assert 1.0 + failures <= clock.time - begun < 1.5 + 1.25 * failures
        await at_rest(clock)
    assert scene.requeued() == ["asking"]


async def test_while_the_scheduler_asks_about_others_a_nominated_pod_may_be_in_its_queue() -> None:
    clock = FakeClock()
    scene = Scene(clock=clock)
    nominated(scene, clock)
    begun = clock.time
    scene.traffic.begin()
    async with running(scene.requeuer.run):
        await until(lambda: bool(scene.requeued()))
    assert 10.0 <= clock.time - begun < 10.5


async def test_a_pod_that_is_requeued_delays_no_other_one_by_the_request_that_follows() -> None:
    clock, writer = FakeClock(), RequestingWriter()
    scene = Scene(clock=clock, writer=writer)
    writer.traffic = scene.traffic
    begun = clock.time
    for name in ("first", "second", "third"):
        nominated(scene, clock, name)
    async with running(scene.requeuer.run):
        await until(lambda: len(scene.requeued()) == 3)
    assert clock.time - begun < 1.5


@pytest.mark.parametrize("how", ["passed", "rejected", "bound", "deleted"])
async def test_a_nominated_pod_that_the_scheduler_has_asked_about_is_not_requeued(how: str) -> None:
    clock = FakeClock()
    scene = Scene(clock=clock)
    nominated(scene, clock)
    incoming = scene.index.pods["asking"]
    match how:
        case "passed":
            scene.index.assume(incoming, ("n3",), clock.now())
        case "rejected":
            scene.index.assumed.forget(incoming.uid)
        case "bound":
            scene.show("asking", {**APART, "nodeName": "n3"})
        case "deleted":
            scene.index.delete(incoming)
    async with running(scene.requeuer.run):
        await at_rest(clock)
    assert (scene.requeued(), len(clock.slept)) == ([], 1)


async def test_a_pod_that_the_nominator_has_nominated_is_one_of_them() -> None:
    clock = FakeClock()
    scene = Scene(clock=clock)
    scene.filter("asking", APART, "n0", "n1")
    async with running(scene.nominator.run), running(scene.requeuer.run):
        await until(lambda: bool(scene.requeued()))
    assert (scene.nominated(), scene.requeued()) == ([("asking", "n3")], ["asking"])
