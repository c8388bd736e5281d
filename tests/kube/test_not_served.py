"""A custom resource whose CRD is missing: it counts as one without objects, and is found when it appears."""

from __future__ import annotations

import asyncio
import logging
from random import Random

import pytest

from extender.kube.reflector import Reflector
from extender.kube.reflector_status import Phase, WatchOptions
from extender.model.objects import Namespace
from extender.wire.objects.kinds import NAMESPACES, Kind
from extender.wire.objects.objects_json import NamespaceJson
from extender.wire.objects.trim import trim_namespace
from tests.fakes import until
from tests.kube.conftest import PLAIN, Following
from tests.kube.scripted import ScriptedApi, event, namespace, page, status, watch

PATH = "/apis/example.com/v1/things"
# Read like namespaces, which are the simplest objects.
THINGS: Kind[Namespace] = Kind("things", PATH, NamespaceJson, trim_namespace, is_custom=True)
MISSING = status(404, "the server could not find the requested resource", "NotFound")


def start(following: Following, options: WatchOptions = PLAIN) -> Reflector[Namespace]:
    """Follow the custom resource."""
    feed = Reflector(following.session.reads, THINGS, options, following.clock, Random(1))
    following.tasks.append(asyncio.create_task(feed.run(following.sink)))
    return feed


@pytest.mark.parametrize("options", [PLAIN, WatchOptions()], ids=["pages", "streaming list"])
async def test_a_kind_that_is_not_served_is_listed_as_empty_and_said_loudly_once(
    api: ScriptedApi, following: Following, caplog: pytest.LogCaptureFixture, options: WatchOptions
) -> None:
    api.script(PATH, *[MISSING] * 4)
    feed = start(following, options)
    await until(lambda: len(api.requests) > 4)
    assert following.sink.lists == [[]]
    assert (feed.status.not_served, feed.status.synced, feed.status.outage) == (True, True, "")
    loud = [record.message for record in caplog.records if record.levelno >= logging.ERROR]
    text = "things: the API server does not serve this kind, so none of it is in effect; is its CRD installed?"
    assert loud == [text]


async def test_one_answer_404_is_not_believed(api: ScriptedApi, following: Following) -> None:
    gate = asyncio.Event()

    async def held(request: object) -> object:
        await gate.wait()
        raise AssertionError(request)

    api.script(PATH, page(namespace("a"), version="5"), watch(), MISSING, held)  # type: ignore[arg-type] # never answers
    feed = start(following)
    await until(lambda: len(following.sink.lists) == 1)
    assert [[found.name for found in told] for told in following.sink.lists] == [["a"]]
    assert not feed.status.not_served


async def test_the_kind_is_found_when_its_crd_appears(api: ScriptedApi, following: Following) -> None:
    api.script(
        PATH, MISSING, MISSING, MISSING, page(namespace("a"), version="5"), watch(event("ADDED", namespace("b", 6)))
    )
    feed = start(following)
    await following.names("a", "b")
    assert not feed.status.not_served
    assert feed.status.phase is Phase.WATCHING
    assert feed.status.outage == ""


async def test_objects_of_a_deleted_crd_are_gone_and_those_of_a_new_one_are_listed(
    api: ScriptedApi, following: Following
) -> None:
    """A new CRD of the same name begins without objects, so its first list has to be compared with nothing."""
    api.script(PATH, page(namespace("a"), version="5"), MISSING, MISSING, page(namespace("b"), version="9"), watch())
    start(following)
    await following.names("b")
    assert [[found.name for found in told] for told in following.sink.lists] == [["a"], [], ["b"]]


async def test_another_rejection_after_that_is_an_outage_again(api: ScriptedApi, following: Following) -> None:
    api.script(PATH, MISSING, MISSING, *[status(403, "forbidden", "Forbidden")] * 3)
    feed = start(following)
    await until(lambda: "403" in feed.status.outage)
    assert following.sink.lists == [[]]


async def test_a_built_in_kind_that_is_not_found_stays_an_outage(api: ScriptedApi, following: Following) -> None:
    """As behind a proxy with a wrong path: an empty cluster would be a wrong answer."""
    api.script(NAMESPACES.path, *[MISSING] * 4)
    feed = following.start()
    await until(lambda: len(api.requests) > 4)
    assert following.sink.lists == []
    assert "404" in feed.status.outage
