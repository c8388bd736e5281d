"""Preemptions from the plan to the binding: phases, failures, and the end of each."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import msgspec
import pytest

from extender.kube.errors import Rejected, Unreachable
from extender.model.objects import Object
from tests.builders import taint
from tests.contenders import budget, contender, names, stage
from tests.tasks.preemption_scene import STUCK_AFTER, Scene, plan

INCOMING = contender("asking", priority=100)
VICTIM = contender("victim", on="n1")
OTHER = contender("other", on="n2")
NODES = (stage("n1"), stage("n2"))


def scene(*more: object, graceful: bool = True) -> Scene:
    return Scene(*NODES, INCOMING, VICTIM, OTHER, *more, graceful=graceful)  # type: ignore[arg-type]  # as the test gives it


async def test_a_preemption_and_its_nomination_last_from_the_writes_to_the_binding() -> None:
    def state() -> tuple[dict[str, int], int]:
        return s.phases(), s.index.statistics()["in_memory_nominations"]

    async with scene().running() as s:
        s.preempting.submit(plan(INCOMING, "n1", VICTIM))
        seen = [state()]
        await s.go()
        seen.append(state())
        s.api.remove("victim")
        await s.pass_time(0.2)
        seen.append(state())
        s.api.put(msgspec.structs.replace(s.shown("asking"), node="n1"))
        await s.pass_time(0.2)
        seen.append(state())
    assert seen == [({"executing": 1}, 1), ({"terminating": 1}, 1), ({"unbound": 1}, 1), ({}, 0)]
    assert s.counted.recorded == {"began": 1, "success": 1, "ended bound": 1}


@pytest.mark.parametrize(("written", "expected"), [("", "n1"), ("n2", "n2")], ids=["cleared", "another node"])
async def test_a_nomination_that_the_scheduler_changes_once_the_victims_are_deleted(
    written: str, expected: str
) -> None:
    """A nomination that it clears is written again. A node that it nominates takes the place of the first one."""
    async with scene().begun(plan(INCOMING, "n1", VICTIM)) as s:
        s.api.remove("victim")
        await s.pass_time(0.2)
        s.api.put(msgspec.structs.replace(s.shown("asking"), nominated_node=written))
        if not written:
            assert names(dict(s.index.view.nominated["n1"])) == ["asking"]
        await s.pass_time(1.2)
        assert s.shown("asking").nominated_node == expected
        assert names(dict(s.index.view.nominated[expected])) == ["asking"]


async def test_victims_that_are_going_anyway_are_not_counted_a_second_time() -> None:
    second, third = contender("second", priority=100), contender("third", priority=100)
    async with scene(second, third).running() as s:
        s.preempting.submit(plan(INCOMING, "n1", VICTIM))
        s.preempting.submit(plan(second, "n1", VICTIM))
        counted = [s.counted.victims]
        await s.go()
        await s.pass_time(0.2)
        s.preempting.submit(plan(third, "n1", s.shown("victim")))
        counted.append(s.counted.victims)
    assert counted == [1, 1]


async def test_a_second_plan_for_the_same_pod_starts_nothing_while_the_first_is_carried_out() -> None:
    async with scene().running() as s:
        taken = [s.preempting.submit(plan(INCOMING, "n1", VICTIM)), s.preempting.submit(plan(INCOMING, "n2", OTHER))]
        await s.go()
    assert taken == [True, False]
    assert s.api.names() == ["asking", "other"]


async def test_a_new_plan_replaces_one_whose_writes_are_done() -> None:
    async with scene(graceful=False).begun(plan(INCOMING, "n1", VICTIM)) as s:
        assert s.preempting.submit(plan(INCOMING, "n2", OTHER))
        await s.go()
    assert (s.shown("asking").nominated_node, s.counted.recorded["ended replaced"]) == ("n2", 1)


async def test_after_a_failure_the_nomination_is_taken_back_and_the_pod_is_woken() -> None:
    async with scene().running() as s:
        s.api.fail("delete", "victim", Rejected("422", status=422))
        s.preempting.submit(plan(INCOMING, "n1", VICTIM))
        await s.go()
    assert s.api.said("nominate asking") == ["nominate asking n1", "nominate asking -"]
    assert s.api.said("annotate") == ["annotate asking placement.extender.dev/requeued"]
    assert (s.phases(), s.index.statistics()["in_memory_nominations"]) == ({}, 0)
    assert s.counted.recorded == {"began": 1, "error": 1, "ended failed": 1}


async def test_a_nomination_that_cannot_be_taken_back_now_is_taken_back_later() -> None:
    async with scene().running() as s:
        s.api.fail("delete", "victim", Rejected("422", status=422))
        s.preempting.submit(plan(INCOMING, "n1", VICTIM))
        s.api.meanwhile("delete", "victim", lambda: s.api.fail("nominate", "asking", Rejected("422", status=422)))
        await s.go()
        assert s.phases() == {"to_requeue": 1}
        await s.pass_time(1.1)
    assert s.shown("asking").nominated_node == ""


async def test_a_surprise_in_one_plan_does_not_end_the_others() -> None:
    second = contender("second", priority=100)
    async with scene(second).running() as s:
        s.api.fail("condition", "victim", ZeroDivisionError())
        s.preempting.submit(plan(INCOMING, "n1", VICTIM))
        s.preempting.submit(plan(second, "n2", OTHER))
        await s.go()
        assert s.counted.recorded == {"began": 2, "error": 1, "success": 1, "ended failed": 1}


@pytest.mark.parametrize("how", ["bound elsewhere", "deleted"])
async def test_a_plan_without_need_is_abandoned_and_no_nomination_is_touched(how: str) -> None:
    async with scene().running() as s:
        if how == "deleted":
            s.api.remove("asking")
        else:
            s.api.put(msgspec.structs.replace(INCOMING, node="n2"))
        s.preempting.submit(plan(INCOMING, "n1", VICTIM))
        await s.go()
    assert s.counted.recorded["abandoned"] == 1
    assert s.api.said("annotate") + s.api.said("delete") == []
    assert s.index.statistics()["in_memory_nominations"] == 0


async def test_a_preemptor_that_stays_pending_though_the_room_is_there_gets_its_nomination_taken_back() -> None:
    async with scene(graceful=False).begun(plan(INCOMING, "n1", VICTIM)) as s:
        await s.pass_time(1)
        await s.pass_time(STUCK_AFTER - 1)
        before = s.shown("asking").nominated_node, s.phases()
        await s.pass_time(2)
        after = s.shown("asking").nominated_node, s.phases()
        s.api.put(msgspec.structs.replace(INCOMING, node="n2"))
        await s.pass_time(1)
    assert (before, after, s.phases()) == (("n1", {"unbound": 1}), ("", {"stuck": 1}), {})


async def test_a_preemptor_that_the_scheduler_does_not_ask_about_once_the_room_is_there_is_requeued_once() -> None:
    """A scheduler without QueueingHints does not try a pod again for its nomination alone."""
    async with scene(graceful=False).begun(plan(INCOMING, "n1", VICTIM)) as s:
        await s.pass_time(0.2)
        await s.pass_time(0.9)
        seen = [s.api.said("annotate")]
        for _ in range(3):
            await s.pass_time(0.2)
            seen.append(s.api.said("annotate"))
    requeued = ["annotate asking placement.extender.dev/requeued"]
    assert seen == [[], requeued, requeued, requeued]
    assert s.shown("asking").nominated_node == "n1"


async def test_a_preemptor_that_has_passed_since_is_not_requeued() -> None:
    async with scene(graceful=False).begun(plan(INCOMING, "n1", VICTIM)) as s:
        await s.pass_time(0.2)
        s.index.assume(INCOMING, ("n1",), s.clock.now())
        await s.pass_time(3)
    assert s.api.said("annotate") == []


async def test_the_nomination_is_written_a_moment_later_and_the_node_is_kept_meanwhile() -> None:
    """The scheduler writes its condition of the preemptor in that moment."""
    written: list[float] = []
    async with scene().running() as s:
        begun = s.clock.time
        s.api.meanwhile("nominate", "asking", lambda: written.append(s.clock.time))
        s.preempting.submit(plan(INCOMING, "n1", VICTIM))
        assert [*s.index.view.nominated] == ["n1"]
        await s.go()
    assert [0.04 < at - begun < 0.1 for at in written] == [True]


async def test_victims_may_take_their_time_to_go() -> None:
    async with scene().begun(plan(INCOMING, "n1", VICTIM)) as s:
        await s.pass_time(STUCK_AFTER, 10)
        assert (s.phases(), s.shown("asking").nominated_node) == ({"terminating": 1}, "n1")


async def test_a_nomination_that_the_scheduler_wiped_is_made_again() -> None:
    async with scene().begun(plan(INCOMING, "n1", VICTIM)) as s:
        s.api.put(msgspec.structs.replace(s.shown("asking"), nominated_node=""))
        await s.pass_time(0.5)
        too_early = s.shown("asking").nominated_node
        await s.pass_time(1)
    assert (too_early, s.shown("asking").nominated_node) == ("", "n1")


async def test_a_nomination_that_never_shows_is_made_again_once_a_second() -> None:
    """Not at every look: the watch needs its time to show what was written."""
    async with scene().begun(plan(INCOMING, "n1", VICTIM)) as s:
        for _ in range(17):
            s.api.put(msgspec.structs.replace(s.shown("asking"), nominated_node=""))
            await s.pass_time(0.2)
    assert len(s.api.said("nominate asking n1")) == 1 + 3


async def test_a_nomination_that_a_more_important_pod_displaced_is_not_made_again() -> None:
    higher = contender("higher", priority=200)
    async with scene(higher).begun(plan(INCOMING, "n1", VICTIM)) as s:
        s.preempting.submit(plan(higher, "n1", VICTIM, displaced=(s.shown("asking"),)))
        await s.go()
        await s.pass_time(5)
    assert (s.shown("asking").nominated_node, s.shown("higher").nominated_node) == ("", "n1")


class TestLostRoom:
    """A preemptor that its node takes no longer, whatever victims leave it, gives the node back at once."""

    LARGE = contender("large", priority=100, cpu=4000)
    LOW = contender("low", on="n1", cpu=4000)
    FILLS = contender("higher", on="n1", priority=200, cpu=4000)
    LOSSES: ClassVar[dict[str, Object]] = {
        "filled": FILLS,
        "cordoned": stage("n1", unschedulable=True),
        "tainted": stage("n1", taints=[taint("gone", effect="NoExecute")]),
        "shrunk": stage("n1", cpu=2000),
    }

    def scene(self) -> Scene:
        """One preemption, whose victim terminates."""
        return Scene(*NODES, self.LARGE, self.LOW)

    @pytest.mark.parametrize("how", [*LOSSES, "deleted"])
    @pytest.mark.parametrize("victims", ["terminating", "gone"])
    async def test_the_preemption_ends_and_the_preemptor_is_requeued(self, how: str, victims: str) -> None:
        async with self.scene().begun(plan(self.LARGE, "n1", self.LOW)) as s:
            if victims == "gone":
                s.api.remove("low")
                await s.pass_time(0.2)
            if how == "deleted":
                s.index.delete(stage("n1"))
            else:
                s.api.put(self.LOSSES[how])
            await s.pass_time(0.2, 4)
        assert (s.phases(), s.index.statistics()["in_memory_nominations"]) == ({}, 0)
        assert s.counted.recorded["ended lost"] == 1
        assert s.api.effects[-2:] == ["nominate large -", "annotate large placement.extender.dev/requeued"]

    async def test_pods_of_lower_priority_that_fit_beside_the_new_pod_pass_and_are_tried_again(self) -> None:
        """kube-scheduler has cleared the nomination already: only a new one that is cleared makes it try them."""
        async with self.scene().begun(plan(self.LARGE, "n1", self.LOW)) as s:
            s.api.remove("low")
            await s.pass_time(0.2)
            s.api.put(contender("higher", on="n1", priority=200, cpu=2000))
            s.api.put(msgspec.structs.replace(s.shown("large"), nominated_node=""))
            small = {"name": "small", "cpu": 1000}
            assert list(s.filter("n1", **small).passed) == ["n1"], "asked about before the loss is found"
            s.api.effects.clear()
            await s.pass_time(0.2, 4)
            assert list(s.filter("n1", **small).passed) == ["n1"]
        assert s.api.said("nominate large") == ["nominate large n1", "nominate large -"]

    async def test_a_loss_that_does_not_last_ends_nothing(self) -> None:
        """Another pod may be assumed there whose binding fails."""
        async with self.scene().begun(plan(self.LARGE, "n1", self.LOW)) as s:
            s.api.remove("low")
            await s.pass_time(0.2)
            for _ in range(4):
                s.api.put(self.FILLS)
                await s.pass_time(0.2)
                s.api.remove("higher")
                await s.pass_time(0.2)
            assert s.phases() == {"unbound": 1}

    async def test_the_room_of_a_preemptor_that_has_passed_is_its_own(self) -> None:
        async with self.scene().begun(plan(self.LARGE, "n1", self.LOW)) as s:
            s.api.remove("low")
            await s.pass_time(0.2)
            s.index.assume(s.shown("large"), ("n1",), s.clock.now())
            await s.pass_time(0.2, 4)
            assert s.phases() == {"unbound": 1}

    async def test_a_preemption_that_the_index_does_not_explain_is_not_found_lost(self) -> None:
        beyond = contender("beyond", priority=100, cpu=9000)
        async with Scene(*NODES, beyond, self.LOW).begun(plan(beyond, "n1", self.LOW)) as s:
            await s.pass_time(0.2, 4)
            assert s.phases() == {"terminating": 1}
            s.api.remove("low")
            await s.pass_time(0.2, 5)
            assert s.phases() == {}, "now there is nothing to wait for"

    async def test_one_that_the_scheduler_nominates_elsewhere_keeps_that_nomination(self) -> None:
        async with self.scene().begun(plan(self.LARGE, "n1", self.LOW)) as s:
            s.api.remove("low")
            s.api.put(self.FILLS)
            s.api.put(msgspec.structs.replace(s.shown("large"), nominated_node="n2"))
            await s.pass_time(0.2, 4)
        assert (s.phases(), s.shown("large").nominated_node) == ({}, "n2")

    async def test_of_many_preemptions_each_has_its_turn(self) -> None:
        """A sweep looks at no more nodes than it has time for."""
        count = 50
        pods = [contender(f"large-{at}", priority=100, cpu=4000) for at in range(count)]
        lows = [contender(f"low-{at}", on=f"m{at}", cpu=4000) for at in range(count)]
        async with Scene(*(stage(f"m{at}") for at in range(count)), *pods, *lows).running() as s:
            for large, low in zip(pods, lows, strict=True):
                s.preempting.submit(plan(large, low.node, low))
            await s.go()
            for at in range(count):
                s.api.put(stage(f"m{at}", unschedulable=True))
            await s.pass_time(0.2)
            await s.pass_time(0.2, 9)
        assert s.phases() == {}


class TestDrain:
    """On the way down what has begun is finished and nothing more is taken on."""

    async def test_what_is_being_carried_out_is_finished_first(self) -> None:
        async with scene().running() as s:
            s.preempting.submit(plan(INCOMING, "n1", VICTIM))
            await s.preempting.drain()
            assert s.counted.recorded["success"] == 1

    async def test_nothing_more_is_taken_on(self) -> None:
        s = scene()
        await s.preempting.drain()
        assert not s.preempting.submit(plan(INCOMING, "n1", VICTIM))
        assert s.index.statistics()["in_memory_nominations"] == 0


async def test_what_a_leader_had_begun_or_planned_is_forgotten_when_it_leads_no_longer() -> None:
    second = contender("second", priority=100)
    s = scene(second)
    async with s.running():
        s.preempting.submit(plan(INCOMING, "n1", VICTIM))
        await s.go()
        s.preempting.submit(plan(second, "n2", OTHER))
    assert (s.phases(), s.index.statistics()["in_memory_nominations"]) == ({}, 0)
    async with s.running():
        await s.go()
    assert "other" in s.api.names()


class TestRestart:
    """A new leader finds what the old one left and finishes it, or lets it be."""

    @staticmethod
    async def cut_off(verb: str, name: str) -> Scene:
        """A leader that is cut off at this write, and the next leader on the same cluster."""
        second = contender("victim2", on="n1", priority=-1)
        async with scene(second).running() as old:
            reached = asyncio.Event()
            old.api.meanwhile(verb, name, reached.set)
            old.api.fail(verb, name, Unreachable("cut"))
            old.preempting.submit(plan(INCOMING, "n1", VICTIM, second))
            await reached.wait()
        assert old.counted.recorded["cancelled"] == 1
        assert old.index.statistics()["in_memory_nominations"] == 0
        return Scene(api=old.api)

    @pytest.mark.parametrize("verb", ["condition", "delete"])
    async def test_marked_victims_of_a_nominated_pod_are_finished(self, verb: str) -> None:
        s = await self.cut_off(verb, "victim")
        marked = [each.name for each in s.api.pods.values() if each.preempted and not each.terminating]
        async with s.running():
            assert s.preempting.recover() == bool(marked)
            await s.go()
        assert set(marked).isdisjoint(s.api.names())
        assert s.shown("asking").nominated_node == "n1"

    @pytest.mark.parametrize(
        ("cpu", "resumed", "left"), [(2000, 1, ["asking"]), (4000, 0, ["asking", "first", "second"])]
    )
    async def test_victims_that_were_not_marked_yet_are_added_and_none_goes_in_vain(
        self, cpu: int, resumed: int, left: list[str]
    ) -> None:
        incoming = contender("asking", priority=100, cpu=cpu, nominated="n1")
        first = contender("first", on="n1", cpu=1000, preempted=True)
        second = contender("second", on="n1", cpu=1000)
        s = Scene(stage("n1", cpu=2000), incoming, first, second)
        async with s.running():
            assert s.preempting.recover() == resumed
            await s.go()
            await s.pass_time(1.1)
        assert s.api.names() == left
        assert s.shown("asking").nominated_node == ("n1" if resumed else "")

    async def test_a_nomination_without_any_marked_victim_is_ended_so_that_the_scheduler_asks_again(self) -> None:
        s = Scene(*NODES, msgspec.structs.replace(INCOMING, nominated_node="n1"), VICTIM)
        async with s.running():
            assert s.preempting.recover() == 0
            await s.pass_time(1.1)
        assert (s.shown("asking").nominated_node, s.api.names()) == ("", ["asking", "victim"])

    NOMINATED = msgspec.structs.replace(INCOMING, nominated_node="n1")
    LEFT: ClassVar[dict[str, tuple[Object, Object]]] = {
        "no pod is nominated": (INCOMING, msgspec.structs.replace(VICTIM, preempted=True)),
        "a pod of equal priority": (NOMINATED, contender("peer", on="n1", priority=100, preempted=True)),
        "a victim that terminates": (NOMINATED, msgspec.structs.replace(VICTIM, preempted=True, terminating=True)),
    }

    @pytest.mark.parametrize("pods", LEFT.values(), ids=LEFT)
    async def test_other_marked_victims_are_left_alone(self, pods: tuple[Object, Object]) -> None:
        s = Scene(*NODES, *pods)
        async with s.running():
            assert s.preempting.recover() == 0
            await s.pass_time(5)
        assert s.api.effects == []


class TestRequeue:
    """A preemptor for which nothing could be planned is requeued, ever more rarely."""

    async def test_the_waits_double(self) -> None:
        s = scene()
        woken = []
        for _ in range(3):
            s.preempting.requeue(INCOMING, "n1")
            for second in range(10):
                s.api.effects.clear()
                await s.pass_time(1)
                if s.api.effects:
                    woken.append((second + 1, list(s.api.effects)))
        writes = ["nominate asking n1", "nominate asking -", "annotate asking placement.extender.dev/requeued"]
        assert woken == [(1, writes), (2, writes), (4, writes)]

    async def test_a_pod_that_is_placed_or_gone_is_forgotten(self) -> None:
        s = scene()
        s.preempting.requeue(INCOMING, "n1")
        s.api.put(msgspec.structs.replace(INCOMING, node="n2"))
        await s.pass_time(1)
        assert (s.api.effects, s.phases()) == ([], {})

    async def test_a_pod_that_has_got_a_plan_meanwhile_is_left_alone(self) -> None:
        s = scene()
        s.preempting.requeue(INCOMING, "n1")
        s.preempting.submit(plan(INCOMING, "n1", VICTIM))
        await s.pass_time(1)
        assert s.api.effects == []


async def test_room_for_a_group_is_made_without_a_nomination_of_the_pod_at_its_gate() -> None:
    async with scene().running() as s:
        assert await s.preempting.make_room(INCOMING, [VICTIM, OTHER])
        assert {s.shown(name).terminating for name in ("victim", "other")} == {True}
        assert s.shown("asking").nominated_node == ""
        assert s.index.statistics()["in_memory_nominations"] == 0
        assert not await s.preempting.make_room(INCOMING, [])
    assert (s.counted.recorded, s.counted.victims) == ({"began": 1, "success": 1}, 2)


async def test_room_for_a_group_is_not_made_where_a_victim_cannot_be_removed() -> None:
    async with scene().running() as s:
        s.api.fail("delete", "victim", Rejected("422", status=422))
        assert not await s.preempting.make_room(INCOMING, [VICTIM])
        assert not s.shown("victim").terminating
    assert s.counted.recorded == {"began": 1, "error": 1}


async def test_no_pod_is_removed_for_a_group_where_budgets_forbid_the_eviction() -> None:
    protected = contender("victim", on="n1", app="db")
    evicting = Scene(*NODES, INCOMING, protected, budget(allowed=0, app="db"), preemption={"eviction": "evict"})
    async with evicting.running() as s:
        assert not await s.preempting.make_room(INCOMING, [protected])
        assert not s.shown("victim").terminating
