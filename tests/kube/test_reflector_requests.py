"""What a reflector requests after each answer of the API server, what its event handler gets, and how long it waits."""

from __future__ import annotations

import pytest

from extender.kube.reflector_status import WatchOptions
from extender.wire.objects.kinds import NAMESPACES
from tests.fakes import until
from tests.kube.conftest import Following
from tests.kube.courses import (
    EXPIRED,
    STREAMING,
    Course,
    added,
    busy,
    expired,
    listed,
    lost,
    shown,
    useless,
    without_streams,
)
from tests.kube.scripted import (
    CUT,
    END,
    ScriptedApi,
    body,
    bookmark,
    error_event,
    event,
    namespace,
    recorded_error,
    recorded_lines,
    status,
    watch,
)

STREAMED = bookmark(5, initial_end=True)
BAD = {"metadata": {"name": "bad", "resourceVersion": "6", "labels": {"team": 7}}}
LINE = b'{"type":"ADDED","object":{"metadata":{"name":"b","uid":"u","resourceVersion":"7"}}}\n'
HALF_DELETION = b'{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"6"}}'


COURSES: dict[str, Course] = {
    # A watch that ends
    "a proper end, as for slow readers in a burst": Course(
        [listed(""), watch(added("a", 6), then=END), watch(added("b", 7), then=END)], "list 5 6 7", [""], "a b", "ended 2"
    ),
    "watches that end without an event": Course(
        [listed(""), *[watch(then=END)] * 3], "list 5 5 5 5", [""], "", "ended 3", slept=3
    ),
    "watches that each end after an event": Course(
        [listed("", "1"), *[watch(added("a", version), then=END) for version in range(2, 15)]],
        "list 1 2 3 4 5 6 7 8 9 10 11 12 13 14", [""], "a", "ended 13", slept=[0.1] * 3,
    ),
    "a bookmark": Course([listed(""), watch(bookmark(90), then=END)], "list 5 90", [""], "", "ended 1"),
    "an event that cannot be read": Course(
        [listed(""), watch(event("ADDED", BAD), then=END)], "list 5 6", [""], "", "ended 1", unreadable=1
    ),
    "half a line at a cut": Course(
        [listed(""), watch(added("a", 6), LINE[:40], then=CUT), watch(LINE)],
        "list 5 6", [""], "a b", "unreachable 1", slept=1,
    ),
    "half a line before a proper end": Course(
        [listed("a"), watch(bookmark(8), HALF_DELETION, then=END)], "list 5 8", ["a"], "a", "ended 1"
    ),
    # Versions from which no watch can begin
    "a list without a version": useless(listed("a", "")),
    "a list of version 0": useless(listed("a", "0")),
    "a version that is too long for a request": useless(listed("a", "9" * 100_000)),
    "events without a version": Course(
        [listed(""), watch(added("a", ""), bookmark("0"), then=END)], "list 5 5", [""], "a", "ended 1", slept=1
    ),
    "a bookmark that is too long for a request": Course(
        [listed(""), watch(added("a", 6), bookmark("9" * 100_000), then=END)], "list 5 5", [""], "a", "ended 1", slept=1,
        is_one_slice=True,
    ),
    # Versions that are of no more use
    "410 as an event, recorded": expired(watch(recorded_lines("watch-error-410-namespaces")[0]), "expired"),
    "another code as an event": expired(watch(error_event(500, "received with PrevKv=nil")), "error_event"),
    "410 as a status": expired(status(410, "too old resource version"), "expired"),
    "500 for a bad version, recorded": expired(recorded_error("watch-bad-rv"), "bad_version"),
    "504 for a version from the future, recorded": expired(recorded_error("list-future"), "bad_version", [1.0]),
    "400 for a bad version": expired(status(400, 'invalid resource version "abc"'), "bad_version"),
    "events before and after an error event": Course(
        [listed(""), watch(added("a", 6), error_event(410), added("b", 7))], "list 5 list", [""], "a", "expired 1", slept=1
    ),
    "410 again and again": Course(
        [reply for version in range(1, 7) for reply in (listed("", str(version)), EXPIRED)],
        "list 1 list 2 list 3 list 4 list 5 list 6 list", [""] * 6, "", "expired 6", slept=6,
    ),
    # A server that cannot answer now
    "429 for a list and a watch": busy(status(429, headers={"Retry-After": "7"})),
    "503 for a list and a watch": busy(status(503, headers={"Retry-After": "7"})),
    "an error event with a time to retry": Course(
        [listed(""), watch(error_event(429, "initializing", 9))], "list 5 list", [""], "", "error_event 1", slept=[9.0]
    ),
    "an error event with a time in years": Course(
        [listed(""), watch(error_event(429, "", 10**9))], "list 5 list", [""], "", "error_event 1", slept=[60.0]
    ),
    "a server error twice: the version may be to blame": Course(
        [listed(""), *[status(500, "no leader")] * 2], "list 5 5 list", [""], "", "unreachable 2", slept=2
    ),
    "403 for a list": Course(
        [status(403, "forbidden")], "list list", [], "", "rejected 1", slept=1,
        error="list of namespaces rejected: 403 forbidden",
    ),
    "404 for a list": Course(
        [status(404, "no such resource")], "list list", [], "", "rejected 1", slept=1,
        error="list of namespaces rejected: 404 no such resource",
    ),
    "a new list that is not complete": Course(
        [listed("a"), EXPIRED, listed("b", "8", "next"), status(500), status(500)],
        "list 5 list list list list", ["a"], "a", "expired 1, unreachable 2", slept=3,
    ),
    # Answers that cannot be read
    "a page of HTML": useless(body("<html>login</html>"), "undecodable"),
    "a list that is an array": useless(body("[]"), "undecodable"),
    "items of a number": useless(body('{"items": 3}'), "undecodable"),
    "a deletion of an object without a name": lost(b'{"type":"DELETED","object":{"metadata":{"name":7}}}\n'),
    "a line without an end, nested deeply": lost(b'{"type":"ADDED","object":' + b"[" * 20_000 + b"\n"),
    "a line of HTML": lost(b"<html>bad gateway</html>\n"),
    "an empty object": lost(b"{}\n"),
    "an unknown type": lost(b'{"type":"RENAMED","object":{"metadata":{"name":"a"}}}\n', unreadable=0),
    # Streaming lists (KEP-3157)
    "changes after the initial events, in the same chunk": Course(
        [watch(added("a", 1), STREAMED, event("DELETED", namespace("a", 6)), added("b", 7), then=END)],
        "stream 7", ["a"], "b", "ended 1", options=STREAMING,
    ),
    "a streaming list that is cut": Course(
        [watch(added("half", 1), then=CUT), watch(added("a", 1), STREAMED)],
        "stream stream", ["a"], "a", "unreachable 1", slept=1, options=STREAMING,
    ),
    "a bookmark among the initial events": Course(
        [watch(added("half", 1), bookmark(4), then=END), watch(added("a", 1), STREAMED)],
        "stream stream", ["a"], "a", "ended 1", slept=1, options=STREAMING,
    ),
    "three streaming lists that end early, as behind some proxies": Course(
        [*[watch(added("half", 1), then=END)] * 3, listed("a"), EXPIRED],
        "stream stream stream list 5 stream", ["a"], "a", "ended 3, expired 1", slept=4, options=STREAMING,
    ),
    "a server that rejects streaming lists, recorded": without_streams(recorded_error("watchlist-without-match")),
    "a server that rejects streaming lists with 400": without_streams(status(400, "unknown parameter")),
    "a server that takes a streaming list for a watch": Course(
        [watch(added("stale", 1)), listed("a")], "stream list 5", ["a"], "a", "no_watch_list 1",
        options=WatchOptions(initial_silence=0.05),
    ),
}  # fmt: skip


LATE = {f"{name}, line by line": course for name, course in COURSES.items() if not course.is_one_slice}


@pytest.mark.parametrize(
    ("course", "sends_late"),
    [*((course, False) for course in COURSES.values()), *((course, True) for course in LATE.values())],
    ids=[*COURSES, *LATE],
)
async def test_requests_lists_and_pauses_follow_from_the_answers(
    api: ScriptedApi, following: Following, course: Course, *, sends_late: bool
) -> None:
    api.sends_late = sends_late
    api.script(NAMESPACES.path, *course.replies)
    reflector = following.start(course.options)
    await until(lambda: len(api.requests) == len(course.requests.split()))
    await following.names(*course.names.split())
    await until(lambda: course.requests.endswith("list") or not reflector.status.outage)
    assert " ".join(map(shown, api.requests)) == course.requests
    assert [" ".join(sorted(obj.name for obj in objects)) for objects in following.handler.lists] == course.lists
    slept = following.clock.slept
    if isinstance(course.slept, list):
        assert slept == course.slept
    else:
        assert len(slept) == course.slept
        assert all(0.4 * 2**turn <= pause <= min(0.8 * 2**turn, 30.0) for turn, pause in enumerate(slept))
    assert ", ".join(f"{reason} {count}" for reason, count in reflector.status.restarts.items()) == course.restarts
    assert reflector.status.relists == max(0, len(course.lists) - 1)
    assert reflector.status.decode_errors == course.unreadable
    assert course.error in {None, reflector.status.error}
