"""Pods of requests as the watch shows them: found at once, waited for until the event, refused for the moment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from extender.index.cluster import ClusterIndex
from extender.kube.timing import SystemClock
from extender.model.objects import Pod
from extender.tasks.filter_service import WatchedPods
from extender.verbs.request import Unconfirmed
from tests.builders import index_of, pod
from tests.fakes import until

LONG = 60.0  # longer than a test may last: a task that waits so long has not been woken


class Looking:
    """An index, and requests for pods."""

    def __init__(self, wait: float = LONG, most_waiting: int = 10) -> None:
        self.index: ClusterIndex = index_of()
        self.pods = WatchedPods(self.index, SystemClock(), wait, most_waiting)

    def show(self, **fields: Any) -> Pod:
        """The watch shows the pod so."""
        found = pod("web", **fields)
        self.index.upsert(found)
        return found

    async def asked(self, asked: Pod) -> asyncio.Task[Pod | Unconfirmed]:
        """A request that has begun to wait."""
        before = self.pods.waits
        task = asyncio.create_task(self.pods.find(asked))
        await until(lambda: self.pods.waits == before + 1)
        return task


async def test_a_pod_that_is_shown_is_found_without_waiting_and_as_the_watch_shows_it() -> None:
    looking = Looking()
    shown = looking.show(priority=5)
    assert await looking.pods.find(pod("web", priority=2**31 - 1)) is shown
    assert looking.pods.waits == 0


async def test_a_request_is_answered_as_soon_as_the_watch_shows_its_pod() -> None:
    looking = Looking()
    task = await looking.asked(pod("web"))
    looking.index.upsert(pod("other"))
    shown = looking.show()
    assert await task is shown
    assert len(looking.index.pod_changes) == 0
    assert sum(looking.pods.rejected().values()) == 0


async def test_a_gated_pod_is_waited_for_until_the_watch_shows_it_without_gates() -> None:
    looking = Looking()
    looking.show(gates=["quota"])
    task = await looking.asked(pod("web", labels={"app": "web"}))
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
    task = await looking.asked(pod("web"))
    looking.index.delete(pod("web"))
    assert await task is Unconfirmed.DELETED
    assert await looking.pods.find(pod("web")) is Unconfirmed.DELETED
    assert looking.pods.waits == 1


async def test_a_request_that_is_ahead_of_the_watch_is_answered_once_the_watch_has_caught_up() -> None:
    """Labels of a waiting pod may change; the scheduler's watch may be first to tell."""
    looking = Looking()
    looking.show(labels={"app": "a"})
    task = await looking.asked(pod("web", labels={"app": "b"}))
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
    tasks = [await looking.asked(pod(f"made-up-{number}")) for number in range(2)]
    assert await looking.pods.find(pod("made-up-2")) is Unconfirmed.NOT_SHOWN
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert len(looking.index.pod_changes) == 0
    task = await looking.asked(pod("web"))  # their places are free again
    shown = looking.show()
    assert await task is shown
