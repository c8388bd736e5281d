"""A pod rejected just before the event that helps it is requeued; one that nothing helps costs next to nothing."""

from __future__ import annotations

import asyncio

import pytest

from extender.rules import catalog
from tests.builders import namespace, node, pod
from tests.fakes import until
from tests.features.quotas.tenants import Tenants, limited, quota, reaching
from tests.tasks.rechecker_scene import APART, WAITING, Requeued, Scene, first_three, idle

ROUNDS = 40  # more than there are while a rejection is recent


async def test_a_pod_whose_obstacle_was_deleted_before_the_answer_is_requeued_once_the_event_arrives() -> None:
    scene = Scene()
    async with scene.running():
        assert not scene.filter("asking").passed
        while scene.rounds < 3:  # noqa: ASYNC110 (time passes only while the rechecker runs)
            await asyncio.sleep(0)
        assert scene.requeued() == []
        scene.delete("on-n0")
        await until(scene.requeued)
    assert scene.requeued() == ["asking"]
    assert scene.filter("asking").passed == ["n0"]
    assert scene.writes.results["recheck", "passes"] == 1


async def test_a_node_that_the_watch_shows_after_the_answer_requeues_the_pod_too() -> None:
    scene = Scene()
    scene.names.append("new")
    async with scene.running():
        assert not scene.filter("asking").passed
        scene.index.upsert(node("new"))
        await until(scene.requeued)
    assert scene.requeued() == ["asking"]


async def test_there_is_no_timer_before_a_rejection_and_none_once_it_is_a_second_old() -> None:
    scene = Scene()
    async with scene.running():
        await asyncio.sleep(0)
        assert scene.clock.slept == []
        scene.filter("asking")
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
        assert not scene.filter(name).passed
    scene.delete("on-n0")
    scene.writer.answer = scene.filter
    async with scene.running():
        await until(lambda: not scene.rechecker.held)
    assert scene.requeued() == waiting[:1]
    assert set(scene.searched) == set(waiting[1:])


async def test_places_for_three_pods_requeue_three_equal_pods_one_in_each_round() -> None:
    scene = Scene(nodes=3)
    for number in range(5):
        scene.filter(f"asking-{number}")
    for name in scene.names:
        scene.delete(f"on-{name}")
    scene.writer.answer = scene.filter
    async with scene.running():
        await until(lambda: not scene.rechecker.held)
    assert scene.requeued() == ["asking-0", "asking-1", "asking-2"]


async def test_one_of_equal_pods_is_requeued_in_a_round_however_slow_the_scheduler_is() -> None:
    scene = Scene()
    for number in range(3):
        scene.filter(f"asking-{number}")
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
        assert not scene.filter(f"asking-{number}").passed
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
        scene.filter(f"asking-{number}")
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
        scene.filter(f"asking-{number}")
    assert scene.rechecker.bytes <= 4 * 2**20
    assert list(scene.rechecker.held)[-1] == "uid-asking-999"
    async with scene.running():
        await until(lambda: not scene.rechecker.held)
    assert scene.rechecker.bytes == 0


async def test_a_pod_bound_meanwhile_and_one_that_is_deleted_are_left_alone() -> None:
    scene = Scene()
    for name in ("bound", "deleted", "asking"):
        scene.filter(name)
    scene.index.upsert(pod("bound", on="n1", app="web", apart=[APART]))
    scene.delete("deleted")
    scene.delete("on-n0")
    async with scene.running():
        await until(lambda: not scene.rechecker.held)
    assert scene.requeued() == ["asking"]


async def test_a_node_that_is_kept_for_a_nominated_pod_is_no_reason_to_requeue() -> None:
    scene = Scene()
    scene.index.upsert(pod("preemptor", app="web", apart=[APART], priority=9))
    scene.filter("asking")
    scene.index.nominations.nominate_in_memory(scene.index.pods["uid-preemptor"], "n0", ())
    scene.delete("on-n0")
    async with scene.running():
        await until(lambda: not scene.rechecker.held)
    assert (scene.requeued(), scene.rechecker.decisions) == ([], 1)


# -- Pods that a quota rejected are requeued when places are free, and no more of them than there are places -----------


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
