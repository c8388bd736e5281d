"""What bounds moves when things go wrong: clocks that jump, lost watches, restarts, controllers that do nothing, and other tenants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from extender.features.execution.mover import LONGEST_PAUSE, ROUND_SECONDS, Mover
from extender.features.quotas.table import quota_table
from extender.index.cluster import ClusterIndex
from extender.kube.effects import PodRef
from extender.kube.errors import OverBudget, Rejected
from extender.model.bounded import Steps
from extender.model.constraints.labels import ZONE
from extender.model.objects import Object, Pod
from extender.model.policies import JsonObject, PolicyObject
from extender.rules.catalog import counts_of_rules
from tests.builders import namespace, node, pod, settings, spread, taint, term
from tests.contenders import budget
from tests.features.execution.test_mover import EVICT, NOW, OLD, Scene, askew, on_index, scene, two_of
from tests.features.execution.watching import ROOM, watch, web, zoned
from tests.features.quotas.tenants import limited
from tests.policies import policy

MINUTE, HOUR = 60.0, 3600.0


@asynccontextmanager
async def running(here: Scene) -> AsyncIterator[None]:
    task = asyncio.create_task(here.mover.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Any, steps: int = 5000) -> None:
    for _ in range(steps):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never happened")


class Times:
    """When the rounds of a mover begin and end."""

    def __init__(self, here: Scene) -> None:
        self.begun, self.ended = list[float](), list[float]()
        self._here, self._round = here, here.mover.round
        here.mover.round = self.round  # type: ignore[method-assign]

    async def round(self) -> None:
        self.begun.append(self._here.clock.time)
        await self._round()
        self.ended.append(self._here.clock.time)

    @property
    def pause(self) -> float:
        """After the first round."""
        return self.begun[1] - self.ended[0]


async def test_a_clock_that_jumps_during_a_round_does_not_lengthen_the_pause() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0))
    times, read = Times(here), here.writes.read_pod

    async def slow(pod: PodRef) -> JsonObject:
        here.clock.time += 7 * 24 * HOUR
        return await read(pod)

    here.writes.read_pod = slow  # type: ignore[method-assign]
    async with running(here):
        await until(lambda: here.writes.evicted and len(times.begun) > 3)
    lengths = [ended - begun for begun, ended in zip(times.begun, times.ended, strict=False)]
    assert max(lengths) >= 7 * 24 * HOUR
    pauses = [begun - ended for begun, ended in zip(times.begun[1:], times.ended, strict=False)]
    assert max(pauses) <= ROUND_SECONDS + 1


@pytest.mark.parametrize(("seconds", "least", "most"), [(0.0, 5, 6), (2.0, 18, 19), (100.0, LONGEST_PAUSE, 61)])
async def test_comparing_takes_a_tenth_of_the_time_at_most_and_the_pause_is_bounded(
    seconds: float, least: float, most: float
) -> None:
    here = scene(*zoned(1, 1, 1), *askew(1, 1, 1))

    def comparing(now: float) -> Steps[None]:  # noqa: ARG001 -- as the method
        here.clock.time += seconds
        yield

    here.mover.broken.round = comparing  # type: ignore[method-assign]
    times = Times(here)
    async with running(here):
        await until(lambda: len(times.begun) > 1)
    assert least <= times.pause <= most


async def test_while_a_watch_is_lost_no_move_begins_and_none_ends() -> None:
    here = scene(*zoned(1, 1, 1), *askew(3, 0, 0))
    complete = [True]
    here.mover = Mover(here.index, here.settings, here.writes, here.clock, lambda: NOW, lambda: complete[0])
    async with running(here):
        await until(lambda: here.writes.evicted)
        complete[0] = False
        # The pod is gone, and what the lost watch would show of its replacement is not known.
        here.delete("web-a0")
        begun = here.clock.time
        await until(lambda: here.clock.time > begun + HOUR, 50_000)
        assert (here.writes.evicted, here.states) == (["web-a0"], ["underWay"])
        assert here.index.reserved.held
        here.create("web-n0", "b0")
        complete[0] = True
        await until(lambda: len(here.writes.evicted) > 1)


async def test_a_controller_that_does_not_replace_pods_loses_few_of_them() -> None:
    """As with a controller manager that is down: the first pod, and then one after an hour, after three, after seven."""
    here = scene(*zoned(1, 1, 1), *askew(20, 0, 0))
    for _ in range(24 * 60):
        await here.rounds(1, seconds=MINUTE)
        for name in here.writes.evicted:
            if any(each.name == name for each in here.index.pods.values()):
                here.delete(name)
    assert len(here.writes.evicted) == 5
    assert {outcome for _, outcome in here.outcomes} == {"not_replaced"}
    assert here.waits == ["its controller has not replaced the last pod that was moved"]
    here.create("web-n0", "b0")
    await here.rounds(1)
    assert len(here.writes.evicted) == 6


async def test_an_eviction_that_fails_again_and_again_is_tried_less_and_less_often() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0))
    here.writes.error = Rejected("403", status=403)
    await here.rounds(24 * 60, seconds=MINUTE)
    # After 1, 2, 4 to 32 minutes, then each hour.
    assert len(here.outcomes) <= 7 + 23
    assert here.waits == ["the eviction failed: 403"]


async def test_a_controller_that_is_busy_meanwhile_is_blocked_as_long_as_before() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0))
    here.writes.error = Rejected("403", status=403)
    await here.rounds(10, seconds=MINUTE)
    tried = len(here.outcomes)
    here.create("web-n0")
    await here.rounds(10, seconds=MINUTE)
    assert len(here.outcomes) == tried
    here.delete("web-n0")
    await here.rounds(10, seconds=MINUTE)
    assert len(here.outcomes) <= tried + 1


async def test_what_controllers_have_done_is_forgotten_with_them() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0))
    here.writes.error = Rejected("403", status=403)
    await here.rounds(2, seconds=MINUTE)
    assert len(here.mover._blocks) == 1
    for pod_ in askew(2, 0, 0):
        here.index.delete(pod_)
    await here.rounds(5, seconds=MINUTE)
    assert (len(here.mover._blocks), here.mover._begun) == (0, {})


class Killed(Exception):  # noqa: N818 -- not an error
    """The process ends."""


@pytest.mark.parametrize("last", range(8))
async def test_a_restart_between_two_calls_moves_no_pod_twice(last: int) -> None:
    """The process is killed before its call number ``last``, or at its end; another one goes on."""
    here = scene(*zoned(1, 1, 1), *askew(3, 0, 0))
    calls = [0]

    def counted(call: Any) -> Any:
        async def counting(*arguments: Any) -> Any:
            if calls[0] == last:
                raise Killed
            calls[0] += 1
            return await call(*arguments)

        return counting

    read, evict, store = here.writes.read_pod, here.writes.evict, here.writes.write_moves
    here.writes.read_pod, here.writes.evict = counted(read), counted(evict)  # type: ignore[method-assign]
    here.writes.write_moves = counted(store)  # type: ignore[method-assign]
    replaced = 0
    for _ in range(40):
        try:
            await here.rounds(1)
        except Killed:
            here.writes.read_pod, here.writes.evict = read, evict  # type: ignore[method-assign]
            here.writes.write_moves = store  # type: ignore[method-assign]
            here.restart()
        ending = [each for each in here.index.pods.values() if each.terminating]
        assert len(ending) <= 1
        for each in ending:
            here.index.delete(each)
            here.create(f"web-n{replaced}", ["b0", "c0", "a0"][replaced])
            replaced += 1
    assert here.writes.evicted == ["web-a0", "web-a1"]
    assert here.states == []


async def test_nodes_that_come_and_go_each_minute_move_nothing() -> None:
    here = scene(*zoned(1, 1), *askew(2, 2), policy=watch(**{**EVICT, "after": "5m"}))
    flapping = node("c0", zone="c", allocatable=ROOM)
    for _ in range(120):
        here.index.upsert(flapping)
        await here.rounds(6, seconds=10)
        assert here.mover.broken.measure == 2
        here.index.delete(flapping)
        await here.rounds(1)
        assert here.mover.broken.measure == 0
    assert here.writes.evicted == []


@pytest.mark.parametrize("is_scaled_down", [True, False])
async def test_a_plan_is_not_carried_out_once_its_reason_is_gone(is_scaled_down: bool) -> None:  # noqa: FBT001
    """The controller is scaled down, or a preemption ends the pod, between the plan and its turn."""
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0), policy=watch(**{**EVICT, "after": "1m"}))
    await here.rounds(1)
    assert here.waits == ["broken for less than 60 s"]
    if is_scaled_down:
        here.delete("web-a1")
    else:
        victim = next(each for each in here.index.pods.values() if each.name == "web-a0")
        here.index.upsert(replace(victim, terminating=True, preempted=True))
    await here.rounds(5, seconds=MINUTE)
    assert here.writes.evicted == []


async def test_a_replacement_that_is_preempted_is_replaced_and_the_move_goes_on() -> None:
    here = scene(*zoned(1, 1, 1), *askew(3, 0, 0))
    await here.rounds(1)
    here.delete("web-a0")
    first = here.create("web-n0", "b0")
    here.writes.not_ready.add("web-n0")
    await here.rounds(1)
    here.index.upsert(replace(first, terminating=True, preempted=True))
    here.create("web-n1")
    await here.rounds(2)
    assert (here.states[0], here.writes.evicted) == ("underWay", ["web-a0"])
    here.delete("web-n0")
    here.delete("web-n1")
    here.create("web-n1", "c0")
    await here.rounds(1)
    assert here.outcomes == [("web-a0", "completed")]


RUDE: dict[str, Any] = {
    "every namespace": {"namespace_selector": {}},
    "a namespace that is listed": {"namespaces": ["default"]},
}


@pytest.mark.parametrize("reach", RUDE.values(), ids=RUDE)
async def test_anti_affinity_of_another_namespace_moves_no_pod(reach: dict[str, Any]) -> None:
    """A tenant creates a pod on the node, past the scheduler, with anti-affinity against all others."""
    rude = pod("rude", namespace="tenant", on="a0", app="rude", apart=[term("host", app="web", **reach)])
    mine = replace(web("web", "a0", spreads=[]), start_time=OLD)
    here = scene(*zoned(1, 1), namespace("default"), namespace("tenant"), mine, rude)
    await here.rounds(3, seconds=MINUTE)
    assert here.writes.evicted == []
    assert {row.why for row in here.mover.rows() if row.pod == "default/web"} == {
        "it is not moved for the anti-affinity of pods of other namespaces"
    }
    assert "anti-affinity of 1 pod of other namespaces excludes it in kubernetes.io/hostname=a0" in {
        row.broken for row in here.mover.rows()
    }


async def test_anti_affinity_within_a_namespace_and_own_terms_move_pods() -> None:
    inside = pod("db", on="a0", app="db", apart=[term("host", app="web", namespace_selector={})])
    mine = replace(web("web", "a0", spreads=[]), start_time=OLD)
    here = scene(*zoned(1, 1), namespace("default"), mine, inside)
    await here.rounds(1)
    assert here.writes.evicted == ["web"]
    other = pod("other", namespace="tenant", on="a0", app="other")
    own = replace(
        web("web", "a0", spreads=[], apart=[term("host", app="other", namespace_selector={})]), start_time=OLD
    )
    here = scene(*zoned(1, 1), namespace("default"), namespace("tenant"), own, other)
    await here.rounds(1)
    assert here.writes.evicted == ["web"]


async def test_a_tenant_whose_pods_are_always_broken_takes_no_turns_of_others() -> None:
    """Its pods come back to where they are broken, each minute with other labels, so each of its moves is a new one."""
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0), policy=watch(**{**EVICT, "maxPerMinute": 2}))

    def tenants(generation: int) -> list[Pod]:
        fields: dict[str, Any] = {
            "namespace": "tenant",
            "spreads": [spread("zone", app="web")],
            "turn": str(generation),
        }
        return [
            replace(web(f"t-{at}-{generation}", "a0", owner=("ReplicaSet", f"t-{at // 2}"), **fields), start_time=OLD)
            for at in range(40)
        ]

    for generation in range(10):
        for each in tenants(generation - 1):
            here.index.delete(each)
        for each in tenants(generation):
            here.index.upsert(each)
        await here.rounds(1, seconds=MINUTE)
    assert "web-a0" in here.writes.evicted[:2]
    assert len(here.writes.evicted) <= 2 * 10


def directing(name: str, part: str) -> PolicyObject:
    """A policy that wants pods with the pods of app db on a node, or never with them."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term("host", app="db")]}
    selected = {"matchLabels": {"app": "web"}}
    return PolicyObject(policy(name, when=["Scheduling"], podSelector=selected, affinity={part: required}))


async def test_two_policies_that_want_the_opposite_move_nothing() -> None:
    mine = replace(web("web", "a0", spreads=[]), start_time=OLD)
    both = [directing("near", "podAffinity"), directing("apart", "podAntiAffinity")]
    for on in ("a0", "b0"):
        here = scene(*zoned(1, 1), *both, mine, pod("db", on=on, app="db"))
        await here.rounds(30, seconds=MINUTE)
        assert here.writes.evicted == []
        assert [row.state for row in here.mover.rows()] == ["stuck"]
    here = scene(*zoned(1, 1), both[1], mine, pod("db", on="a0", app="db"))
    await here.rounds(1)
    assert here.writes.evicted == ["web"]


async def test_an_excluded_zone_that_returns_gets_pods_again() -> None:
    excluding = PolicyObject(
        policy("spread", when=["Scheduling"], spread=[{"topologyKey": ZONE, "unavailableDomains": "Exclude"}])
    )
    lost = node("c0", zone="c", allocatable=ROOM, taints=[taint("node.kubernetes.io/unreachable", effect="NoExecute")])
    here = scene(*zoned(1, 1), lost, excluding, *askew(3, 3))
    for _ in range(10):
        here.index.domains.step(here.clock.time)
        await here.rounds(1, seconds=MINUTE)
    assert (here.mover.broken.measure, here.writes.evicted) == (0, [])
    here.index.upsert(node("c0", zone="c", allocatable=ROOM))
    here.index.domains.step(here.clock.time)
    await here.rounds(1)
    assert (here.mover.broken.measure, here.writes.evicted) == (4, ["web-a0"])
    assert here.states[0] == "underWay"


async def test_a_quota_that_is_full_keeps_pods_where_they_are() -> None:
    """A pod counts until it is gone, and what it frees then is not kept for its replacement."""
    chosen = settings(policies={"enabled": True}, quota={"enabled": True})
    index = ClusterIndex(chosen.rules, counts_of_rules(), tables=(quota_table(chosen.quota),))
    here = on_index(index, chosen)
    apart: dict[str, Any] = {"spreads": [], "apart": [term("host", app="web", namespace_selector={})]}
    pods = [replace(web(f"web-{at}", "a0", **apart), start_time=OLD) for at in range(2)]
    there: list[Object] = [
        watch(**EVICT),
        namespace("default"),
        *zoned(1, 1),
        limited(2, in_namespace="default"),
        *pods,
    ]
    for each in there:
        index.upsert(each)
    await here.rounds(1)
    (why,) = {row.why for row in here.mover.rows()}
    assert why == "no node passes: 1 pod is over a quota for affinity across namespaces"
    assert here.writes.evicted == []
    index.upsert(limited(3, in_namespace="default"))
    await here.rounds(2, seconds=MINUTE)
    assert here.writes.evicted == ["web-0"]


async def test_a_scheduler_that_sends_no_requests_gets_one_move_in_vain_at_most() -> None:
    asking: set[str] = set()
    pods = [
        replace(each, scheduler=name, start_time=OLD)
        for name in ("silent", "asking")
        for at in range(3)
        for each in two_of(f"{name}-{at}", name)
    ]
    here = scene(*zoned(1, 6, 6), *pods)
    here.mover = Mover(
        here.index, here.settings, here.writes, here.clock, lambda: NOW, lambda: True, asks=asking.__contains__
    )
    await here.rounds(3)
    assert sorted(here.writes.evicted) == ["asking-0-0", "silent-0-0"]
    for name, on in (("asking-0", "b0"), ("silent-0", "a0")):  # the silent one goes back, past the extender
        here.delete(f"{name}-0")
        made = two_of(name, name.partition("-")[0])[0]
        here.index.upsert(
            replace(
                made, uid=f"new-{name}", name=f"{name}-new", node=on, scheduler=name.partition("-")[0], start_time=NOW
            )
        )
    await here.rounds(1)
    assert here.writes.evicted[2:] == ["asking-1-0"]
    assert "its scheduler silent places pods without the extender" in here.waits
    await here.rounds(60, seconds=MINUTE)
    assert not [name for name in here.writes.evicted[2:] if name.startswith("silent")]
    asking |= {"silent", "asking"}
    await here.rounds(1)
    assert [name for name in here.writes.evicted[2:] if name.startswith("silent")]


async def test_a_namespace_that_the_policy_selects_no_longer_loses_no_pod() -> None:
    selecting = PolicyObject(
        policy(
            "watch",
            when=["Execution"],
            namespaceSelector={"matchLabels": {"moves": "yes"}},
            execution={**EVICT, "after": "1m"},
        )
    )
    here = scene(*zoned(1, 1, 1), namespace("default", moves="yes"), *askew(2, 0, 0), policy=selecting)
    await here.rounds(1)
    assert here.waits == ["broken for less than 60 s"]
    here.index.upsert(namespace("default", moves="no"))
    await here.rounds(5, seconds=MINUTE)
    assert (here.writes.evicted, here.states) == ([], [])
    here.index.upsert(namespace("default", moves="yes"))
    await here.rounds(2, seconds=MINUTE)
    assert here.writes.evicted == ["web-a0"]


async def test_a_replacement_that_is_not_ready_is_read_less_and_less_often() -> None:
    here = scene(*zoned(1, 1, 1), *askew(3, 0, 0))
    await here.rounds(1)
    here.delete("web-a0")
    here.create("web-n0", "b0")
    here.writes.not_ready.add("web-n0")
    before = here.writes.reads
    await here.rounds(590, seconds=1.0)
    assert here.states[0] == "underWay"
    # A tenth of the time that the move has taken, at most 10 s.
    assert here.writes.reads - before <= 10 + 24 + 50
    here.writes.not_ready.clear()
    await here.rounds(11, seconds=1.0)
    assert here.outcomes[0] == ("web-a0", "completed")


async def test_a_budget_that_is_changed_after_hours_is_asked_within_minutes() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0))
    here.writes.error = OverBudget("429 web-pdb")
    for number in range(6 * 60):
        here.index.upsert(budget(f"other-{number}"))  # any change of a budget lets it be asked again
        await here.rounds(1, seconds=MINUTE)
    assert len(here.outcomes) <= 6 * 60 / 5 + 5
    here.writes.error = None
    here.index.upsert(budget("web-pdb"))
    await here.rounds(6, seconds=MINUTE)
    assert here.writes.evicted == ["web-a0"]


async def test_a_place_is_kept_while_the_evicted_pod_terminates() -> None:
    """A pod of a StatefulSet with a grace period of 20 minutes: its replacement comes only then."""
    here = scene(*zoned(1, 1, 1), *askew(3, 0, 0, owner=("StatefulSet", "web")))
    await here.rounds(20, seconds=MINUTE)
    assert (here.states[0], list(here.index.reserved.by_node)) == ("underWay", ["b0"])
    here.delete("web-a0")
    here.create("web-n0", "b0", owner=("StatefulSet", "web"))
    here.writes.not_ready.add("web-n0")
    await here.rounds(5, seconds=MINUTE)
    assert here.outcomes == []
    here.writes.not_ready.clear()
    await here.rounds(1, seconds=10)
    assert here.outcomes == [("web-a0", "completed")]


async def test_no_place_is_kept_for_ever_for_a_pod_that_never_ends() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0, owner=("StatefulSet", "web")))
    await here.rounds(70, seconds=MINUTE)
    assert here.outcomes == [("web-a0", "not_replaced")]
    assert not here.index.reserved.held


async def test_a_new_leader_begins_no_move_at_once() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0))
    begun = here.clock.time
    async with running(here):
        await until(lambda: here.waits or here.writes.evicted)
        assert (here.waits, here.writes.evicted) == (["this replica has just begun to lead"], [])
        await until(lambda: here.writes.evicted)
    assert ROUND_SECONDS <= here.clock.time - begun <= 4 * ROUND_SECONDS
