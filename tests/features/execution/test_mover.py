"""The life of a move: what it waits for, what is claimed and evicted, how it ends, and what follows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from extender.features.execution.building import states_of_policies
from extender.features.execution.directive import PAUSED_ANNOTATION
from extender.features.execution.mover import Mover
from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.kube.effects import ObjectEvent, PodRef
from extender.kube.errors import Conflict, KubeError, NotFound, OverBudget, Rejected, Unreachable
from extender.model.objects import Object, Pod
from extender.model.policies import JsonObject, PolicyKey, PolicyObject
from extender.settings.configuration import Settings
from extender.wire.policies.policies_v1 import read_policy
from tests.builders import extender_args, index_of, node, pod_json, settings, spread, term
from tests.deciding import filter_nodes
from tests.fakes import FakeClock
from tests.features.execution.watching import ROOM, SETTINGS, SPREAD, watch, web, zoned
from tests.policies import policy_json

EVICT: dict[str, Any] = {"mode": "Evict", "after": "0s", "minAge": "0s"}
OLD = datetime(2025, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Writes:
    """An API server that knows the pods of an index."""

    index: ClusterIndex
    evicted: list[str] = field(default_factory=list)
    not_ready: set[str] = field(default_factory=set)
    annotations: dict[str, dict[str, str]] = field(default_factory=dict)
    error: KubeError | None = None
    store_error: KubeError | None = None
    reads: int = 0
    calls: list[str] = field(default_factory=list)

    async def read_pod(self, pod: PodRef) -> JsonObject:
        self.reads += 1
        if pod.uid not in self.index.pods:
            raise NotFound("gone")
        ready = "False" if pod.name in self.not_ready else "True"
        return {
            "metadata": {"uid": pod.uid, "annotations": self.annotations.get(pod.name, {})},
            "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }

    async def evict(self, pod: PodRef, grace_seconds: int | None = None) -> None:
        assert grace_seconds is None
        if self.error is not None:
            raise self.error
        self.evicted.append(pod.name)
        self.calls.append(f"evict {pod.name}")
        self.index.upsert(replace(self.index.pods[pod.uid], terminating=True))

    async def write_moves(self, policy: PolicyKey, moves: Sequence[JsonObject]) -> None:
        if self.store_error is not None:
            raise self.store_error
        known = self.index.policies.get(policy)
        if known is None:
            raise NotFound("no policy")
        self.calls.append(f"store {' '.join(move['pod'] for move in moves)}")
        self.index.upsert(PolicyObject(known, moves=tuple(moves)))


@dataclass
class Scene:
    """A mover on a cluster, and what the controller and the scheduler do."""

    index: ClusterIndex
    mover: Mover
    writes: Writes
    clock: FakeClock
    outcomes: list[tuple[str, str]]
    events: list[ObjectEvent]
    settings: Settings

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.clock.time)

    def restart(self) -> None:
        """The process is killed, and another one leads. It knows what the watch shows."""
        for key in list(self.index.reserved.keys):
            self.index.reserved.release(key)
        self.mover = Mover(
            self.index, self.settings, self.writes, self.clock, self.now, lambda: True, self.mover._ended
        )
        self.mover.recover()

    async def rounds(self, count: int = 1, seconds: float = 1.0) -> None:
        for _ in range(count):
            self.clock.time += seconds
            await self.mover.round()

    def delete(self, name: str) -> None:
        (pod,) = [pod for pod in self.index.pods.values() if pod.name == name]
        self.index.delete(pod)

    def create(self, name: str, on: str = "", **fields: Any) -> Pod:
        """What the controller creates, and where the scheduler binds it."""
        pod = replace(web(name, on, **fields), start_time=self.now() if on else None)
        self.index.upsert(pod)
        return pod

    @property
    def waits(self) -> list[str]:
        return [row.why for row in self.mover.rows() if row.state == "waiting"]

    @property
    def states(self) -> list[str]:
        return [row.state for row in self.mover.rows()]


def scene(
    *objects: Object, policy: PolicyObject | None = None, chosen: Settings = SETTINGS, is_complete: bool = True
) -> Scene:
    return on_index(index_of(policy or watch(**EVICT), *objects), chosen, is_complete=is_complete)


def on_index(index: ClusterIndex, chosen: Settings, *, is_complete: bool = True) -> Scene:
    clock = FakeClock()
    writes, outcomes = Writes(index), list[tuple[str, str]]()

    def ended(outcome: str, move: Any, _seconds: float) -> None:
        outcomes.append((move.pod.name, str(outcome)))

    events: list[ObjectEvent] = []

    def record(event: ObjectEvent, _about: object) -> None:
        events.append(event)

    def now() -> datetime:
        return NOW + timedelta(seconds=clock.time)

    mover = Mover(index, chosen, writes, clock, now, lambda: is_complete, ended, record)
    return Scene(index, mover, writes, clock, outcomes, events, chosen)


def askew(*counts: int, **fields: Any) -> list[Pod]:
    named = [(zone, number) for zone, pods in zip("abc", counts, strict=False) for number in range(pods)]
    return [replace(web(f"web-{zone}{number}", f"{zone}0", **fields), start_time=OLD) for zone, number in named]


async def test_one_pod_of_a_controller_after_the_other() -> None:
    here = scene(*zoned(1, 1, 1), *askew(3, 0, 0))
    await here.rounds(3)
    assert (here.writes.evicted, here.states[0]) == (["web-a0"], "underWay")
    here.create("web-n0", "b0")
    here.delete("web-a0")
    here.writes.not_ready.add("web-n0")
    await here.rounds(3)
    assert here.writes.evicted == ["web-a0"], "the replacement is not ready"
    here.writes.not_ready.clear()
    await here.rounds(1)
    assert here.outcomes == [("web-a0", "completed")]
    assert here.writes.evicted == ["web-a0", "web-a1"]
    here.create("web-n1", "c0")
    here.delete("web-a1")
    await here.rounds(5)
    assert (here.outcomes, here.states) == ([("web-a0", "completed"), ("web-a1", "completed")], [])
    assert not here.index.reserved.held


def nodes_for(here: Scene, name: str, **fields: Any) -> list[str]:
    """Where filter lets a new pod go."""
    return sorted(
        filter_nodes(extender_args(pod_json(name, **fields), "a0", "b0", "c0"), here.index.view, SETTINGS, 0).passed
    )


REPLICA: dict[str, Any] = {"app": "web", "owner": ("ReplicaSet", "web"), "spreads": SPREAD}
LARGE: dict[str, Any] = {"requests": {"cpu": "5"}}


async def test_the_place_of_the_replacement_is_kept_and_only_the_replacement_gets_it() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0, **LARGE))
    await here.rounds(1)
    assert here.index.reserved.by_node.keys() == {"b0"}
    # kube-scheduler, which knows the room of a0 and not the claim on b0, leaves out a0 itself.
    assert nodes_for(here, "other", **LARGE) == ["a0", "c0"]
    assert nodes_for(here, "small", requests={"cpu": "1"}) == ["a0", "b0", "c0"]
    assert nodes_for(here, "web-n0", **REPLICA, **LARGE) == ["b0"]
    # Also after the evicted pod is gone, and for other pods in between.
    here.delete("web-a0")
    assert nodes_for(here, "other", **LARGE) == ["a0", "c0"]
    assert nodes_for(here, "web-n0", **REPLICA, **LARGE) == ["b0"]
    here.create("web-n0", "b0", **LARGE)
    await here.rounds(1)
    assert not here.index.reserved.by_node


async def test_the_audit_takes_a_place_that_is_kept_for_no_wrong_count() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0, **LARGE))
    await here.rounds(1)
    assert here.index.reserved.by_node.keys() == {"b0"}
    assert audit(here.index) == []
    here.delete("web-a0")
    assert audit(here.index) == []
    here.create("web-n0", "b0", **LARGE)
    await here.rounds(1)
    assert audit(here.index) == []


async def test_an_assumed_replacement_keeps_its_place_until_it_is_bound() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0))
    await here.rounds(1)
    here.delete("web-a0")
    pod = here.create("web-n0")
    here.index.assume(pod, ["b0"], here.clock.now())
    await here.rounds(1)
    assert here.index.reserved.by_node.keys() == {"b0"}
    here.index.delete(pod)
    here.index.assume(replace(pod, uid="never-shown"), ["b0"], here.clock.now())
    await here.rounds(1)
    assert (here.outcomes, here.states) == ([], ["underWay"])


async def test_a_replacement_whose_place_is_lost_is_decided_anew() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0))
    await here.rounds(1)
    here.delete("web-a0")
    here.create("web-n0")
    here.index.upsert(node("b0", zone="b", allocatable=ROOM, unschedulable=True))
    assert nodes_for(here, "web-n0", uid="uid-web-n0", **REPLICA) in ([], ["b0"])
    await here.rounds(1)
    assert not here.index.reserved.held
    assert "c0" in nodes_for(here, "web-n0", uid="uid-web-n0", **REPLICA)
    here.create("web-n0", "c0")
    await here.rounds(1)
    assert here.outcomes == [("web-a0", "completed")]


async def test_a_move_in_vain_stops_its_controller_until_something_changes() -> None:
    here = scene(*zoned(1, 1, 1), *askew(3, 0, 0))
    await here.rounds(1)
    here.delete("web-a0")
    here.create("web-n0", "a0")  # something else bound it where it was
    await here.rounds(1)
    assert here.outcomes == [("web-a0", "in_vain")]
    await here.rounds(20, seconds=60)
    assert here.writes.evicted == ["web-a0"]
    assert here.waits == ["the last move of its controller was in vain"]
    here.index.upsert(node("c1", zone="c", allocatable=ROOM))
    await here.rounds(1, seconds=60)
    assert len(here.writes.evicted) == 2


REFUSALS: dict[str, tuple[KubeError, str]] = {
    "a budget": (OverBudget("429 web-pdb"), "refused"),
    "another pod of the name": (Conflict("409"), "failed"),
    "a missing permission": (Rejected("403", status=403), "failed"),
}


@pytest.mark.parametrize(("error", "outcome"), REFUSALS.values(), ids=REFUSALS)
async def test_an_eviction_that_is_refused_keeps_no_place(error: KubeError, outcome: str) -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0))
    here.writes.error = error
    await here.rounds(1)
    assert (here.outcomes, here.writes.evicted) == ([("web-a0", outcome)], [])
    assert not here.index.reserved.held
    assert not here.mover.under_way


async def test_a_refused_eviction_waits_for_the_budget() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0))
    here.writes.error = OverBudget("429 web-pdb")
    await here.rounds(30, seconds=60)
    assert here.outcomes == [("web-a0", "refused")]
    assert here.waits == ["a disruption budget forbids it: 429 web-pdb"]


async def test_an_eviction_without_an_answer_may_have_happened() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0))
    here.writes.error = Unreachable("no answer")
    await here.rounds(1)
    assert here.states == ["underWay"]
    await here.rounds(4, seconds=10)
    assert here.outcomes == [("web-a0", "failed")], "the pod stays"


async def test_a_controller_that_makes_no_new_pod_ends_the_move() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0))
    await here.rounds(1)
    here.delete("web-a0")
    await here.rounds(6, seconds=60)
    assert here.outcomes == [("web-a0", "not_replaced")]
    assert not here.index.reserved.held


async def test_a_replacement_that_never_becomes_ready_ends_the_move() -> None:
    here = scene(*zoned(1, 1, 1), *askew(3, 0, 0))
    await here.rounds(1)
    here.delete("web-a0")
    here.create("web-n0", "b0")
    here.writes.not_ready.add("web-n0")
    await here.rounds(11, seconds=60)
    assert here.outcomes == [("web-a0", "not_ready")]
    assert here.writes.evicted == ["web-a0"]


WAITS: dict[str, tuple[dict[str, Any], str]] = {
    "the policy reports": ({"mode": "Report"}, "the policy only reports"),
    "after": ({"after": "5m"}, "broken for less than 300 s"),
}


@pytest.mark.parametrize(("execution", "expected"), WAITS.values(), ids=WAITS)
async def test_what_a_move_waits_for(execution: dict[str, Any], expected: str) -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0), policy=watch(**{**EVICT, **execution}))
    await here.rounds(1)
    assert (here.waits, here.writes.evicted) == ([expected], [])


async def test_after_the_time_the_move_begins() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0), policy=watch(**{**EVICT, "after": "5m"}))
    await here.rounds(5, seconds=59)
    assert here.writes.evicted == []
    await here.rounds(2, seconds=60)
    assert here.writes.evicted == ["web-a0"]


async def test_a_pause_begins_no_move() -> None:
    paused = watch(**EVICT)
    assert paused.source is None
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0), policy=watch_paused())
    await here.rounds(2)
    assert (here.waits, here.writes.evicted) == (["the moves of the policy are paused"], [])


async def test_what_a_pod_says_is_read_before_it_is_moved() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0))
    here.writes.annotations = {f"web-a{at}": {"karpenter.sh/do-not-disrupt": "true"} for at in range(2)}
    await here.rounds(4)
    assert here.writes.evicted == []
    assert [row.why for row in here.mover.rows()] == ["annotation karpenter.sh/do-not-disrupt forbids it"]


@pytest.mark.parametrize("busy", ["pending", "terminating", "not ready"])
async def test_a_controller_that_is_busy_is_waited_for(busy: str) -> None:
    """As after a restart: the pods show that a move is under way."""
    here = scene(*zoned(1, 1, 1), *askew(3, 0, 0))
    if busy == "pending":
        here.create("web-n0")
    elif busy == "terminating":
        here.index.upsert(replace(web("web-t", "c0"), terminating=True))
    else:
        here.create("web-n0", "b0")
        here.writes.not_ready.add("web-n0")
    await here.rounds(3)
    assert here.writes.evicted == []
    assert here.waits[0] in (
        "its controller has pods that are terminating or pending",
        "another pod of its controller is not ready",
    )


def controllers(count: int, namespaces: int = 1) -> list[Pod]:
    """So many controllers with two pods on one node, which exclude each other."""
    return [replace(pod, start_time=OLD) for at in range(count) for pod in two_of(f"app-{at}", f"ns-{at % namespaces}")]


def two_of(name: str, namespace: str) -> list[Pod]:
    fields: dict[str, Any] = {
        "app": name,
        "owner": ("ReplicaSet", name),
        "spreads": [],
        "apart": [term("host", app=name)],
    }
    return [web(f"{name}-{at}", "a0", namespace=namespace, **fields) for at in range(2)]


async def test_so_many_moves_at_a_time_and_in_a_minute() -> None:
    pods = controllers(6)
    here = scene(*zoned(1, 6, 6), *pods, policy=watch(**{**EVICT, "maxConcurrent": 2}))
    await here.rounds(3)
    assert len(here.writes.evicted) == 2
    assert "the policy has maxConcurrent moves under way" in here.waits
    here = scene(*zoned(1, 6, 6), *pods, policy=watch(**{**EVICT, "maxPerMinute": 3}))
    await here.rounds(3)
    assert len(here.writes.evicted) == 3
    assert "the policy has begun maxPerMinute moves" in here.waits
    await here.rounds(1, seconds=60)
    assert len(here.writes.evicted) == 6


async def test_all_policies_share_a_limit_and_namespaces_take_turns() -> None:
    chosen = settings(policies={"enabled": True}, execution={"maxPerMinute": 4})
    here = scene(*zoned(1, 8, 8), *controllers(8, namespaces=2), chosen=chosen)
    await here.rounds(2)
    moved = [pod for pod in here.index.pods.values() if pod.terminating]
    assert sorted(pod.namespace for pod in moved) == ["ns-0", "ns-0", "ns-1", "ns-1"]
    assert "all policies have begun execution.maxPerMinute moves" in here.waits


async def test_events_say_what_is_broken_and_what_was_moved() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0))
    await here.rounds(1)
    zone = "topology.kubernetes.io/zone=a has 2 pods, at most 1 keep the spread"
    assert [(event.type, event.reason, event.note) for event in here.events] == [
        ("Warning", "ConstraintBroken", f"{zone} (ClusterPodSchedulingPolicy/watch): a move to b0 is planned"),
        ("Normal", "Moved", f"{zone}: evicted from a0, its replacement gets a place on b0"),
    ]
    assert {event.about.reference()["name"] for event in here.events} == {"web-a0"}


async def test_rows_say_since_when() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0), policy=watch(**{**EVICT, "mode": "Report"}))
    await here.rounds(1)
    here.clock.time += 60
    (row,) = here.mover.rows()
    assert row.since == (here.now() - timedelta(seconds=60)).strftime("%Y-%m-%dT%H:%M:%SZ")


async def test_a_job_that_ends_keeps_no_place() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0))
    task = asyncio.create_task(here.mover.run())
    for _ in range(1000):
        await asyncio.sleep(0)
        if here.mover.under_way:
            break
    assert here.index.reserved.held
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not here.index.reserved.held


def watch_paused() -> PolicyObject:
    body = policy_json("watch", when=["Execution"], execution=EVICT)
    body["metadata"]["annotations"] = {PAUSED_ANNOTATION: "yes"}
    return PolicyObject(read_policy(body))


async def test_each_policy_has_numbers_of_its_moves() -> None:
    here = scene(*zoned(1, 1, 1), *askew(3, 0, 0), policy=watch(mode="Evict", after="0s", minAge="0s", maxPerMinute=1))
    policies = here.index.policies
    (key,) = (policy.key for policy in policies)
    await here.rounds()
    nothing = {"broken": 2, "planned": 1, "moved": 0, "stuck": 0, "stuckReasons": []}
    assert states_of_policies(here.mover, policies) == {key: nothing}
    here.create("web-n0", "b0")
    here.delete("web-a0")
    await here.rounds()
    assert states_of_policies(here.mover, policies)[key] == nothing | {"broken": 1, "moved": 1}
    for name in ("b0", "c0"):
        here.index.upsert(node(name, zone=name[0], allocatable={"cpu": "1", "pods": "0"}))
    await here.rounds()
    assert states_of_policies(here.mover, policies)[key] == {
        "broken": 1,
        "planned": 0,
        "moved": 1,
        "stuck": 1,
        "stuckReasons": [{"reason": "no node passes", "constraints": 1}],
    }


async def test_many_short_plans_make_pauses_too() -> None:
    fields = [
        {"app": f"web-{at}", "owner": ("ReplicaSet", f"web-{at}"), "spreads": [spread("zone", app=f"web-{at}")]}
        for at in range(20)
    ]
    pods = [replace(web(f"{of['app']}-{at}", "a0", **of), start_time=OLD) for of in fields for at in range(2)]
    here = scene(*zoned(1, 1), *pods, policy=watch())
    here.clock.step = 0.0003  # a plan reads the clock a few times, which is less than a slice
    await here.mover.round()
    assert len(here.states) == 20
    assert here.clock.slept.count(0.01) >= 10


async def test_pods_that_no_such_policy_selects_get_the_same_answers_and_no_events() -> None:
    watching = PolicyObject(read_policy(policy_json("watch", "shop", when=["Execution"], execution=EVICT)))
    pods = askew(3, 0, 0)
    bare, here = index_of(*zoned(1, 1, 1), *pods), scene(*zoned(1, 1, 1), *pods, policy=watching)
    await here.rounds(3)
    assert (here.writes.evicted, here.events, here.states, here.mover.broken.judged) == ([], [], [], 0)
    assert here.index.view.claims_version == bare.view.claims_version
    asked = extender_args(pod_json("new", app="web", spreads=SPREAD), "a0", "b0", "c0")
    assert filter_nodes(asked, here.index.view, SETTINGS, 0) == filter_nodes(asked, bare.view, SETTINGS, 0)
