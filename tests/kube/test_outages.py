"""When a feed knows that it misses changes: at once, not after a time of silence."""

from __future__ import annotations

import asyncio

import pytest

from extender.doctor.service import FORBIDDEN_WATCH
from extender.kube.reflector_status import WatchOptions
from extender.wire.objects.kinds import NAMESPACES
from tests.fakes import until
from tests.kube.conftest import Following
from tests.kube.scripted import CUT, ScriptedApi, bookmark, event, held, namespace, page, status, watch

PATH = NAMESPACES.path


@pytest.mark.parametrize("watch_list", [False, True], ids=["pages", "streaming list"])
@pytest.mark.parametrize("code", [401, 403, 404, 405])
async def test_a_watch_that_is_rejected_is_an_outage_until_it_is_granted(
    api: ScriptedApi, following: Following, code: int, *, watch_list: bool
) -> None:
    """What was listed stays true for a moment only, however often it is listed again."""
    granted = asyncio.Event()
    rejections = [status(code, "may not")] * (6 if watch_list else 3)
    before = 3 if watch_list else 0  # streaming lists are watches too
    api.script(PATH, *rejections[:before], page(namespace("a"), version="5"), *rejections[before:])
    api.script(PATH, held(watch(bookmark(6)), granted))
    feed = following.start(WatchOptions(watch_list=watch_list))
    outages = [feed.status.outage]
    await until(lambda: feed.status.synced)
    outages.append(feed.status.outage)
    await until(lambda: len(api.watches) == len(rejections) + 1)
    outages.append(feed.status.outage)
    granted.set()
    await until(lambda: not feed.status.outage)
    rejected = f"watch of namespaces rejected: {code} may not"
    assert (outages[0], outages[2]) == ("no watch has begun", rejected)
    assert outages[1] in {"no watch has begun", rejected}
    assert (FORBIDDEN_WATCH in rejected) == (code == 403)  # by which doctor knows a missing permission


async def test_a_connection_that_breaks_is_no_outage(api: ScriptedApi, following: Following) -> None:
    api.script(PATH, page(version="5"), watch(bookmark(6), then=CUT), status(500), status(503), watch(bookmark(7)))
    feed = following.start()
    await until(lambda: not feed.status.outage)
    seen = set[str]()

    def is_back() -> bool:
        seen.add(feed.status.outage)
        return feed.status.resource_version == "7"

    await until(is_back)
    assert seen == {""}


async def test_a_feed_that_has_died_is_an_outage(api: ScriptedApi, following: Following) -> None:
    api.script(PATH, page(version="5"), watch(event("ADDED", namespace("a", 6))))
    following.sink.failure = RuntimeError("upset")
    feed = following.start()
    with pytest.raises(RuntimeError, match="upset"):
        await following.tasks.pop()
    assert feed.status.outage == "the reflector of namespaces has ended"


async def test_a_change_that_is_lost_is_an_outage_until_the_new_list_is_watched(
    api: ScriptedApi, following: Following
) -> None:
    listed = asyncio.Event()
    api.script(PATH, page(namespace("a"), version="5"), watch(b"<html>\n"), held(page(version="9"), listed))
    feed = following.start()
    await until(lambda: len(api.lists) == 2)
    assert feed.status.outage == "a change could not be read"
    listed.set()
    await until(lambda: len(api.watches) == 2 and not feed.status.outage)
