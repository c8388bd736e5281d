"""The endpoint of one replica's webhook: published while it can answer, withdrawn before it ends."""

from __future__ import annotations

import asyncio
import logging

import pytest

from extender.index.objects.namespaces import Namespaces
from extender.kube.errors import Rejected, Unreachable
from extender.tasks.endpoints import REPAIR_SECONDS, Endpoint
from extender.tasks.webhook.namespaces import NamespacesOfReviews
from extender.wire.webhook_configurations import OwnPod
from tests.fake_api import never
from tests.fakes import PATIENCE, until
from tests.tasks.webhook.slices import PLACE, TENANT, NamespaceReads, Scene, show

KEY = f"ours/{PLACE.name}"


async def test_it_is_published_once_the_webhook_can_answer_and_not_before() -> None:
    scene = Scene()
    await scene.look()
    assert not scene.api.slices
    scene.state.is_ready = True
    await scene.look()
    (found,) = scene.api.slices.values()
    assert found["metadata"]["labels"]["kubernetes.io/service-name"] == "placement-extender-webhook"
    assert [(owner["kind"], owner["uid"]) for owner in found["metadata"]["ownerReferences"]] == [("Pod", "uid-1")]
    assert found["addressType"] == "IPv4"
    assert [each["addresses"] for each in found["endpoints"]] == [["10.0.0.7"]]
    assert found["ports"] == [{"name": "webhook", "port": 9443, "protocol": "TCP"}]
    for _ in range(5):
        await scene.look()
    assert scene.api.writes == ["create"]


async def test_a_webhook_that_can_no_longer_answer_is_withdrawn_and_published_again() -> None:
    scene = Scene()
    for is_ready in (True, False, True):
        scene.state.is_ready = is_ready
        await scene.look()
    assert scene.api.writes == ["create", "delete", "create"]


async def test_a_slice_of_the_container_before_is_taken_away_until_the_webhook_can_answer() -> None:
    scene = Scene()
    scene.api.slices[KEY] = PLACE.document()
    await scene.look()
    assert not scene.api.slices


async def test_what_another_writer_changes_or_deletes_is_repaired() -> None:
    scene = Scene()
    scene.state.is_ready = True
    await scene.look()
    scene.api.slices[KEY] |= {"endpoints": [{"addresses": ["10.0.0.8"]}]}
    scene.clock.time += REPAIR_SECONDS
    await scene.look()
    assert scene.api.slices[KEY]["endpoints"][0]["addresses"] == ["10.0.0.7"]
    scene.api.slices.clear()
    scene.clock.time += REPAIR_SECONDS
    await scene.look()
    assert scene.api.writes == ["create", "update", "create"]


async def test_once_withdrawn_it_is_not_published_again() -> None:
    scene = Scene()
    scene.state.is_ready = True
    running = asyncio.create_task(scene.endpoint.run())
    await until(lambda: scene.endpoint.is_published)
    await scene.endpoint.withdraw()
    async with asyncio.timeout(PATIENCE):
        await running
    assert scene.api.writes == ["create", "delete"]
    assert not scene.api.slices


async def test_a_problem_is_logged_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.state.is_ready = True
    scene.api.fail = lambda _call, _name: Rejected("403 forbidden", status=403)
    for _ in range(3):
        await scene.look()
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.message for record in warnings] == ["the endpoint of the webhook cannot be published"]
    scene.api.fail = never
    await scene.look()
    assert scene.api.writes == ["create"]


def test_the_name_of_a_long_pod_and_an_ipv6_address_are_valid() -> None:
    place = Endpoint("ours", "placement-extender-webhook", OwnPod("p" * 226 + "-x", "uid", "fd00::7"), 9443)
    assert len(place.name) <= 253
    assert place.name[-1].isalnum()
    assert place.document()["addressType"] == "IPv6"


# -- The labels of a namespace that the watch has not shown yet: a moment for the watch, then a read, then no answer ---


async def test_a_namespace_that_is_known_is_not_waited_for() -> None:
    known, api = Namespaces(), NamespaceReads()
    show(known)
    found = NamespacesOfReviews(known, api.read, 10)
    await found.find("shop")
    assert (found.labels("shop"), api.requests) == (TENANT, [])


async def test_the_watch_is_waited_for() -> None:
    known, api = Namespaces(), NamespaceReads()
    found = NamespacesOfReviews(known, api.read, 600)
    finding = asyncio.create_task(found.find("shop"))
    await asyncio.sleep(0)
    show(known, "other")
    show(known)
    await finding
    assert (found.labels("shop"), api.requests, len(known.changes)) == (TENANT, [], 0)


async def test_what_the_watch_does_not_show_is_read_and_the_watch_has_the_last_word() -> None:
    known, api = Namespaces(), NamespaceReads(TENANT)
    found = NamespacesOfReviews(known, api.read, 0.01)
    await found.find("shop")
    assert (found.labels("shop"), api.requests) == (TENANT, ["shop"])
    show(known, labels={})
    assert found.labels("shop") == {}


@pytest.mark.parametrize(
    "api",
    [NamespaceReads(), NamespaceReads(Unreachable("down")), NamespaceReads(hangs=True)],
    ids=["absent", "error", "silent"],
)
async def test_what_cannot_be_read_stays_unknown_and_the_review_goes_on(api: NamespaceReads) -> None:
    found = NamespacesOfReviews(Namespaces(), api.read, 0.01)
    await found.find("shop")
    assert (found.labels("shop"), api.requests) == (None, ["shop"])


async def test_a_namespace_of_an_earlier_one_s_name_is_read_again() -> None:
    api = NamespaceReads(TENANT)
    found = NamespacesOfReviews(Namespaces(), api.read, 0.01)
    await found.find("shop")
    api.answer = None
    await found.find("shop")
    assert found.labels("shop") is None


async def test_a_name_that_no_namespace_has_is_not_asked_for() -> None:
    api = NamespaceReads(TENANT)
    found = NamespacesOfReviews(Namespaces(), api.read, 0.01)
    await found.find("a/b&limit=1")
    assert api.requests == []


async def test_reviews_of_one_peer_leave_places_to_those_of_another() -> None:
    """Without a client CA anyone may forge reviews of namespaces that do not exist."""
    api = NamespaceReads(hangs=True)
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
