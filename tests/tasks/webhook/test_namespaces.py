"""The labels of a namespace that the watch has not shown yet: a moment for the watch, then a read, then no answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from extender.index.objects.namespaces import Namespaces
from extender.kube.errors import Unreachable
from extender.model.constraints.labels import Labels
from extender.model.objects import Namespace
from extender.tasks.webhook.namespaces import NamespacesOfReviews

TENANT = {"tenant": "yes"}


@dataclass
class Api:
    """Answers with labels, or with an error; ``hangs`` until it is cancelled."""

    answer: Labels | Exception | None = None
    hangs: bool = False
    asked: list[str] = field(default_factory=list)

    async def read(self, name: str) -> Labels | None:
        """What is there."""
        self.asked.append(name)
        if self.hangs:
            await asyncio.Event().wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def show(known: Namespaces, name: str = "shop", labels: Labels = TENANT) -> None:
    """The watch shows a namespace."""
    known.change(name, Namespace(name, labels))
    known.changes.notify(None, Namespace(name, labels))


async def test_a_namespace_that_is_known_is_not_waited_for() -> None:
    known, api = Namespaces(), Api()
    show(known)
    found = NamespacesOfReviews(known, api.read, 10)
    await found.find("shop")
    assert (found.labels("shop"), api.asked) == (TENANT, [])


async def test_the_watch_is_waited_for() -> None:
    known, api = Namespaces(), Api()
    found = NamespacesOfReviews(known, api.read, 600)
    finding = asyncio.create_task(found.find("shop"))
    await asyncio.sleep(0)
    show(known, "other")
    show(known)
    await finding
    assert (found.labels("shop"), api.asked, len(known.changes)) == (TENANT, [], 0)


async def test_what_the_watch_does_not_show_is_read_and_the_watch_has_the_last_word() -> None:
    known, api = Namespaces(), Api(TENANT)
    found = NamespacesOfReviews(known, api.read, 0.01)
    await found.find("shop")
    assert (found.labels("shop"), api.asked) == (TENANT, ["shop"])
    show(known, labels={})
    assert found.labels("shop") == {}


@pytest.mark.parametrize("api", [Api(), Api(Unreachable("down")), Api(hangs=True)], ids=["absent", "error", "silent"])
async def test_what_cannot_be_read_stays_unknown_and_the_review_goes_on(api: Api) -> None:
    found = NamespacesOfReviews(Namespaces(), api.read, 0.01)
    await found.find("shop")
    assert (found.labels("shop"), api.asked) == (None, ["shop"])


async def test_a_namespace_of_an_earlier_one_s_name_is_read_again() -> None:
    api = Api(TENANT)
    found = NamespacesOfReviews(Namespaces(), api.read, 0.01)
    await found.find("shop")
    api.answer = None
    await found.find("shop")
    assert found.labels("shop") is None


async def test_a_name_that_no_namespace_has_is_not_asked_for() -> None:
    api = Api(TENANT)
    found = NamespacesOfReviews(Namespaces(), api.read, 0.01)
    await found.find("a/b&limit=1")
    assert api.asked == []


async def test_reviews_of_one_peer_leave_places_to_those_of_another() -> None:
    """Without a client CA anyone may forge reviews of namespaces that do not exist."""
    api = Api(hangs=True)
    found = NamespacesOfReviews(Namespaces(), api.read, 600)
    forged = [asyncio.create_task(found.find(f"none-{number}", "tenant")) for number in range(100)]
    await asyncio.sleep(0)
    own = [asyncio.create_task(found.find(f"new-{number}", "apiserver")) for number in range(100)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert (sum(not each.done() for each in forged), sum(not each.done() for each in own)) == (16, 16)
    for each in (*forged, *own):
        each.cancel()
    await asyncio.wait([*forged, *own])
    assert not found._waiting
