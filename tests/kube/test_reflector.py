"""The normal course of a reflector: list, watch, bookmarks, proper ends."""

from __future__ import annotations

import asyncio
import json
import logging
from random import Random
from typing import Any

import pytest
from aiohttp import web

from extender.kube.reflector import Reflector
from extender.kube.reflector_status import ReflectorPhase, WatchOptions
from extender.kube.session import Session
from extender.model.objects import Namespace, Pod
from extender.wire.objects.kinds import NAMESPACES, NODES, PODS, Kind
from extender.wire.objects.objects_json import NamespaceJson
from extender.wire.objects.trim import trim_namespace
from tests.fakes import FakeClock, FakeHandler, until
from tests.kube.conftest import PLAIN, Following
from tests.kube.scripted import (
    CUT,
    END,
    ScriptedApi,
    body,
    bookmark,
    event,
    held,
    namespace,
    page,
    recorded_lines,
    status,
    versions,
    watch,
)

PATH = NAMESPACES.path


async def test_a_list_in_pages_is_reported_at_once_and_the_watch_goes_on_from_it(
    api: ScriptedApi, following: Following
) -> None:
    api.script(PATH, page(namespace("a"), version="7", token="next"), page(namespace("b"), version="7"))
    following.start(WatchOptions(watch_list=False, page_limit=1))
    await until(lambda: len(api.watches) == 1)
    assert [[found.name for found in listed] for listed in following.handler.lists] == [["a", "b"]]
    assert [seen.query for seen in api.lists] == [{"limit": "1"}, {"limit": "1", "continue": "next"}]
    requested = api.watches[0].query
    assert (requested["resourceVersion"], requested["allowWatchBookmarks"]) == ("7", "true")
    assert 300 <= int(requested["timeoutSeconds"]) <= 600


async def test_the_recorded_pages_and_watch_of_a_real_apiserver_are_reported_completely(
    api: ScriptedApi, session: Session, clock: FakeClock
) -> None:
    """Three pages (the recording has two of them), then 109 events and a bookmark, deletions among them."""
    first, second = recorded_lines("list-pods-paged")
    rest = json.loads(recorded_lines("list-pods")[0])["items"][20:]
    api.script(PODS.path, body(first), body(second), page(*rest, version="379"))
    api.script(PODS.path, watch(*recorded_lines("watch-pods"), chunk=4096))
    handler: FakeHandler[Pod] = FakeHandler()
    reflector = Reflector(session.reads, PODS, PLAIN, clock, Random(1))
    task = asyncio.create_task(reflector.run(handler))
    await until(lambda: len(handler.changes) == 109)
    task.cancel()
    assert len(handler.lists[0]) == 38
    assert [deleted for _, deleted in handler.changes].count(True) == 6
    assert reflector.status.decode_errors == 0


@pytest.mark.parametrize(
    ("kind", "listed", "changes", "last"),
    [(NODES, "356", 6, "583"), (NAMESPACES, "353", 3, "587")],
    ids=["nodes", "namespaces"],
)
async def test_bookmarks_of_a_real_apiserver_move_the_version_on_and_change_nothing(
    api: ScriptedApi, session: Session, clock: FakeClock, kind: Kind[Any], listed: str, changes: int, last: str
) -> None:
    api.script(kind.path, page(version=listed), watch(*recorded_lines(f"watch-{kind.name}"), then=END))
    handler: FakeHandler[Any] = FakeHandler()
    task = asyncio.create_task(Reflector(session.reads, kind, PLAIN, clock, Random(1)).run(handler))
    await until(lambda: len(api.watches) == 2)
    task.cancel()
    assert len(handler.changes) == changes
    assert versions(api.watches)[1] == last


async def test_added_modified_and_deleted_arrive_in_order(api: ScriptedApi, following: Following) -> None:
    api.script(
        PATH,
        page(namespace("a", 1)),
        watch(
            event("ADDED", namespace("b", 2)),
            event("MODIFIED", namespace("a", 3, team="x")),
            event("DELETED", namespace("b", 4)),
        ),
    )
    following.start()
    await until(lambda: len(following.handler.changes) == 3)
    assert [(found.name, dict(found.labels), deleted) for found, deleted in following.handler.changes] == [
        ("b", {}, False),
        ("a", {"team": "x"}, False),
        ("b", {}, True),
    ]


async def test_the_version_moves_on_only_when_the_sink_has_taken_the_change(
    api: ScriptedApi, following: Following
) -> None:
    following.handler.failure = RuntimeError("index is upset")
    api.script(PATH, page(version="5"), watch(event("ADDED", namespace("a", 6))))
    reflector = following.start()
    with pytest.raises(RuntimeError, match="index is upset"):
        await following.tasks.pop()
    assert reflector.status.resource_version == "5"


async def test_a_second_run_begins_with_a_new_list(api: ScriptedApi, following: Following) -> None:
    """After a crash it is not known which objects the event handler has taken."""
    api.script(PATH, page(namespace("a"), version="5"), watch(), page(namespace("b"), version="8"))
    reflector = following.start()
    await until(lambda: len(api.watches) == 1)
    following.tasks.pop().cancel()
    task = asyncio.create_task(reflector.run(following.handler))
    following.tasks.append(task)
    await following.names("b")
    assert reflector.status.relists == 1


async def test_status_says_where_the_feed_stands(api: ScriptedApi, following: Following) -> None:
    reflector = following.start()
    assert (reflector.status.phase, reflector.status.synced, reflector.status.last_heard) == (
        ReflectorPhase.STARTING,
        False,
        0.0,
    )
    api.script(PATH, page(namespace("a"), version="5"), watch(event("ADDED", namespace("b", 6)), bookmark(7)))
    await following.names("a", "b")
    await until(lambda: reflector.status.resource_version == "7")
    found = reflector.status
    assert (found.kind, found.phase, found.synced, found.resource_version) == (
        "namespaces",
        ReflectorPhase.WATCHING,
        True,
        "7",
    )
    assert (found.events, found.relists, found.error) == (1, 0, "")
    assert found.lag(following.clock.time + 30) == pytest.approx(30)
    assert reflector.status.last_heard == found.last_heard


async def test_a_list_shows_its_pages_while_it_runs(api: ScriptedApi, following: Following) -> None:
    gate = asyncio.Event()
    api.script(PATH, page(namespace("a"), token="x"), held(page(), gate))
    reflector = following.start()
    await until(lambda: len(api.lists) == 2)
    assert (reflector.status.phase, reflector.status.page, reflector.status.listed) == (ReflectorPhase.LISTING, 1, 1)
    assert following.handler.lists == []


# -- When a reflector knows that it misses changes: at once, not after a time of silence ---------------------------------


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
    reflector = following.start(WatchOptions(watch_list=watch_list))
    outages = [reflector.status.outage]
    await until(lambda: reflector.status.synced)
    outages.append(reflector.status.outage)
    await until(lambda: len(api.watches) == len(rejections) + 1)
    outages.append(reflector.status.outage)
    granted.set()
    await until(lambda: not reflector.status.outage)
    rejected = f"watch of namespaces rejected: {code} may not"
    assert (outages[0], outages[2]) == ("no watch has begun", rejected)
    assert outages[1] in {"no watch has begun", rejected}


async def test_a_connection_that_breaks_is_no_outage(api: ScriptedApi, following: Following) -> None:
    api.script(PATH, page(version="5"), watch(bookmark(6), then=CUT), status(500), status(503), watch(bookmark(7)))
    reflector = following.start()
    await until(lambda: not reflector.status.outage)
    seen = set[str]()

    def is_back() -> bool:
        seen.add(reflector.status.outage)
        return reflector.status.resource_version == "7"

    await until(is_back)
    assert seen == {""}


async def test_a_feed_that_has_died_is_an_outage(api: ScriptedApi, following: Following) -> None:
    api.script(PATH, page(version="5"), watch(event("ADDED", namespace("a", 6))))
    following.handler.failure = RuntimeError("upset")
    reflector = following.start()
    with pytest.raises(RuntimeError, match="upset"):
        await following.tasks.pop()
    assert reflector.status.outage == "the reflector of namespaces has ended"


async def test_a_change_that_is_lost_is_an_outage_until_the_new_list_is_watched(
    api: ScriptedApi, following: Following
) -> None:
    listed = asyncio.Event()
    api.script(PATH, page(namespace("a"), version="5"), watch(b"<html>\n"), held(page(version="9"), listed))
    reflector = following.start()
    await until(lambda: len(api.lists) == 2)
    assert reflector.status.outage == "a change could not be read"
    listed.set()
    await until(lambda: len(api.watches) == 2 and not reflector.status.outage)


# -- A custom resource whose CRD is missing: it counts as one without objects, and is found when it appears ------------

THINGS_PATH = "/apis/example.com/v1/things"
# Read like namespaces, which are the simplest objects.
THINGS: Kind[Namespace] = Kind("things", THINGS_PATH, NamespaceJson, trim_namespace, is_custom=True)
MISSING = status(404, "the server could not find the requested resource", "NotFound")


@pytest.mark.parametrize("options", [PLAIN, WatchOptions()], ids=["pages", "streaming list"])
async def test_a_kind_that_is_not_served_is_listed_as_empty_and_said_loudly_once(
    api: ScriptedApi, following: Following, caplog: pytest.LogCaptureFixture, options: WatchOptions
) -> None:
    api.script(THINGS_PATH, *[MISSING] * 4)
    reflector = following.start(options, THINGS)
    await until(lambda: len(api.requests) > 4)
    assert following.handler.lists == [[]]
    assert (reflector.status.not_served, reflector.status.synced, reflector.status.outage) == (True, True, "")
    loud = [record.message for record in caplog.records if record.levelno >= logging.ERROR]
    text = "the API server does not serve this kind, so none of it is in effect; is its CRD installed?"
    assert loud == [text]


async def test_one_answer_404_is_not_believed(api: ScriptedApi, following: Following) -> None:
    gate = asyncio.Event()

    async def held(request: object) -> object:
        await gate.wait()
        raise AssertionError(request)

    api.script(THINGS_PATH, page(namespace("a"), version="5"), watch(), MISSING, held)  # type: ignore[arg-type] # never answers
    reflector = following.start(kind=THINGS)
    await until(lambda: len(following.handler.lists) == 1)
    assert [[found.name for found in listed] for listed in following.handler.lists] == [["a"]]
    assert not reflector.status.not_served


async def test_the_kind_is_found_when_its_crd_appears(api: ScriptedApi, following: Following) -> None:
    api.script(
        THINGS_PATH,
        MISSING,
        MISSING,
        MISSING,
        page(namespace("a"), version="5"),
        watch(event("ADDED", namespace("b", 6))),
    )
    reflector = following.start(kind=THINGS)
    await following.names("a", "b")
    assert not reflector.status.not_served
    assert reflector.status.phase is ReflectorPhase.WATCHING
    assert reflector.status.outage == ""


async def test_objects_of_a_deleted_crd_are_gone_and_those_of_a_new_one_are_listed(
    api: ScriptedApi, following: Following
) -> None:
    """A new CRD of the same name begins without objects, so its first list has to be compared with nothing."""
    api.script(
        THINGS_PATH, page(namespace("a"), version="5"), MISSING, MISSING, page(namespace("b"), version="9"), watch()
    )
    following.start(kind=THINGS)
    await following.names("b")
    assert [[found.name for found in listed] for listed in following.handler.lists] == [["a"], [], ["b"]]


async def test_another_rejection_after_that_is_an_outage_again(api: ScriptedApi, following: Following) -> None:
    api.script(THINGS_PATH, MISSING, MISSING, *[status(403, "forbidden", "Forbidden")] * 3)
    reflector = following.start(kind=THINGS)
    await until(lambda: "403" in reflector.status.outage)
    assert following.handler.lists == [[]]


async def test_a_built_in_kind_that_is_not_found_stays_an_outage(api: ScriptedApi, following: Following) -> None:
    """As behind a proxy with a wrong path: an empty cluster would be a wrong answer."""
    api.script(NAMESPACES.path, *[MISSING] * 4)
    reflector = following.start()
    await until(lambda: len(api.requests) > 4)
    assert following.handler.lists == []
    assert "404" in reflector.status.outage


# -- Streaming lists (KEP-3157): when the server has them, when it refuses, when it does not know what was asked -------

STREAMING = WatchOptions()
IMPATIENT = WatchOptions(initial_silence=0.05)


async def test_the_recorded_stream_of_a_real_apiserver_is_reported_as_one_list(
    api: ScriptedApi, session: Session, clock: FakeClock
) -> None:
    lines = recorded_lines("watchlist-pods")
    api.script(PODS.path, watch(*lines, then=END))
    handler: FakeHandler[Pod] = FakeHandler()
    reflector = Reflector(session.reads, PODS, STREAMING, clock, Random(1))
    task = asyncio.create_task(reflector.run(handler))
    await until(lambda: len(api.watches) == 2)
    task.cancel()
    requested = api.watches[0].query
    assert (requested["sendInitialEvents"], requested["resourceVersionMatch"]) == ("true", "NotOlderThan")
    assert "resourceVersion" not in requested
    assert [len(listed) for listed in handler.lists] == [len(lines) - 1]
    assert (handler.batches, api.lists) == ([], [])
    assert "sendInitialEvents" not in api.watches[1].query
    assert versions(api.watches)[1] == reflector.status.resource_version != ""


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
    assert [dict(found.labels) for found in following.handler.lists[0]] == [{"team": "x"}]


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
    reflector = following.start(
        WatchOptions(initial_silence=600.0, initial_seconds=1.0, initial_seconds_per_object=100.0)
    )
    await until(lambda: reflector.status.listed == 3)
    await asyncio.sleep(0)  # the reader waits for more, or has given up
    has_read.set()
    await following.names("a", "b", "c")
    assert api.lists == []
