"""Leadership by a Lease: which replica takes it when, and for how long it is certain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import pytest

from extender.kube.effects import Lease
from extender.kube.errors import Conflict, Rejected, Unreachable
from extender.kube.writer import Writer
from extender.tasks.leader_election import LeadershipLost, LeaderTerm
from tests.fakes import FakeClock, every_sleep, until
from tests.tasks.electing import NOON, Leases, replica
from tests.tasks.elections import WEB, Job, Sent, Turns, held_by, running, until_leading, writer_of

DURATION, DEADLINE, RETRY = 15.0, 10.0, 2.0
LOOK = RETRY / 4 * 1.2  # a standby's longest pause


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(held=every_sleep)


@pytest.fixture
def leases(clock: FakeClock) -> Leases:
    return Leases(clock)


async def test_the_first_one_makes_the_lease_and_leads(leases: Leases) -> None:
    one = replica("one", leases)
    await one.leadership.look()
    assert one.leadership.is_leader
    assert leases.record
    assert leases.record == Lease(
        "kube-system", "extender", "one", 15, NOON, NOON, transitions=0, resource_version=leases.record.resource_version
    )


async def test_the_holder_renews_without_reading_first(clock: FakeClock, leases: Leases) -> None:
    one = replica("one", leases)
    async with running(one):
        await clock.advance(10 * RETRY)
        assert one.leadership.is_leader
    assert [call for call, _ in leases.calls] == ["get leases", "create leases"] + ["update leases"] * 10
    assert leases.record
    assert (leases.record.acquire_time, leases.record.transitions) == (NOON, 0)


async def test_a_dead_leader_is_replaced_when_its_lease_has_run_out_and_not_before(
    clock: FakeClock, leases: Leases
) -> None:
    one, two = replica("one", leases, now=lambda: NOON + timedelta(seconds=clock.time)), replica("two", leases)
    await one.leadership.look()
    async with running(two):
        async with running(one):
            await clock.advance(3 * RETRY)  # the last renewal is sent now
            died = clock.time
        await clock.advance(DURATION - 0.01)
        assert not two.leadership.is_leader
        await until_leading(clock, two.leadership, step=0.01)
        assert clock.time - died <= DURATION + LOOK
    assert leases.record
    assert (leases.record.holder, leases.record.transitions) == ("two", 1)


@pytest.mark.parametrize("years", [-10, 10], ids=["long ago", "in the future"])
async def test_the_clocks_of_others_do_not_matter(clock: FakeClock, leases: Leases, years: int) -> None:
    leases.record = held_by("other", renew_time=NOON + timedelta(days=365 * years))
    two = replica("two", leases)
    async with running(two):
        assert DURATION <= await until_leading(clock, two.leadership) <= DURATION + LOOK


async def test_our_own_wall_clock_may_jump_without_effect(clock: FakeClock, leases: Leases) -> None:
    one, two = replica("one", leases, now=lambda: NOON + timedelta(seconds=clock.time)), replica("two", leases)
    async with running(one, two):
        await clock.advance(RETRY)
        for found, days in ((one, -400), (two, 800), (one, 1200)):
            found.wall = timedelta(days=days)
            await clock.advance(DURATION)
            assert (one.leadership.is_leader, two.leadership.is_leader) == (True, False)


async def test_a_lease_is_kept_as_long_as_its_holder_says(clock: FakeClock, leases: Leases) -> None:
    leases.record = held_by("other", duration_seconds=40)
    two = replica("two", leases)
    async with running(two):
        assert 40 <= await until_leading(clock, two.leadership) <= 40 + LOOK


async def test_a_lease_that_was_given_back_is_taken_at_the_next_look(clock: FakeClock, leases: Leases) -> None:
    one, two = replica("one", leases), replica("two", leases)
    async with running(one, two):
        await clock.advance(RETRY)
        await one.leadership.release()
        assert leases.record
        assert (leases.record.holder, leases.record.duration_seconds, leases.record.transitions) == ("", 1, 0)
        assert await until_leading(clock, two.leadership) <= LOOK + 0.1
        await clock.advance(DURATION)
        assert not one.leadership.is_leader, "a replica that has given it back does not take it again"
    assert leases.record.transitions == 1


async def test_only_an_exact_identity_is_ours(leases: Leases) -> None:
    leases.record = held_by("one-2")
    one = replica("one", leases)
    await one.leadership.look()
    await one.leadership.release()
    assert not one.leadership.is_leader
    assert leases.record.holder == "one-2"


async def test_certainty_ends_with_the_renew_deadline_without_another_look(clock: FakeClock, leases: Leases) -> None:
    one = replica("one", leases)
    await one.leadership.look()
    clock.jump(DEADLINE - 0.01)
    before = one.leadership.is_leader
    clock.jump(0.01)
    assert (before, one.leadership.is_leader, one.leadership.term) == (True, False, None)


async def test_a_lost_apiserver_ends_leadership_in_time_for_the_next(clock: FakeClock, leases: Leases) -> None:
    one, two = replica("one", leases, now=lambda: NOON + timedelta(seconds=clock.time)), replica("two", leases)
    async with running(one, two):
        await clock.advance(RETRY)
        one.wire.is_cut = True
        await clock.advance(DEADLINE - 0.1)
        before = one.leadership.is_leader
        await clock.advance(0.2)
        assert (before, one.leadership.is_leader, two.leadership.is_leader) == (True, False, False)
        await until_leading(clock, two.leadership)
        one.wire.is_cut = False
        await clock.advance(DURATION)
        assert (one.leadership.is_leader, two.leadership.is_leader) == (False, True)


async def test_an_apiserver_that_comes_back_soon_changes_nothing(clock: FakeClock, leases: Leases) -> None:
    one = replica("one", leases)
    async with running(one):
        await clock.advance(RETRY)
        term = one.leadership.term
        leases.is_away = True
        await clock.advance(DEADLINE - RETRY - 0.1)
        leases.is_away = False
        await clock.advance(RETRY)
        assert one.leadership.term == term
        assert term is not None


async def test_a_process_that_was_stopped_finds_out_that_another_leads(clock: FakeClock, leases: Leases) -> None:
    one = replica("one", leases)
    await one.leadership.look()
    clock.jump(100)
    leases.edit(holder="two", transitions=1)
    await one.leadership.look()
    assert not one.leadership.is_leader
    assert one.leadership.holder == "two"


async def test_a_process_that_was_stopped_and_not_missed_leads_in_a_new_term(clock: FakeClock, leases: Leases) -> None:
    one = replica("one", leases)
    await one.leadership.look()
    before = one.leadership.term
    clock.jump(100)
    await one.leadership.look()
    after = one.leadership.term
    assert before
    assert after
    assert after != before
    assert (after.number, after.clear_since) == (before.number, float("-inf")), "no other replica can have led"


async def test_a_stolen_lease_ends_the_term_at_the_next_renewal(clock: FakeClock, leases: Leases) -> None:
    one = replica("one", leases)
    async with running(one):
        await clock.advance(RETRY / 2)
        leases.edit(holder="thief", transitions=1)
        await clock.advance(RETRY)
        assert not one.leadership.is_leader
        assert one.leadership.holder == "thief"


async def test_a_label_on_our_lease_costs_a_second_request_and_not_the_term(clock: FakeClock, leases: Leases) -> None:
    one = replica("one", leases)
    await one.leadership.look()
    term = one.leadership.term
    leases.edit(labels={"team": "a"})
    clock.jump(RETRY)
    await one.leadership.look()
    assert one.leadership.term == term
    assert [call for call, _ in leases.calls[-3:]] == ["update leases", "get leases", "update leases"]
    assert leases.record
    assert leases.record.labels == {"team": "a"}


async def test_a_label_on_anothers_lease_does_not_count_as_a_renewal(clock: FakeClock, leases: Leases) -> None:
    leases.record = held_by("dead")
    two = replica("two", leases)
    async with running(two):
        await clock.advance(DURATION / 2)
        leases.edit(labels={"team": "a"})
        assert await until_leading(clock, two.leadership) <= DURATION / 2 + LOOK


async def test_a_renewal_whose_answer_was_lost_is_ours_all_the_same(clock: FakeClock, leases: Leases) -> None:
    one = replica("one", leases)
    await one.leadership.look()
    term = one.leadership.term
    leases.lost = [Unreachable("timed out")]
    await one.leadership.look()
    clock.jump(RETRY)
    await one.leadership.look()
    assert one.leadership.term == term
    clock.jump(DEADLINE - 0.1)
    assert one.leadership.is_leader


async def test_a_creation_whose_answer_was_lost_is_ours_all_the_same(leases: Leases) -> None:
    one = replica("one", leases)
    leases.lost = [Unreachable("timed out")]
    await one.leadership.look()
    assert not one.leadership.is_leader
    await one.leadership.look()
    assert one.leadership.is_leader


async def test_of_two_that_take_a_lease_one_is_too_late(leases: Leases) -> None:
    one = replica("one", leases)
    leases.failures = []
    real = leases.objects.create_lease

    async def overtaken(lease: Lease) -> Lease:
        leases.record = held_by("two")
        return await real(lease)

    leases.objects.create_lease = overtaken  # type: ignore[method-assign]  # replaced for the test
    await one.leadership.look()
    assert not one.leadership.is_leader
    assert one.leadership.problem == "", "losing a race is no problem"
    await one.leadership.look()
    assert one.leadership.holder == "two"


async def test_a_removed_lease_is_made_again_with_a_higher_number(clock: FakeClock, leases: Leases) -> None:
    leases.record = held_by("")
    one = replica("one", leases)
    async with running(one):
        await clock.advance(RETRY / 2)
        first = one.leadership.term
        leases.record = None
        await clock.advance(RETRY)
        second = one.leadership.term
    assert first
    assert second
    assert (first.number, second.number) == (8, 9)


async def test_a_replica_that_could_not_answer_leaves_the_lease_to_others(clock: FakeClock, leases: Leases) -> None:
    one, two = replica("one", leases), replica("two", leases)
    one.may_lead = False
    async with running(one):
        await clock.advance(DURATION)
        assert leases.record is None
        async with running(two):
            await clock.advance(DURATION)
            assert two.leadership.is_leader
            one.may_lead = True
        await until_leading(clock, one.leadership)


async def test_a_rejection_is_kept_for_all_callers_and_logged_once(
    clock: FakeClock, leases: Leases, caplog: pytest.LogCaptureFixture
) -> None:
    one = replica("one", leases)
    leases.failures = [Rejected("403 leases is forbidden", status=403) for _ in range(5)]
    async with running(one):
        await clock.advance(1.0)
        assert one.leadership.problem == "403 leases is forbidden"
        await until_leading(clock, one.leadership)
        assert one.leadership.problem == ""
    assert [record.message for record in caplog.records].count("the Lease cannot be read or written") == 1


async def test_giving_back_what_cannot_be_reached_is_no_failure(leases: Leases) -> None:
    one = replica("one", leases)
    await one.leadership.look()
    leases.is_away = True
    await one.leadership.release()
    assert not one.leadership.is_leader


async def test_giving_back_waits_for_a_renewal_under_way(leases: Leases) -> None:
    """Else the renewal could come second, and the Lease would have to run out."""
    one = replica("one", leases)
    await one.leadership.look()
    gate, real = asyncio.Event(), leases.objects.update_lease

    async def slow(lease: Lease) -> Lease:
        await gate.wait()
        return await real(lease)

    leases.objects.update_lease = slow  # type: ignore[method-assign]  # replaced for the test
    renewal = asyncio.create_task(one.leadership.look())
    await asyncio.sleep(0)
    giving_back = asyncio.create_task(one.leadership.release())
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(renewal, giving_back)
    assert leases.record
    assert leases.record.holder == ""


CLEAR: dict[str, tuple[Callable[[], Lease | None], float, float]] = {
    "no replica has led yet": (lambda: None, 0.0, float("-inf")),
    "a Lease made by hand": (lambda: held_by("", renew_time=None, transitions=0), 0.0, float("-inf")),
    "given back": (lambda: held_by(""), 0.0, 0.0),
    "run out": (lambda: held_by("dead"), DURATION, -(DURATION - DEADLINE)),
}


@pytest.mark.parametrize("before", CLEAR)
async def test_a_term_knows_since_when_the_leader_before_cannot_have_answered(
    clock: FakeClock, leases: Leases, before: str
) -> None:
    make, wait, clear = CLEAR[before]
    leases.record = make()
    one = replica("one", leases)
    await one.leadership.look()
    clock.jump(wait)
    await one.leadership.look()
    term = one.leadership.term
    assert term
    assert term.clear_since - term.since == pytest.approx(clear)


async def test_conflicts_without_end_are_survived(clock: FakeClock, leases: Leases) -> None:
    one = replica("one", leases)
    async with running(one):
        await clock.advance(RETRY)
        leases.failures = [Conflict("409", status=409) if n % 2 == 0 else Unreachable("cut") for n in range(9)]
        await clock.advance(3 * DURATION)
        assert one.leadership.is_leader


# -- What was decided in one term is not written in another, and jobs live no longer than their term -------------------

FIRST, SECOND = LeaderTerm(4, 10.0, 10.0), LeaderTerm(6, 50.0, 50.0)
WRITES: dict[str, Callable[[Writer], object]] = {
    "PATCH": lambda writer: writer.nominate(WEB, "node-a"),
    "DELETE": lambda writer: writer.delete(WEB, 5),
    "POST": lambda writer: writer.bind(WEB, "node-a"),
}


@pytest.mark.parametrize("effect", WRITES)
async def test_a_leader_writes_and_a_standby_does_not(effect: str) -> None:
    sent, turns = Sent(), Turns()
    writer = writer_of(sent, turns)
    with pytest.raises(LeadershipLost, match="another replica leads"):
        await WRITES[effect](writer)  # type: ignore[misc]  # bound in the loop
    assert await writer.node_of(WEB) == "", "a standby reads"
    turns.become(FIRST)
    await WRITES[effect](writer)  # type: ignore[misc]  # bound in the loop
    assert sent.methods == ["GET", effect]


async def test_a_job_runs_once_in_every_term_and_is_cancelled_with_it() -> None:
    turns = Turns()
    job = Job(writer_of(Sent(), turns))
    running = asyncio.create_task(turns.run_while_leading(job.run))
    await asyncio.sleep(0)
    assert job.begun == 0
    for count, term in enumerate((FIRST, SECOND), 1):
        turns.become(term)
        await until(lambda count=count: job.begun == count)  # type: ignore[misc]  # bound in the loop
        turns.become(None)
        await until(lambda count=count: job.cancelled == count)  # type: ignore[misc]  # bound in the loop
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_writes_of_an_earlier_term_are_rejected_in_the_next() -> None:
    sent, turns = Sent(), Turns()
    job = Job(writer_of(sent, turns))
    running = asyncio.create_task(turns.run_while_leading(job.run))
    turns.become(FIRST)
    await until(lambda: job.begun == 1)
    turns.become(SECOND)
    await until(lambda: job.begun == 2)
    job.go.set()
    await until(lambda: job.rejected)
    assert (job.rejected, sent.methods) == (["decided in term 4, now is term 6"], [])
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_what_a_job_dies_of_comes_out() -> None:
    turns = Turns()
    turns.become(FIRST)

    async def fails() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await turns.run_while_leading(fails)
