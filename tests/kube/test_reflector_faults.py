"""A reflector under every fault that an apiserver, a proxy or a network has in store."""

from __future__ import annotations

import asyncio
import logging

import pytest

from extender.kube.reflector_status import WatchOptions
from extender.wire.objects.kinds import NAMESPACES
from tests.fakes import until
from tests.kube.conftest import Following
from tests.kube.scripted import (
    CUT,
    Reply,
    ScriptedApi,
    bookmark,
    event,
    held,
    namespace,
    page,
    recorded_error,
    status,
    versions,
    watch,
)

PATH = NAMESPACES.path


def line(text: str) -> bytes:
    return text.encode() + b"\n"


# -- 410 and its relatives ------------------------------------------------------------------------------------------


async def test_pauses_begin_anew_after_a_watch_has_reported_something(api: ScriptedApi, following: Following) -> None:
    api.script(PATH, status(500), status(500), status(500), page(version="5"))
    api.script(PATH, watch(event("ADDED", namespace("a", 6)), then=CUT))
    following.start()
    await until(lambda: len(api.watches) == 2)
    assert following.clock.slept[2] > 1.6
    assert following.clock.slept[3] <= 0.8


@pytest.mark.parametrize("answer", [status(410, "too old resource version"), status(403, "forbidden")])
async def test_the_first_answer_after_an_outage_begins_with_a_short_pause_again(
    api: ScriptedApi, following: Following, answer: Reply
) -> None:
    """An API server that starts knows no old version, and for a moment no role. Half a minute is for one that is away."""
    api.script(PATH, page(namespace("a"), version="5"), *[status(500)] * 6, answer, answer, page(version="9"))
    reflector = following.start()
    await until(lambda: reflector.status.resource_version == "9")
    outage, afterwards = following.clock.slept[:6], following.clock.slept[6:]
    assert max(outage) > 8
    assert len(afterwards) == 2
    assert afterwards[0] <= 0.8 < 2 * afterwards[1], "and it grows again"


async def test_a_continue_token_that_expired_begins_a_new_list_in_larger_pages(
    api: ScriptedApi, following: Following
) -> None:
    """The error offers a token for the rest; a list glued together with it would keep what was deleted meanwhile."""
    api.script(PATH, page(namespace("deleted-meanwhile"), version="5", token="old"), recorded_error("list-continue"))
    api.script(PATH, page(namespace("a"), namespace("b"), version="9"))
    following.start(WatchOptions(watch_list=False, page_limit=1))
    await until(lambda: len(api.watches) == 1)
    assert [seen.query for seen in api.lists] == [
        {"limit": "1"},
        {"limit": "1", "continue": "old"},
        {"limit": "16"},
    ]
    assert sorted(following.handler.objects) == ["a", "b"]


# -- servers that cannot now ----------------------------------------------------------------------------------------


async def test_a_server_that_was_away_is_listed_again(
    api: ScriptedApi, following: Following, unused_tcp_port: int
) -> None:
    """It may be another one, with another history; it would keep silent about all that is behind our version."""
    over, configuration = asyncio.Event(), following.session.reads._credentials
    api.script(PATH, page(namespace("old"), version="900"), watch(bookmark(901), then=over))
    reflector = following.start()
    await until(lambda: reflector.status.resource_version == "901")
    configuration.host = f"http://127.0.0.1:{unused_tcp_port}"
    over.set()
    await until(lambda: reflector.status.restarts.get("unreachable", 0) >= 3)
    assert sorted(following.handler.objects) == ["old"], "answers go on meanwhile"
    api.script(PATH, page(namespace("new"), version="3"))
    configuration.host = api.url
    await following.names("new")


async def test_a_server_that_has_not_come_as_far_as_our_version_is_listed_again(
    api: ScriptedApi, following: Following
) -> None:
    """Restored from a backup and back before we noticed that it was away, it would tell us nothing for long."""
    api.script(PATH, page(namespace("old"), version="900"), watch(bookmark(901), then=CUT))
    api.deny(page(version="900"), recorded_error("list-future"))
    api.script(PATH, page(namespace("new"), version="3"))
    reflector = following.start()
    await following.names("new")
    await until(lambda: len(api.watches) == 2)
    assert (versions(api.confirmations), versions(api.watches)) == (["900", "901", "3"], ["900", "3"])
    assert reflector.status.restarts == {"unreachable": 1, "bad_version": 1}


async def test_a_server_that_will_not_say_how_far_it_is_is_watched_all_the_same(
    api: ScriptedApi, following: Following
) -> None:
    api.script(PATH, page(version="5"), watch(event("ADDED", namespace("a", 6))))
    api.deny(status(400, "unknown parameter resourceVersionMatch"))
    reflector = following.start()
    await following.names("a")
    assert reflector.status.restarts == {}


async def test_a_request_for_our_version_that_is_not_answered_is_given_up(
    api: ScriptedApi, following: Following
) -> None:
    api.script(PATH, page(version="5"), watch(event("ADDED", namespace("a", 6))))
    api.deny(held(page(), asyncio.Event()))
    reflector = following.start(WatchOptions(watch_list=False, confirm_timeout=0.05))
    await following.names("a")
    assert reflector.status.restarts == {"unreachable": 1}


async def test_a_port_on_which_no_server_listens_yet_is_tried_again(
    api: ScriptedApi, following: Following, unused_tcp_port: int
) -> None:
    following.session.reads._credentials.host = f"http://127.0.0.1:{unused_tcp_port}"
    reflector = following.start()
    await until(lambda: reflector.status.restarts.get("unreachable", 0) >= 2)
    assert (reflector.status.synced, "Cannot connect" in reflector.status.error) == (False, True)
    api.script(PATH, page(namespace("a"), version="5"))
    following.session.reads._credentials.host = api.url
    await following.names("a")


# -- connections ----------------------------------------------------------------------------------------------------


async def test_a_silent_watch_is_replaced_and_a_second_silence_lists_anew(
    api: ScriptedApi, following: Following
) -> None:
    """Half-open connections are silent; so is a server whose history is behind our version."""
    second = page(namespace("b"), version="3")
    unanswered = held(page(), asyncio.Event())  # so that no third silence comes
    api.script(PATH, page(namespace("a"), version="5"), watch(), watch(), second, unanswered)
    reflector = following.start(WatchOptions(watch_list=False, max_silence=0.05))
    await following.names("b")
    assert versions(api.watches)[:2] == ["5", "5"]
    assert (len(api.lists), reflector.status.restarts["silent"]) == (2, 2)
    assert following.clock.slept == []


async def test_a_watch_that_hangs_before_its_headers_is_given_up(api: ScriptedApi, following: Following) -> None:
    # The list before it and the watch after it have to be answered within this time, on a slow machine too.
    following.session.reads._limit = 0.5
    api.script(PATH, page(version="5"), held(page(), asyncio.Event()), watch(event("ADDED", namespace("a", 6))))
    reflector = following.start()
    await following.names("a")
    assert reflector.status.restarts == {"unreachable": 1}


# -- lines ----------------------------------------------------------------------------------------------------------


async def test_a_line_of_twenty_megabytes_in_small_pieces_is_one_event(api: ScriptedApi, following: Following) -> None:
    big = namespace("big", 6)
    big["metadata"]["annotations"] = {"blob": "x" * 20_000_000}
    api.script(PATH, page(version="5"), watch(event("ADDED", big), event("ADDED", namespace("a", 7)), chunk=65_536))
    following.start()
    await following.names("a", "big")


@pytest.mark.parametrize("size", [1, 7, 100])
async def test_cuts_between_chunks_do_not_matter(api: ScriptedApi, following: Following, size: int) -> None:
    lines = [event("ADDED", namespace(f"n{number}", number + 6)) for number in range(5)]
    api.script(PATH, page(version="5"), watch(*lines, chunk=size))
    following.start()
    await following.names(*(f"n{number}" for number in range(5)))


async def test_an_object_that_cannot_be_read_is_counted_named_once_and_passed_over(
    api: ScriptedApi, following: Following, caplog: pytest.LogCaptureFixture
) -> None:
    bad = {"metadata": {"name": "bad", "resourceVersion": "6", "labels": {"team": 7}}}
    api.script(PATH, page(bad, namespace("a"), version="5"))
    api.script(PATH, watch(event("MODIFIED", bad), event("MODIFIED", bad), event("ADDED", namespace("b", 9))))
    with caplog.at_level(logging.WARNING):
        reflector = following.start()
        await following.names("a", "b")
    assert (reflector.status.decode_errors, len(api.lists)) == (3, 1)
    assert [(record.kind, record.object) for record in caplog.records] == [("namespaces", "bad")]  # type: ignore[attr-defined]
