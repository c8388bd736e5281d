"""Feeds into the index: what is taken in when, and what is told about readiness meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import pytest

from extender.kube.watch.reflector_values import Phase
from extender.model.objects import DisruptionBudget, Namespace, Node, Object, Pod, PodSignature, Workload
from extender.tasks.reflectors import Reflectors, ReflectorsOptions
from tests.fakes import FakeClock, FakeFeed, FakeIndex, until

SPACE, NODE = Namespace("team-a"), Node("node-a")
SHAPE = PodSignature("team-a")


def pod(number: int, on: str = "node-a") -> Pod:
    return Pod(f"uid-{number}", f"pod-{number}", SHAPE, on)


@dataclass
class Fed:
    """Feeding at work over feeds that tests speak for."""

    clock: FakeClock = field(default_factory=FakeClock)
    index: FakeIndex = field(default_factory=FakeIndex)
    synced_calls: list[list[str]] = field(default_factory=list)
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    listed: list[tuple[str, float, list[str]]] = field(default_factory=list)

    def start(self, *kinds: str) -> None:
        """Begin to pump these kinds."""
        self.feeds = {kind: FakeFeed(kind) for kind in kinds}
        self.reflectors = Reflectors(
            self.index,
            list(self.feeds.values()),
            self.clock,
            ReflectorsOptions(slice_seconds=5.0, stale_after=60.0),
            lambda: self.synced_calls.append(list(self.index.calls)),
            lambda kind, begun: self.listed.append((kind, begun, list(self.index.calls))),
        )
        for name, run in self.reflectors.jobs():
            self.tasks[name] = asyncio.ensure_future(run())

    async def told(self, kind: str, count: int = 1) -> None:
        """Wait until that feed has told so many things."""
        await until(lambda: self.feeds[kind].told >= count)

    async def all_in(self) -> None:
        """Namespaces, nodes and one pod are in."""
        self.start("namespaces", "nodes", "pods")
        self.feeds["namespaces"].tell_all(SPACE)
        self.feeds["nodes"].tell_all(NODE)
        self.feeds["pods"].tell_all(pod(1))
        async with asyncio.timeout(5):
            await self.reflectors.wait_until_synced()
        for feed in self.feeds.values():
            feed.status.last_heard = self.clock.time


@pytest.fixture
async def fed() -> AsyncIterator[Fed]:
    found = Fed()
    yield found
    for task in found.tasks.values():
        task.cancel()
        with suppress(asyncio.CancelledError, RuntimeError):
            await task


# -- taking in ------------------------------------------------------------------------------------------------------


async def test_pods_are_taken_in_when_namespaces_and_nodes_stand(fed: Fed) -> None:
    """Otherwise every pod would be moved again when its node and its namespace come."""
    fed.start("namespaces", "nodes", "pods")
    fed.feeds["pods"].tell_all(pod(1))
    fed.feeds["nodes"].tell_all(NODE)
    await fed.told("nodes")
    assert fed.reflectors.freshness.checks()["pods"] == "waiting for namespaces, nodes"
    fed.feeds["namespaces"].tell_all(SPACE)
    await fed.told("pods")
    assert fed.index.calls == ["upsert nodes/node-a", "upsert namespaces/team-a", "upsert pods/uid-1"]


async def test_changes_are_passed_on_in_order(fed: Fed) -> None:
    await fed.all_in()
    fed.index.calls.clear()
    fed.feeds["pods"].tell((pod(2), False), (pod(1), True), (pod(2, "node-b"), False))
    await fed.told("pods", 2)
    assert fed.index.calls == ["upsert pods/uid-2", "delete pods/uid-1", "upsert pods/uid-2"]
    assert fed.index.objects["pods/uid-2"] == pod(2, "node-b")


async def test_a_later_list_applies_the_difference_only(fed: Fed) -> None:
    await fed.all_in()
    fed.feeds["pods"].tell((pod(2), False), (pod(3), False))
    await fed.told("pods", 2)
    fed.index.calls.clear()
    fed.feeds["pods"].tell_all(pod(1), pod(3, "node-b"), pod(4))
    await fed.told("pods", 3)
    assert fed.index.calls == ["upsert pods/uid-3", "upsert pods/uid-4", "delete pods/uid-2"]
    assert fed.reflectors.relist_changes()["pods"] == 3


async def test_what_a_later_list_holds_and_cannot_be_read_stays_as_it_was(fed: Fed) -> None:
    await fed.all_in()
    fed.feeds["pods"].tell((pod(2), False))
    fed.feeds["pods"].tell_all(pod(3), unreadable=["uid-1", "uid-never-read"])
    await fed.told("pods", 3)
    assert sorted(key for key in fed.index.objects if key.startswith("pods/")) == ["pods/uid-1", "pods/uid-3"]


async def test_a_later_list_is_reported_after_it_is_applied_with_the_time_it_was_asked_for(fed: Fed) -> None:
    await fed.all_in()
    fed.index.calls.clear()
    fed.feeds["pods"].status.list_begun = 42.0
    fed.feeds["pods"].tell_all(pod(2))
    await fed.told("pods", 2)
    assert fed.listed == [("pods", 42.0, ["upsert pods/uid-2", "delete pods/uid-1"])]


async def test_a_later_list_is_applied_in_one_step(fed: Fed) -> None:
    """Each look at the clock ends a slice here, yet whoever runs in between sees the old state or the new one."""
    await fed.all_in()
    fed.clock.step = 10.0
    seen: list[frozenset[str]] = []

    async def look() -> None:
        while True:
            seen.append(frozenset(key for key in fed.index.objects if key.startswith("pods/")))
            await asyncio.sleep(0)

    looking = asyncio.ensure_future(look())
    fed.feeds["pods"].tell_all(*(pod(number) for number in range(2, 12)))
    await fed.told("pods", 2)
    looking.cancel()
    with suppress(asyncio.CancelledError):
        await looking
    old, new = frozenset({"pods/uid-1"}), frozenset(f"pods/uid-{number}" for number in range(2, 12))
    assert len(seen) > 10, "it did give way while comparing"
    assert set(seen) <= {old, new}


@pytest.mark.parametrize("is_first", [True, False], ids=["first list", "burst"])
async def test_a_first_list_and_a_burst_give_way_after_each_slice(fed: Fed, is_first: bool) -> None:  # noqa: FBT001 (a case)
    """Each look at the clock ends a slice here, so whoever runs meanwhile has his turn after every object."""
    fed.start("pods")
    fed.clock.step = 10.0
    turns, turns_at_call = [0], list[int]()

    async def take_turns() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    fed.index.on_call = lambda: turns_at_call.append(turns[0])
    fed.tasks["other"] = asyncio.ensure_future(take_turns())
    if is_first:
        fed.feeds["pods"].tell_all(*(pod(number) for number in range(10)))
    else:
        fed.feeds["pods"].tell(*((pod(number), False) for number in range(10)))
    await fed.told("pods")
    assert len(set(turns_at_call)) == 10


async def test_a_pump_that_died_in_its_first_list_leaves_nothing_of_it_behind(fed: Fed) -> None:
    fed.start("pods")

    def fail_at_the_fifth() -> None:
        if len(fed.index.calls) == 5:
            raise RuntimeError("index is upset")

    fed.index.on_call = fail_at_the_fifth
    fed.feeds["pods"].tell_all(*(pod(number) for number in range(10)))
    with pytest.raises(RuntimeError):
        await fed.tasks["reflector pods"]
    assert (len(fed.index.objects), fed.reflectors.freshness.is_ready) == (5, False)
    fed.index.on_call = lambda: None
    fed.tasks["reflector pods"] = asyncio.ensure_future(fed.reflectors.jobs()[0][1]())
    fed.feeds["pods"].tell_all(pod(3), pod(20))
    await fed.told("pods")
    assert sorted(fed.index.objects) == ["pods/uid-20", "pods/uid-3"]


async def test_a_reflector_that_fails_is_reported_to_the_supervisor(fed: Fed) -> None:
    await fed.all_in()
    fed.feeds["pods"].fail(RuntimeError("feed is upset"))
    with pytest.raises(RuntimeError, match="feed is upset"):
        await fed.tasks["reflector pods"]


async def test_a_change_that_the_index_does_not_read_is_not_held_twice(fed: Fed) -> None:
    """A kubelet reports each pod and node again and again; two equal objects for each would double the memory."""
    await fed.all_in()
    (pump,) = [pump for pump in fed.reflectors._handlers if pump.name == "pods"]
    first = pump._known._objects["uid-1"]
    fed.feeds["pods"].tell((pod(1), False))
    await fed.told("pods", 2)
    assert pump._known._objects["uid-1"] is first


# -- readiness ------------------------------------------------------------------------------------------------------


async def test_ready_means_every_kind_has_been_listed_and_taken_in(fed: Fed) -> None:
    fed.start("namespaces", "nodes", "pods")
    assert fed.reflectors.freshness.checks() == dict.fromkeys(("namespaces", "nodes", "pods"), "not started")
    fed.feeds["namespaces"].tell_all()
    fed.feeds["nodes"].tell_all()
    await fed.told("nodes")
    for feed in fed.feeds.values():
        feed.status.last_heard = fed.clock.time
    before = fed.reflectors.freshness.is_ready
    fed.feeds["pods"].tell_all()
    await fed.told("pods")
    assert (before, fed.reflectors.freshness.is_ready) == (False, True)
    assert fed.reflectors.freshness.checks() == {"namespaces": "", "nodes": "", "pods": ""}


async def test_what_is_to_be_done_before_the_first_answer_is_done_once_and_then(fed: Fed) -> None:
    await fed.all_in()
    assert fed.synced_calls == [["upsert namespaces/team-a", "upsert nodes/node-a", "upsert pods/uid-1"]]
    fed.feeds["pods"].tell_all(pod(2))
    await fed.told("pods", 2)
    assert len(fed.synced_calls) == 1


@pytest.mark.parametrize(
    ("phase", "page", "listed", "error", "text"),
    [
        (Phase.LISTING, 0, 0, "", "listing (page 1)"),
        (Phase.LISTING, 2, 1000, "", "listing (page 3)"),
        (Phase.LISTING, 0, 12345, "", "listing (12,345 objects)"),
        (Phase.WAITING, 0, 0, "403 pods is forbidden", "retrying: 403 pods is forbidden"),
    ],
)
async def test_a_kind_that_is_not_in_says_what_it_is_doing(
    fed: Fed, phase: Phase, page: int, listed: int, error: str, text: str
) -> None:
    fed.start("pods")
    progress = fed.feeds["pods"].status
    progress.phase, progress.page, progress.listed, progress.error = phase, page, listed, error
    assert fed.reflectors.freshness.checks() == {"pods": text}


async def test_a_first_list_that_is_being_taken_in_shows_how_far(fed: Fed) -> None:
    fed.start("pods")
    fed.clock.step = 10.0
    seen: list[str] = []
    fed.index.on_call = lambda: seen.append(fed.reflectors.freshness.checks()["pods"])
    fed.feeds["pods"].tell_all(*(pod(number) for number in range(4)))
    await fed.told("pods")
    assert seen == ["not started", "loading (1 of 4)", "loading (2 of 4)", "loading (3 of 4)"]


async def test_a_kind_of_which_nothing_is_heard_makes_us_unready(fed: Fed) -> None:
    await fed.all_in()
    before = fed.reflectors.freshness.is_ready
    fed.feeds["nodes"].status.last_heard += 40
    fed.feeds["pods"].status.last_heard += 40
    fed.feeds["namespaces"].status.error = "connection refused"
    fed.clock.time += 71
    assert (before, fed.reflectors.freshness.is_ready) == (True, False)
    assert fed.reflectors.freshness.is_stale
    problems = fed.reflectors.freshness.checks()
    assert problems["namespaces"] == "watch silent for 71 s: connection refused"
    assert problems["nodes"] == ""
    fed.feeds["namespaces"].status.last_heard = fed.clock.time
    assert (fed.reflectors.freshness.is_ready, fed.reflectors.freshness.is_stale) == (True, False)


async def test_a_kind_that_misses_changes_makes_us_unready_at_once(fed: Fed) -> None:
    await fed.all_in()
    fed.feeds["namespaces"].status.outage = "watch of namespaces rejected: 403 forbidden"
    assert (fed.reflectors.freshness.is_ready, fed.reflectors.freshness.is_stale) == (False, True)
    assert fed.reflectors.freshness.checks() == {
        "namespaces": "watch of namespaces rejected: 403 forbidden",
        "nodes": "",
        "pods": "",
    }
    fed.feeds["namespaces"].status.outage = ""
    assert fed.reflectors.freshness.is_ready


async def test_statuses_are_those_of_the_feeds(fed: Fed) -> None:
    await fed.all_in()
    fed.feeds["pods"].status.relists = 7
    assert fed.reflectors.statuses()["pods"].relists == 7


# -- which kinds ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [DisruptionBudget, partial(Workload, "Service")], ids=["budgets", "services"])
async def test_objects_of_one_name_in_two_namespaces_are_distinguished(
    fed: Fed, made: Callable[[str, str], Object]
) -> None:
    a, b = made("a", "web"), made("b", "web")
    fed.start("things")
    fed.feeds["things"].tell_all(a, b)
    fed.feeds["things"].tell_all(b)
    await fed.told("things", 2)
    after_a_list = list(fed.index.objects.values())
    fed.feeds["things"].tell((a, False), (b, True))
    fed.feeds["things"].tell_all()
    await fed.told("things", 4)
    assert (after_a_list, fed.index.objects) == ([b], {})


async def test_before_a_request_all_that_has_arrived_is_taken_in() -> None:
    fed = Fed()
    await fed.all_in()
    await until(lambda: fed.reflectors.freshness.is_ready)
    fed.feeds["pods"].tell((pod(2), False))
    await fed.reflectors.freshness.catch_up()
    assert "uid-2" in str(fed.index.calls)
