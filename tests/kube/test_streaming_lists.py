"""Streaming lists (KEP-3157): when the server has them, when it refuses, when it does not know what was asked."""

from __future__ import annotations

import asyncio
import json
from random import Random

import pytest
from aiohttp import web

from extender.kube.reflector import Reflector
from extender.kube.reflector_status import WatchOptions
from extender.kube.session import Session
from extender.model.objects import Pod
from extender.wire.objects.kinds import NAMESPACES, PODS
from tests.fakes import FakeClock, FakeSink, until
from tests.kube.conftest import Following
from tests.kube.scripted import (
    CUT,
    END,
    Reply,
    ScriptedApi,
    bookmark,
    error_event,
    event,
    namespace,
    page,
    recorded_error,
    recorded_lines,
    status,
    versions,
    watch,
)

PATH = NAMESPACES.path
STREAMING = WatchOptions()
IMPATIENT = WatchOptions(initial_silence=0.05)


async def test_the_recorded_stream_of_a_real_apiserver_is_reported_as_one_list(
    api: ScriptedApi, session: Session, clock: FakeClock
) -> None:
    lines = recorded_lines("watchlist-pods")
    api.script(PODS.path, watch(*lines, then=END))
    sink: FakeSink[Pod] = FakeSink()
    feed = Reflector(session.reads, PODS, STREAMING, clock, Random(1))
    task = asyncio.create_task(feed.run(sink))
    await until(lambda: len(api.watches) == 2)
    task.cancel()
    asked = api.watches[0].query
    assert (asked["sendInitialEvents"], asked["resourceVersionMatch"]) == ("true", "NotOlderThan")
    assert "resourceVersion" not in asked
    assert [len(told) for told in sink.lists] == [len(lines) - 1]
    assert (sink.batches, api.lists) == ([], [])
    assert "sendInitialEvents" not in api.watches[1].query
    assert versions(api.watches)[1] == feed.status.resource_version != ""


async def test_changes_after_the_initial_events_come_from_the_same_stream(
    api: ScriptedApi, following: Following
) -> None:
    """Even in the same chunk as the mark that ends them."""
    api.script(
        PATH,
        watch(
            event("ADDED", namespace("a", 1)),
            bookmark(5, initial_end=True),
            event("DELETED", namespace("a", 6)),
            event("ADDED", namespace("b", 7)),
        ),
    )
    feed = following.start(STREAMING)
    await following.names("b")
    assert [[found.name for found in told] for told in following.sink.lists] == [["a"]]
    await until(lambda: feed.status.resource_version == "7")
    assert len(api.requests) == 1


async def test_changes_among_the_initial_events_are_part_of_the_list(api: ScriptedApi, following: Following) -> None:
    api.script(
        PATH,
        watch(
            event("ADDED", namespace("a", 1)),
            event("ADDED", namespace("b", 2)),
            event("MODIFIED", namespace("b", 3, team="x")),
            event("DELETED", namespace("a", 4)),
            bookmark(5, initial_end=True),
        ),
    )
    following.start(STREAMING)
    await following.names("b")
    assert [dict(found.labels) for found in following.sink.lists[0]] == [{"team": "x"}]


@pytest.mark.parametrize(
    "rejection",
    [
        pytest.param(recorded_error("watchlist-without-match"), id="422, recorded"),
        pytest.param(status(400, "unknown parameter"), id="400"),
    ],
)
async def test_a_server_that_rejects_is_read_in_pages_from_then_on(
    api: ScriptedApi, following: Following, rejection: Reply
) -> None:
    api.script(PATH, rejection, page(namespace("a"), version="5"), watch(error_event(410)), page(version="6"), watch())
    following.start(STREAMING)
    await until(lambda: len(api.requests) == 5)
    assert ["sendInitialEvents" in seen.query for seen in api.requests] == [True, False, False, False, False]
    assert len(following.clock.slept) == 1, "only the 410 costs a pause"


async def test_a_server_that_ignores_the_request_is_read_in_pages(api: ScriptedApi, following: Following) -> None:
    """It sends what there is as ADDED, as for any watch without a version, and no mark ever."""
    api.script(PATH, watch(event("ADDED", namespace("stale", 1))), page(namespace("a"), version="5"))
    feed = following.start(IMPATIENT)
    await following.names("a")
    assert feed.status.restarts == {"no_watch_list": 1}


async def test_initial_events_that_never_end_are_given_up(api: ScriptedApi, following: Following) -> None:
    """A busy kind on a server that ignores the request is never silent."""
    api.script(PATH, watch(event("ADDED", namespace("stale", 1))), page(namespace("a"), version="5"))
    following.clock.step = 1.0
    following.start(WatchOptions(initial_silence=600.0, initial_seconds=0.05))
    await following.names("a")


async def test_initial_events_may_take_longer_the_more_objects_there_are(
    api: ScriptedApi, following: Following
) -> None:
    """A million pods take minutes, and in pages they take as long."""
    has_read = asyncio.Event()

    async def in_two_parts(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for part in ([event("ADDED", namespace(name, 1)) for name in "abc"], [bookmark(5, initial_end=True)]):
            await response.write(b"".join(json.dumps(line).encode() + b"\n" for line in part))
            await has_read.wait()
        return response

    api.script(PATH, in_two_parts, watch())
    following.clock.step = 1.0
    feed = following.start(WatchOptions(initial_silence=600.0, initial_seconds=1.0, initial_seconds_per_object=100.0))
    await until(lambda: feed.status.listed == 3)
    await asyncio.sleep(0)  # the reader waits for more, or has given up
    has_read.set()
    await following.names("a", "b", "c")
    assert api.lists == []


async def test_a_list_cut_in_the_middle_is_not_told(api: ScriptedApi, following: Following) -> None:
    api.script(
        PATH,
        watch(event("ADDED", namespace("half", 1)), then=CUT),
        watch(event("ADDED", namespace("a", 1)), bookmark(5, initial_end=True)),
    )
    following.start(STREAMING)
    await following.names("a")
    assert len(following.sink.lists) == 1


async def test_after_three_streams_that_break_off_a_list_is_read_in_pages(
    api: ScriptedApi, following: Following
) -> None:
    """Some proxies end every stream after a while; a large list must come through all the same."""
    broken = watch(event("ADDED", namespace("half", 1)), then=END)
    api.script(PATH, broken, broken, broken, page(namespace("a"), version="5"), watch(error_event(410)))
    following.start(STREAMING)
    await until(lambda: len(api.requests) == 6)
    assert ["sendInitialEvents" in seen.query for seen in api.requests] == [True, True, True, False, False, True]


async def test_a_bookmark_before_the_mark_is_no_place_to_resume_from(api: ScriptedApi, following: Following) -> None:
    api.script(PATH, watch(event("ADDED", namespace("half", 1)), bookmark(4), then=END))
    api.script(PATH, watch(event("ADDED", namespace("a", 1)), bookmark(5, initial_end=True)))
    following.start(STREAMING)
    await following.names("a")
    assert versions(api.watches)[:2] == ["(none)", "(none)"]
