"""A new leader answers once it knows what the one before has let through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace

import pytest

from extender.kube.effects import Lease
from extender.kube.errors import Unreachable
from extender.tasks.readiness import Readiness
from extender.tasks.takeover import Takeover
from tests.fakes import FakeClock, every_sleep
from tests.tasks.electing import NOON, Leases, replica
from tests.tasks.takeover_scene import Cluster, Part, Stand, Turn

SETTLE, DEADLINE = 2.0, 10.0
GIVEN_BACK = Lease("kube-system", "extender", "", 1, NOON, NOON, transitions=3, resource_version="1")
DEAD = replace(GIVEN_BACK, holder="dead", duration_seconds=15)


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    """Its loops begin when the test says so, and run until it ends."""
    clock = FakeClock(held=every_sleep)
    leases, cluster = Leases(clock), Cluster(clock)
    one = replica("one", leases)
    takeover = Takeover(one.leadership, lambda: cluster.ours, cluster, clock, SETTLE)
    found = Stand(clock, leases, cluster, one, takeover)
    yield found
    for task in found.tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_watch_that_has_come_past_the_newest_version_is_enough(stand: Stand) -> None:
    await stand.begins(GIVEN_BACK, "500")
    assert await stand.ready_after() == pytest.approx(SETTLE, abs=0.02)
    assert stand.cluster.requests == ["newest"]
    assert stand.missing == ""


async def test_bindings_under_way_get_their_time_first(stand: Stand) -> None:
    await stand.begins(GIVEN_BACK)
    await stand.clock.advance(SETTLE - 0.01)
    assert stand.replica.leadership.is_leader
    assert not stand.takeover.is_ready
    assert stand.cluster.requests == [], "the newest version counts from the end of that time"
    assert stand.missing == "taking over: waiting for the pods that the earlier leader passed"


async def test_a_leader_that_died_long_before_its_lease_ran_out_costs_no_more_time(stand: Stand) -> None:
    await stand.begins(DEAD, "500")
    assert await stand.ready_after() == pytest.approx(0.0, abs=0.02)


async def test_what_an_earlier_leader_left_is_restored_before_the_first_answer(stand: Stand) -> None:
    ready: list[bool] = []
    stand.takeover.before_answers.append(lambda: ready.append(stand.takeover.is_ready))
    await stand.begins(DEAD, "500")
    await stand.ready_after()
    assert ready == [False]


async def test_it_says_for_how_long_no_replica_answered(stand: Stand) -> None:
    """From the last sign of life of the one before, which may have died just then."""
    await stand.begins(DEAD, "500")
    begun = stand.clock.time
    await stand.ready_after()
    assert stand.takeover.gap == pytest.approx(stand.clock.time - begun, abs=0.02)
    assert stand.takeover.gap > SETTLE


async def test_there_is_no_gap_before_the_first_of_all(stand: Stand) -> None:
    await stand.begins(None, "500")
    await stand.ready_after()
    assert stand.takeover.gap == 0.0


async def test_the_first_leader_of_all_waits_for_no_pods_of_another(stand: Stand) -> None:
    await stand.begins(None, "500")
    assert await stand.ready_after() == pytest.approx(0.0, abs=0.02)


async def test_in_a_quiet_cluster_a_second_watch_says_that_nothing_is_missing(stand: Stand) -> None:
    await stand.begins(GIVEN_BACK, quiet=True)
    assert await stand.ready_after() == pytest.approx(SETTLE + 1.3, abs=0.1)
    assert stand.cluster.requests == ["newest", "since 400"]


async def test_a_leader_that_is_silent_for_long_is_caught_up_with_before_its_lease_runs_out(stand: Stand) -> None:
    await stand.begins(DEAD, quiet=True)
    await stand.clock.advance(DEADLINE + SETTLE - 0.01)
    requested_too_soon = list(stand.cluster.requests)
    assert await stand.ready_after() == pytest.approx(0.0, abs=0.02)
    assert (requested_too_soon, stand.cluster.requests) == ([], ["newest", "since 400"])


async def test_a_leader_that_comes_back_makes_that_void(stand: Stand) -> None:
    await stand.begins(DEAD, quiet=True)
    await stand.clock.advance(DEADLINE + SETTLE + 1.5)
    stand.leases.edit(renew_time=NOON.replace(hour=13))
    await stand.ready_after()
    assert stand.cluster.requests == ["newest", "since 400"] * 2


async def test_a_leader_that_renews_is_not_watched_any_closer(stand: Stand) -> None:
    await stand.begins(DEAD)
    for minute in range(30):
        stand.leases.edit(renew_time=NOON.replace(hour=13, minute=minute))
        await stand.clock.advance(2.0)
    assert stand.cluster.requests == []


async def test_a_watch_that_is_behind_is_waited_for(stand: Stand) -> None:
    await stand.begins(DEAD)
    await stand.clock.advance(30.0)
    assert stand.replica.leadership.is_leader
    assert not stand.takeover.is_ready
    stand.cluster.ours, stand.cluster.newest = "777", "777"
    await stand.ready_after()


async def test_versions_that_are_no_numbers_must_be_the_same(stand: Stand) -> None:
    stand.cluster.newest = "abc-5"
    await stand.begins(DEAD, "abc-6")
    await stand.clock.advance(30.0)
    assert not stand.takeover.is_ready
    stand.cluster.ours = "abc-5"
    await stand.ready_after()


async def test_failures_on_the_way_are_reported_and_tried_again(stand: Stand) -> None:
    await stand.begins(GIVEN_BACK, "500")
    stand.cluster.failures = [Unreachable("connection refused")] * 10
    await stand.clock.advance(SETTLE + 0.1)
    assert stand.missing == "taking over: connection refused"
    await stand.ready_after()
    assert stand.missing == ""


async def test_each_term_is_taken_over_anew(stand: Stand) -> None:
    await stand.begins(None, "500")
    await stand.ready_after()
    stand.leases.edit(holder="thief", transitions=1, renew_time=NOON.replace(hour=13))
    await stand.clock.advance(3.0)
    assert stand.missing == "standby, the leader is thief"
    stand.cluster.newest, stand.cluster.quiet = "900", False
    while not stand.replica.leadership.is_leader:
        await stand.clock.advance(0.1)
    await stand.clock.advance(5.0)
    assert not stand.takeover.is_ready
    stand.cluster.ours = "900"
    await stand.ready_after()


async def test_a_standby_names_the_leader_and_its_own_trouble(stand: Stand) -> None:
    await stand.begins(DEAD)
    assert stand.missing == "standby, the leader is dead"
    stand.leases.is_away = True
    await stand.clock.advance(1.0)
    assert stand.missing == "standby, the leader is dead; connection refused"


async def test_changes_notify_all_subscribers(stand: Stand) -> None:
    await stand.begins(DEAD, "500")
    waiting = [asyncio.ensure_future(stand.takeover.wait_for_change()) for _ in range(2)]
    await stand.ready_after()
    await stand.clock.advance(0.01)
    assert [task.done() for task in waiting] == [True, True]


# -- Readiness of several parts and of reasons that hold the service back ----------------------------------------------


def test_ready_when_every_part_is() -> None:
    assert Readiness().is_ready
    assert Readiness(Part(is_ready=True), Part(is_ready=True)).is_ready
    assert not Readiness(Part(is_ready=True), Part(is_ready=False)).is_ready


def test_a_blocker_keeps_the_service_from_being_ready() -> None:
    readiness = Readiness(Part(is_ready=True, missing={"pods": ""}))
    readiness.block("shutdown", "the service is stopping")
    assert not readiness.is_ready
    assert readiness.checks() == {"pods": "", "shutdown": "the service is stopping"}


FRESH, OLD, EMPTY = Part(is_ready=True), Part(is_ready=False, is_stale=True), Part(is_ready=False)


def test_stale_only_if_nothing_but_news_is_missing() -> None:
    assert Readiness(FRESH, OLD).is_stale
    assert not Readiness(FRESH).is_stale
    assert not Readiness(FRESH, OLD, EMPTY).is_stale
    assert not Readiness(OLD, replica=Turn(is_ready=False)).is_stale
    stopping = Readiness(OLD)
    stopping.block("shutdown", "the service is stopping")
    assert not stopping.is_stale


def test_a_replica_is_ready_when_it_is_its_turn() -> None:
    assert Readiness(FRESH, replica=Turn()).is_ready
    assert not Readiness(OLD, replica=Turn()).is_ready
    waiting = Readiness(FRESH, replica=Turn(is_ready=False))
    assert not waiting.is_ready
    assert waiting.checks() == {"leadership": "standby"}


def test_a_standby_is_ready_as_a_pod_unless_it_could_not_lead() -> None:
    standby = Readiness(Part(is_ready=True, missing={"pods": ""}), replica=Turn(is_ready=False))
    assert standby.pod_checks() == ({"pods": "", "leadership": ""}, {"leadership": "standby"})
    helpless = Readiness(FRESH, replica=Turn(is_ready=False, problem="403"))
    assert helpless.pod_checks() == ({"leadership": "standby"}, {})
    leader = Readiness(FRESH, replica=Turn())
    assert leader.pod_checks() == ({"leadership": ""}, {})


def test_the_pod_is_ready_once_what_it_serves_beside_the_scheduler_is() -> None:
    part = Part(is_ready=False, missing={"webhook endpoint": "not published yet"})
    readiness = Readiness(FRESH, beside=(part,))
    assert readiness.is_ready, "the scheduler is answered"
    assert readiness.pod_checks() == ({"webhook endpoint": "not published yet"}, {})


def test_the_index_is_current_whoever_leads() -> None:
    assert Readiness(FRESH, OLD, replica=Turn(is_ready=False)).is_current
    assert not Readiness(FRESH, EMPTY, replica=Turn()).is_current


def test_answers_go_out_while_stopping_but_not_when_it_is_anothers_turn() -> None:
    stopping = Readiness(FRESH, replica=Turn())
    stopping.block("shutdown", "the service is stopping")
    assert stopping.may_answer
    assert Readiness(EMPTY).may_answer
    assert not Readiness(FRESH, replica=Turn(is_leader=False)).may_answer
