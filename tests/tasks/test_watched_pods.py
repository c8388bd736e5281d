"""Pods of requests as the watch shows them: found at once, waited for until the event, refused for the moment."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import orjson
import pytest

from extender.index.audit import audit
from extender.settings.configuration import Settings
from extender.tasks.filter_service import AssumedPodOptions, FilterService, WatchedPods
from extender.verbs.filter import FilterVerb
from extender.verbs.request import Unconfirmed
from extender.wire.extender_v1 import encode_filter_nodes
from extender.wire.objects.kinds import NODES
from tests.builders import index_of, node, pod
from tests.deciding import KeptPlans
from tests.fakes import FakeClock, until
from tests.tasks.filter_scene import APART, HOST, Played
from tests.tasks.watched_scene import Looking, lasting, with_nodes


async def test_a_pod_that_is_shown_is_found_without_waiting_and_as_the_watch_shows_it() -> None:
    looking = Looking()
    shown = looking.show(priority=5)
    assert await looking.pods.find(pod("web", priority=2**31 - 1)) is shown
    assert looking.pods.waits == 0


async def test_a_request_is_answered_as_soon_as_the_watch_shows_its_pod() -> None:
    looking = Looking()
    task = await looking.requested(pod("web"))
    looking.index.upsert(pod("other"))
    shown = looking.show()
    assert await task is shown
    assert len(looking.index.pod_changes) == 0
    assert sum(looking.pods.rejected().values()) == 0


async def test_a_gated_pod_is_waited_for_until_the_watch_shows_it_without_gates() -> None:
    looking = Looking()
    looking.show(gates=["quota"])
    task = await looking.requested(pod("web", labels={"app": "web"}))
    looking.show(gates=["quota"], labels={"app": "web"})
    await asyncio.sleep(0)
    assert not task.done()
    shown = looking.show(labels={"app": "web"})
    assert await task is shown


async def test_a_pod_that_the_watch_does_not_show_in_time_is_rejected_for_the_moment() -> None:
    looking = Looking(wait=0.01)
    assert await looking.pods.find(pod("web")) is Unconfirmed.NOT_SHOWN
    assert looking.pods.rejected()["not_shown"] == 1
    assert len(looking.index.pod_changes) == 0


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"on": "n1"}, Unconfirmed.PLACED),
        ({"namespace": "other"}, Unconfirmed.OTHER_NAME),
        ({"terminating": True}, Unconfirmed.DELETED),
    ],
)
async def test_what_no_event_can_cure_is_rejected_at_once(fields: dict[str, Any], why: Unconfirmed) -> None:
    looking = Looking()
    looking.show(**fields)
    assert await looking.pods.find(pod("web")) is why
    assert looking.pods.waits == 0


async def test_a_pod_that_was_deleted_is_rejected_at_once_also_if_it_goes_while_it_is_waited_for() -> None:
    looking = Looking()
    looking.show(gates=["quota"])
    task = await looking.requested(pod("web"))
    looking.index.delete(pod("web"))
    assert await task is Unconfirmed.DELETED
    assert await looking.pods.find(pod("web")) is Unconfirmed.DELETED
    assert looking.pods.waits == 1


async def test_a_request_that_is_ahead_of_the_watch_is_answered_once_the_watch_has_caught_up() -> None:
    """Labels of a waiting pod may change; the scheduler's watch may be first to tell."""
    looking = Looking()
    looking.show(labels={"app": "a"})
    task = await looking.requested(pod("web", labels={"app": "b"}))
    shown = looking.show(labels={"app": "b"})
    assert await task is shown


async def test_a_request_that_stays_different_gets_the_watch_s_pod_and_is_waited_for_once() -> None:
    looking = Looking(wait=0.01)
    shown = looking.show(labels={"app": "a"})
    for _ in range(2):
        assert await looking.pods.find(pod("web", labels={"app": "b"})) is shown
    assert looking.pods.waits == 1


async def test_requests_for_made_up_pods_do_not_take_all_places() -> None:
    looking = Looking(most_waiting=2)
    tasks = [await looking.requested(pod(f"made-up-{number}")) for number in range(2)]
    assert await looking.pods.find(pod("made-up-2")) is Unconfirmed.NOT_SHOWN
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert len(looking.index.pod_changes) == 0
    task = await looking.requested(pod("web"))  # their places are free again
    shown = looking.show()
    assert await task is shown


# -- Requests with whole nodes: those of a scheduler, and those about nodes that do not exist --------------------------

NEW = {"metadata": {"name": "new", "labels": {HOST: "new"}}}
EXISTING = {"metadata": {"name": "n1", "labels": {HOST: "n1"}}}
NOT_KNOWN = "node(s) not known to the extender yet"


async def test_a_request_where_neither_the_pod_nor_a_node_exists_is_answered_and_changes_nothing() -> None:
    """As an autoscaler does with a node that it could add."""
    played = Played("decisive")
    assert (await played.filter_service.filter(with_nodes("w0", NEW))).passed == ["new"]
    assert (played.index.assumed.held, played.rejected) == ({}, [])


@pytest.mark.parametrize("placement", ["decisive", "cooperative"])
async def test_a_pending_pod_gets_no_node_that_the_watch_does_not_show_yet(placement: str) -> None:
    """On such a node it would count for no other pod: two pods that must be apart would both be let through to it."""
    played = Played(placement)
    for name in ("w0", "w1"):
        played.show(name, APART)
    assert (await played.filter_service.filter(with_nodes("w0", NEW, EXISTING))).passed == ["n1"]
    assert [held.nodes for held in played.index.assumed.held.values()] == [("n1",)]
    second = await played.filter_service.filter(with_nodes("w1", NEW, EXISTING))
    assert (list(second.passed), second.unresolvable["new"]) == ([], NOT_KNOWN)
    assert audit(played.index) == []


@pytest.mark.parametrize("placement", ["decisive", "cooperative"])
async def test_a_pending_pod_on_a_new_node_counts_there_once_the_watch_shows_the_node(placement: str) -> None:
    """As a scheduler asks for a pod of a DaemonSet, whose affinity names a node that has just come."""
    played = Played(placement)
    for name in ("w0", "w1"):
        played.show(name, APART)
    assert (await played.filter_service.filter(with_nodes("w0", NEW))).passed == ["new"]
    assert [held.nodes for held in played.index.assumed.held.values()] == [("new",)]
    assert audit(played.index) == []
    played.index.upsert(NODES.decode_object(orjson.dumps(NEW)))
    assert audit(played.index) == []
    assert list((await played.filter_service.filter(with_nodes("w1", NEW))).passed) == []
    played.show("w0", APART, on="new")
    assert played.index.assumed.held == {}
    assert audit(played.index) == []


async def test_a_pod_that_may_go_to_several_new_nodes_is_assumed_on_none() -> None:
    """A tool tries nodes that do not exist: no other request may wait for that."""
    played = Played("cooperative")
    played.show("w0", APART)
    other = {"metadata": {"name": "other", "labels": {HOST: "other"}}}
    assert sorted((await played.filter_service.filter(with_nodes("w0", NEW, other))).passed) == ["new", "other"]
    assert played.index.assumed.held == {}


async def test_a_request_about_new_nodes_alone_does_not_end_an_assumption() -> None:
    """It may be a tool that asks about a pod that is being bound."""
    played = Played("decisive")
    (node,) = await played.filter("w0", APART)
    assert (await played.filter_service.filter(with_nodes("w0", NEW))).passed == ["new"]
    assert [held.nodes for held in played.index.assumed.held.values()] == [(node,)]
    assert audit(played.index) == []


async def test_a_request_about_a_pod_that_does_not_exist_is_decided_as_it_was_sent_if_a_node_is_new() -> None:
    played = Played("cooperative")
    assert sorted((await played.filter_service.filter(with_nodes("w0", NEW, EXISTING))).passed) == ["n1", "new"]
    error = "cannot decide: the watch does not show this pod yet"
    assert (await played.filter_service.filter(with_nodes("w0", EXISTING))).error == error
    assert played.index.assumed.held == {}
    played.show("w0", APART)
    assert (await played.filter_service.filter(with_nodes("w0", EXISTING))).passed == ["n1"]
    assert list(played.index.assumed.held) == ["w0"]


async def test_a_repeated_rejection_of_whole_nodes_is_answered_in_their_form() -> None:
    played = Played("decisive")
    await played.filter("w0", APART, ("n1",))
    played.show("w1", APART)
    request = with_nodes("w1", EXISTING)
    answers = [
        orjson.loads(encode_filter_nodes(await played.filter_service.filter(request), request)) for _ in range(2)
    ]
    assert answers[0] == answers[1]
    assert (answers[0]["Nodes"]["items"], answers[0]["NodeNames"]) == ([], None)
    assert list(answers[0]["FailedAndUnresolvableNodes"]) == ["n1"]


# -- Time in which nothing could be heard, as a machine or its process was suspended, lets no assumption expire --------


async def test_an_assumption_outlives_a_suspension_and_expires_in_its_own_time_afterwards() -> None:
    """What the scheduler did meanwhile lies unread in the watch; it must not find the place given away."""
    index, clock = index_of(node("n1")), FakeClock()
    index.assume(pod("web"), ("n1",), clock.time)
    clock.late = 600.0
    assert await lasting(index, clock) == pytest.approx(720.0, abs=1.0)
    assert (index.assumed.expired, audit(index)) == (1, [])


async def test_a_loop_that_is_late_now_and_then_does_not_make_assumptions_last() -> None:
    index, clock = index_of(node("n1")), FakeClock(step=0.1)
    index.assume(pod("web"), ("n1",), clock.time)
    assert await lasting(index, clock) == pytest.approx(120.0, abs=1.0)


async def test_an_assumption_does_not_expire_while_the_watch_that_would_show_its_binding_is_not_heard() -> None:
    index, clock, heard = index_of(node("n1")), FakeClock(), 0.0
    index.assume(pod("web"), ("n1",), clock.time)
    begun = clock.time
    pods, options = WatchedPods(index, clock, 0.0, 1), AssumedPodOptions(expiry=120.0)
    verb = FilterVerb(index.view, Settings())
    filter_service = FilterService(
        index, pods, clock, options, verb, Random(1), KeptPlans(), known_until=lambda: begun + heard
    )
    task = asyncio.create_task(filter_service.run())
    await until(lambda: clock.time > begun + 170.0)
    assert (index.assumed.expired, index.assumed.doubted) == (0, 1)
    heard = 120.0
    await until(lambda: index.assumed.expired)
    task.cancel()
