"""A pod rejected just before the event that helps it is requeued; one that nothing helps costs next to nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from extender.kube.effects import PodRef
from extender.model.objects import Pod
from extender.rules import catalog
from extender.settings.configuration import Settings
from extender.tasks.rejected_pods import REQUEUE_ANNOTATION, TURN_STEP_SECONDS, Rechecker, RejectedPodWriter, Requeuer
from extender.verbs.filter import FilterVerb
from extender.verbs.select_host import find_node_elsewhere
from extender.wire.extender_v1 import FilterResult
from tests.builders import asking, index_of, namespace, node, pod, pod_json, term
from tests.fakes import FakeClock, FakeWriter, until
from tests.quotas import NODES, Tenants, limited, quota, reaching, reaching_json

APART = term("host", app="web")
ROUNDS = 40  # more than there are while a rejection is recent


def web(name: str, on: str = "") -> Any:
    """The JSON of a pod that keeps away from its like."""
    return pod_json(name, on=on, app="web", apart=[APART])


class AnsweredWriter(FakeWriter):
    """A writer whose requeued pods the scheduler tries again at once."""

    answer: Callable[[str], object] = staticmethod(lambda _name: None)

    async def annotate(self, pod: PodRef, key: str, value: str | None) -> None:
        await super().annotate(pod, key, value)
        self.answer(pod.name)


class Scene:
    """Nodes with one such pod each, and the rechecker beside the real filter verb, on a clock of its own."""

    def __init__(self, nodes: int = 2) -> None:
        self.names = [f"n{number}" for number in range(nodes)]
        self.index = index_of(*(node(name, allocatable={"pods": "10"}) for name in self.names))
        for name in self.names:
            self.index.upsert(pod(f"on-{name}", on=name, app="web", apart=[APART]))
        self.clock, self.writer, self.searched = FakeClock(), AnsweredWriter(), list[str]()
        self.writes = RejectedPodWriter(self.index, self.writer, lambda _: ("", False))
        self.verb = FilterVerb(self.index.view, Settings())
        self.rechecker = Rechecker(
            self.writes, self.clock, 100.0, self.verb.would_pass, [lambda args: self.searched.append(args.pod.name)]
        )

    def ask(self, name: str) -> FilterResult:
        """The answer about a pending pod with every node, as the filter service gives it; one that passes is assumed."""
        self.index.upsert(pod(name, app="web", apart=[APART]))
        args = asking(web(name), *self.names)
        result = self.verb.decide(args, 0).result
        if result.passed:
            self.index.assume(args.pod, result.passed, self.clock.now())
        else:
            self.rechecker.consider(args)
        return result

    def delete(self, name: str) -> None:
        """The watch shows at last that a pod is deleted."""
        self.index.delete(self.index.pods[f"uid-{name}"])

    def requeued(self) -> list[str]:
        """The pods whose annotation was patched, in order."""
        return self.writer.annotated(REQUEUE_ANNOTATION)

    @property
    def rounds(self) -> int:
        return self.clock.slept.count(0.1)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        job = asyncio.create_task(self.rechecker.run())
        try:
            yield
        finally:
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)


async def test_a_pod_whose_obstacle_was_deleted_before_the_answer_is_requeued_once_the_event_arrives() -> None:
    scene = Scene()
    async with scene.running():
        assert not scene.ask("asking").passed
        while scene.rounds < 3:  # noqa: ASYNC110 (time passes only while the rechecker runs)
            await asyncio.sleep(0)
        assert scene.requeued() == []
        scene.delete("on-n0")
        await until(scene.requeued)
    assert scene.requeued() == ["asking"]
    assert scene.ask("asking").passed == ["n0"]
    assert scene.writes.results["recheck", "passes"] == 1


async def test_a_node_that_the_watch_shows_after_the_answer_requeues_the_pod_too() -> None:
    scene = Scene()
    scene.names.append("new")
    async with scene.running():
        assert not scene.ask("asking").passed
        scene.index.upsert(node("new"))
        await until(scene.requeued)
    assert scene.requeued() == ["asking"]


async def test_there_is_no_timer_before_a_rejection_and_none_once_it_is_a_second_old() -> None:
    scene = Scene()
    async with scene.running():
        await asyncio.sleep(0)
        assert scene.clock.slept == []
        scene.ask("asking")
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
        assert scene.rounds in (10, 11)
        scene.delete("on-n0")
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
    assert scene.rounds in (10, 11)
    assert (scene.requeued(), scene.rechecker.decisions) == ([], 0)


async def test_one_place_for_a_thousand_pods_requeues_one_of_them() -> None:
    """The others are decided again only after the first has taken the place, and then they do not pass."""
    scene = Scene()
    waiting = [f"asking-{number}" for number in range(1000)]
    for name in waiting:
        assert not scene.ask(name).passed
    scene.delete("on-n0")
    scene.writer.answer = scene.ask
    async with scene.running():
        await until(lambda: not scene.rechecker.held)
    assert scene.requeued() == waiting[:1]
    assert set(scene.searched) == set(waiting[1:])


async def test_places_for_three_pods_requeue_three_equal_pods_one_in_each_round() -> None:
    scene = Scene(nodes=3)
    for number in range(5):
        scene.ask(f"asking-{number}")
    for name in scene.names:
        scene.delete(f"on-{name}")
    scene.writer.answer = scene.ask
    async with scene.running():
        await until(lambda: not scene.rechecker.held)
    assert scene.requeued() == ["asking-0", "asking-1", "asking-2"]


async def test_one_of_equal_pods_is_requeued_in_a_round_however_slow_the_scheduler_is() -> None:
    scene = Scene()
    for number in range(3):
        scene.ask(f"asking-{number}")
    scene.delete("on-n0")
    async with scene.running():
        while scene.rounds < 2:  # noqa: ASYNC110 (time passes only while the rechecker runs)
            await asyncio.sleep(0)
        assert scene.requeued() == ["asking-0"]


async def test_pods_that_full_nodes_keep_pending_are_not_requeued_whatever_else_changes() -> None:
    """The scheduler offers no full node. That one passes our rules is no reason to try the pod again."""
    scene = Scene()
    scene.index.upsert(node("full", allocatable={"cpu": "0"}))
    for number in range(1000):
        assert not scene.ask(f"asking-{number}").passed
    async with scene.running():
        for number in range(ROUNDS):
            scene.index.upsert(pod(f"other-{number}", on="full", app="web"))
            scene.delete(f"other-{number}")
            await asyncio.sleep(0)
        await until(lambda: not scene.rechecker.held)
    assert scene.requeued() == []


async def test_a_burst_of_rejections_under_constant_change_costs_at_most_200_decisions_in_a_second() -> None:
    scene = Scene()
    for number in range(1000):
        scene.ask(f"asking-{number}")
    begun = scene.clock.time
    async with scene.running():
        while scene.clock.time < begun + 0.95:
            scene.index.upsert(pod("other", on="n0", app="web"))
            scene.index.delete(scene.index.pods["uid-other"])
            await asyncio.sleep(0)
        assert 100 < scene.rechecker.decisions <= 200


async def test_the_oldest_rejections_of_a_burst_make_room_in_bounded_memory() -> None:
    scene = Scene(nodes=2000)
    for number in range(1000):
        scene.ask(f"asking-{number}")
    assert scene.rechecker.bytes <= 4 * 2**20
    assert list(scene.rechecker.held)[-1] == "uid-asking-999"
    async with scene.running():
        await until(lambda: not scene.rechecker.held)
    assert scene.rechecker.bytes == 0


async def test_a_pod_bound_meanwhile_and_one_that_is_deleted_are_left_alone() -> None:
    scene = Scene()
    for name in ("bound", "deleted", "asking"):
        scene.ask(name)
    scene.index.upsert(pod("bound", on="n1", app="web", apart=[APART]))
    scene.delete("deleted")
    scene.delete("on-n0")
    async with scene.running():
        await until(lambda: not scene.rechecker.held)
    assert scene.requeued() == ["asking"]


async def test_a_node_that_is_kept_for_a_nominated_pod_is_no_reason_to_requeue() -> None:
    scene = Scene()
    scene.index.upsert(pod("preemptor", app="web", apart=[APART], priority=9))
    scene.ask("asking")
    scene.index.nominations.nominate_in_memory(scene.index.pods["uid-preemptor"], "n0", ())
    scene.delete("on-n0")
    async with scene.running():
        await until(lambda: not scene.rechecker.held)
    assert (scene.requeued(), scene.rechecker.decisions) == ([], 1)


# -- Pods that a quota rejected are requeued when places are free, and no more of them than there are places -----------

WAITING = 30


class Requeued(Tenants):
    """Tenants whose rejected pods are requeued."""

    def __init__(self, *objects: object, **section: object) -> None:
        super().__init__(*objects, **section)  # type: ignore[arg-type]  # as the base takes them
        self.writer = FakeWriter()

        def find(pod: Pod) -> tuple[str, bool]:
            return find_node_elsewhere(pod, self.index.view, self.settings, 0)

        self.turns = FakeClock(held=TURN_STEP_SECONDS.__eq__)  # until `release`
        self.requeuer = Requeuer(RejectedPodWriter(self.index, self.writer, find), self.turns, per_second=1000)

    async def reject(self, name: str) -> None:
        assert not await self.passes(name)
        self.requeuer.consider(asking(reaching_json(name), *NODES))

    @property
    def woken(self) -> list[str]:
        """The names of the pods that were requeued, in order."""
        return [effect.split()[1] for effect in self.writer.effects]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        subscribed = len(self.index.quotas.changes)
        task = asyncio.create_task(self.requeuer.run())
        try:
            await until(lambda: len(self.index.quotas.changes) > subscribed)
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def idle() -> None:
    """Lets the requeuer do all that it has to do now."""
    for _ in range(20 * WAITING):
        await asyncio.sleep(0)


@asynccontextmanager
async def first_three() -> AsyncIterator[Requeued]:
    """Pods that a quota rejected, of which the first three were requeued when it had three places."""
    tenants = Requeued(limited(0))
    for number in range(WAITING):
        await tenants.reject(f"w{number}")
    async with tenants.running():
        tenants.put(limited(3))
        await until(lambda: len(tenants.woken) == 3)
        yield tenants


async def test_as_many_pods_are_requeued_at_first_as_there_are_places() -> None:
    async with first_three() as tenants:
        for name in list(tenants.woken):  # the scheduler tries them, and they take the places
            assert await tenants.passes(name)
        tenants.turns.release()
        await idle()
    assert tenants.woken == ["w0", "w1", "w2"]


async def test_the_next_pods_get_their_turn_where_requeued_ones_do_not_take_the_places() -> None:
    """A pod that the quota lets go may fit no node."""
    async with first_three() as tenants:
        await idle()
        assert len(tenants.woken) == 3
        tenants.turns.release()
        await until(lambda: len(tenants.woken) == WAITING)
    assert sorted(tenants.woken) == sorted(f"w{number}" for number in range(WAITING))


@pytest.mark.parametrize("freed", ["deleted", "failed"])
async def test_a_place_that_is_given_back_wakes_one_pod(freed: str) -> None:
    tenants = Requeued(limited(1))
    assert await tenants.passes("first")
    if freed == "deleted":
        tenants.put(reaching("first", on="n1"))
    await tenants.reject("w0")
    await tenants.reject("w1")
    async with tenants.running():
        if freed == "deleted":
            tenants.index.delete(reaching("first", on="n1"))
        else:
            tenants.index.assumed.forget("uid-first")
        await until(lambda: tenants.woken)
        assert await tenants.passes("w0")
        tenants.turns.release()
        await idle()
    assert tenants.woken == ["w0"]


async def test_a_relabelled_namespace_wakes_all_pods_that_the_default_denied() -> None:
    default = {"action": "Deny", "namespaceSelector": {"matchLabels": {"tenant": "yes"}}}
    tenants = Requeued(namespace("team", tenant="yes"), default=default)
    for number in range(3):
        await tenants.reject(f"w{number}")
    async with tenants.running():
        tenants.put(namespace("team"))
        await until(lambda: len(tenants.woken) == 3)


@pytest.mark.parametrize(
    ("hard", "places"),
    [
        ({"pods": "5"}, {"team/cross": 4}),
        ({"pods": "5", "requests.cpu": "700m"}, {"team/cross": 3}),
        ({"requests.memory": "1Gi"}, {}),
        ({"pods": "0"}, {"team/cross": 0}),
    ],
    ids=["a number", "the scarcer resource", "nothing that the pod uses", "over the limit already"],
)
def test_the_places_that_pods_share_are_those_left_of_the_quota(hard: dict[str, str], places: dict[str, int]) -> None:
    fields = {"requests": {"cpu": "200m"}}
    tenants = Tenants(quota(hard=hard), reaching("bound", on="n1", requests={"cpu": "100m"}))
    assert catalog.shared_places(reaching("a", **fields), tenants.index.view) == places
    audited = Tenants(quota(hard=hard), quota_mode="Audit")
    assert catalog.shared_places(reaching("a", **fields), audited.index.view) == {}
