"""Pods that a quota rejected are requeued when places are free, and no more of them than there are places."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from extender.model.objects import Pod
from extender.rules import catalog
from extender.tasks.rejected_pods import TURN_STEP_SECONDS, RejectedPodWriter, Requeuer
from extender.verbs.select_host import find_node_elsewhere
from tests.builders import asking, namespace
from tests.fakes import FakeClock, FakeWriter, until
from tests.quotas import NODES, Tenants, limited, quota, reaching, reaching_json

WAITING = 30


class TurnClock(FakeClock):
    """Time passes at once, but for the wait until the next pods get their turn: that passes when `turn` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        if seconds == TURN_STEP_SECONDS:
            await self.turn.wait()
        await super().sleep(seconds)


class Requeued(Tenants):
    """Tenants whose rejected pods are requeued."""

    def __init__(self, *objects: object, **section: object) -> None:
        super().__init__(*objects, **section)  # type: ignore[arg-type]  # as the base takes them
        self.writer = FakeWriter()

        def find(pod: Pod) -> tuple[str, bool]:
            return find_node_elsewhere(pod, self.index.view, self.settings, 0)

        self.turns = TurnClock()
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


async def test_as_many_pods_are_requeued_at_first_as_there_are_places() -> None:
    tenants = Requeued(limited(0))
    for number in range(WAITING):
        await tenants.reject(f"w{number}")
    async with tenants.running():
        tenants.put(limited(3))
        await until(lambda: len(tenants.woken) == 3)
        for name in list(tenants.woken):  # the scheduler tries them, and they take the places
            assert await tenants.passes(name)
        tenants.turns.turn.set()
        await idle()
    assert tenants.woken == ["w0", "w1", "w2"]


async def test_the_next_pods_get_their_turn_where_requeued_ones_do_not_take_the_places() -> None:
    """A pod that the quota lets go may fit no node."""
    tenants = Requeued(limited(0))
    for number in range(WAITING):
        await tenants.reject(f"w{number}")
    async with tenants.running():
        tenants.put(limited(3))
        await until(lambda: len(tenants.woken) == 3)
        await idle()
        assert len(tenants.woken) == 3
        tenants.turns.turn.set()
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
        tenants.turns.turn.set()
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
