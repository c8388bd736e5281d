"""A feed under every fault that an apiserver, a proxy or a network has in store."""

from __future__ import annotations

import asyncio
import logging

import pytest

from extender.kube.reflector_status import RestartReason, WatchOptions
from extender.wire.objects.kinds import NAMESPACES
from tests.fakes import until
from tests.kube.conftest import Following
from tests.kube.scripted import (
    CUT,
    END,
    Reply,
    ScriptedApi,
    body,
    bookmark,
    error_event,
    event,
    held,
    namespace,
    page,
    recorded_error,
    recorded_lines,
    status,
    versions,
    watch,
)

PATH = NAMESPACES.path


def line(text: str) -> bytes:
    return text.encode() + b"\n"


# -- 410 and its relatives ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rejection",
    [
        pytest.param(watch(recorded_lines("watch-error-410-namespaces")[0]), id="410 as an event, recorded"),
        pytest.param(watch(error_event(500, "etcd event received with PrevKv=nil")), id="another code as an event"),
        pytest.param(status(410, "too old resource version"), id="410 as a status"),
        pytest.param(recorded_error("watch-bad-rv"), id="500 for a bad version, recorded"),
        pytest.param(recorded_error("list-future"), id="504 for a version from the future, recorded"),
        pytest.param(status(400, 'invalid resource version "abc"'), id="400 for a bad version"),
    ],
)
async def test_a_version_that_is_of_no_more_use_leads_to_a_new_list_after_a_pause(
    api: ScriptedApi, following: Following, rejection: Reply
) -> None:
    api.script(PATH, page(namespace("a"), namespace("gone"), version="5"), rejection, page(namespace("a"), version="9"))
    feed = following.start()
    await until(lambda: len(api.watches) == 2)
    assert versions(api.watches) == ["5", "9"]
    assert [[found.name for found in told] for told in following.sink.lists] == [["a", "gone"], ["a"]]
    assert len(following.clock.slept) == 1
    assert following.clock.slept[0] >= 0.4
    assert (feed.status.relists, feed.status.error) == (1, "")


async def test_events_before_an_error_event_are_reported_and_later_ones_are_not(
    api: ScriptedApi, following: Following
) -> None:
    api.script(
        PATH,
        page(version="5"),
        watch(event("ADDED", namespace("a", 6)), error_event(410), event("ADDED", namespace("b", 7))),
    )
    following.start()
    await until(lambda: len(api.lists) == 2)
    assert [found.name for found, _ in following.sink.changes] == ["a"]


async def test_410_again_and_again_is_met_with_growing_pauses(api: ScriptedApi, following: Following) -> None:
    for version in range(6):
        api.script(PATH, page(version=str(version + 1)), watch(error_event(410)))
    following.start()
    await until(lambda: len(api.lists) == 7)
    slept = following.clock.slept
    assert all(0.4 * 2**turn <= pause <= min(0.8 * 2**turn, 30.0) for turn, pause in enumerate(slept))


async def test_a_version_that_is_too_long_for_a_request_is_not_sent(api: ScriptedApi, following: Following) -> None:
    """A server answers such a request with 431 each time, and the watch would never go on."""
    endless = "9" * 100_000
    api.script(PATH, page(version=endless), page(version="5"))
    api.script(PATH, watch(event("ADDED", namespace("a", 6)), bookmark(endless), then=END), watch())
    feed = following.start()
    await until(lambda: len(api.watches) == 2)
    assert versions(api.watches) == ["5", "5"], "what came with it is sent again"
    assert feed.status.restarts[RestartReason.BAD_VERSION] == 1


async def test_an_error_event_that_names_a_time_in_years_is_waited_for_a_minute(
    api: ScriptedApi, following: Following
) -> None:
    api.script(PATH, page(version="1"), watch(error_event(429, retry_after=10**9)))
    following.start()
    await until(lambda: len(api.lists) == 2)
    assert following.clock.slept == [60.0]


async def test_watches_that_each_end_after_an_event_are_slowed_down(api: ScriptedApi, following: Following) -> None:
    """Otherwise such a server would get a thousand requests a second."""
    api.script(PATH, page(version="1"))
    for version in range(2, 15):
        api.script(PATH, watch(event("ADDED", namespace("a", version)), then=END))
    following.start()
    await until(lambda: len(api.watches) == 14)
    assert following.clock.slept == [0.1, 0.1, 0.1]


async def test_pauses_begin_anew_after_a_watch_has_told_something(api: ScriptedApi, following: Following) -> None:
    api.script(PATH, status(500), status(500), status(500), page(version="5"))
    api.script(PATH, watch(event("ADDED", namespace("a", 6)), then=CUT))
    following.start()
    await until(lambda: len(api.watches) == 2)
    assert following.clock.slept[2] > 1.6
    assert following.clock.slept[3] <= 0.8


async def test_answers_can_go_on_from_the_old_objects_until_the_new_list_is_complete(
    api: ScriptedApi, following: Following
) -> None:
    """Nothing of the first page is told while the second is missing."""
    api.script(PATH, page(namespace("a"), version="5"), watch(error_event(410)))
    api.script(PATH, page(namespace("b"), version="8", token="next"), status(500), status(500))
    following.start()
    await until(lambda: len(api.lists) == 5)
    assert sorted(following.sink.objects) == ["a"]
    assert following.sink.batches == []


@pytest.mark.parametrize("answer", [status(410, "too old resource version"), status(403, "forbidden")])
async def test_the_first_answer_after_an_outage_begins_with_a_short_pause_again(
    api: ScriptedApi, following: Following, answer: Reply
) -> None:
    """An API server that starts knows no old version, and for a moment no role. Half a minute is for one that is away."""
    api.script(PATH, page(namespace("a"), version="5"), *[status(500)] * 6, answer, answer, page(version="9"))
    feed = following.start()
    await until(lambda: feed.status.resource_version == "9")
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
    assert sorted(following.sink.objects) == ["a", "b"]


# -- servers that cannot now ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rejection",
    [
        pytest.param(status(429, headers={"Retry-After": "7"}), id="429"),
        pytest.param(status(503, headers={"Retry-After": "7"}), id="503"),
    ],
)
async def test_retry_after_is_honoured_for_lists_and_watches(
    api: ScriptedApi, following: Following, rejection: Reply
) -> None:
    api.script(PATH, rejection, page(version="5"), rejection)
    feed = following.start()
    await until(lambda: len(api.watches) == 2)
    assert following.clock.slept == [7.0, 7.0]
    assert versions(api.watches) == ["5", "5"]
    assert feed.status.restarts == {"throttled": 2}


async def test_retry_after_of_an_error_event_is_honoured(api: ScriptedApi, following: Following) -> None:
    api.script(PATH, page(version="5"), watch(error_event(429, "storage is (re)initializing", retry_after=9)))
    following.start()
    await until(lambda: len(api.lists) == 2)
    assert following.clock.slept == [9.0]


async def test_a_server_error_is_tried_again_as_it_was_and_a_second_one_lists_anew(
    api: ScriptedApi, following: Following
) -> None:
    """The text need not say that the resourceVersion is to blame."""
    api.script(PATH, page(version="5"), status(500, "etcdserver: no leader"), status(500, "etcdserver: no leader"))
    following.start()
    await until(lambda: len(api.lists) == 2)
    assert versions(api.watches) == ["5", "5"]


@pytest.mark.parametrize(("code", "text"), [(403, "namespaces is forbidden"), (404, "no such resource")])
async def test_what_the_server_does_not_give_us_is_reported_and_tried_again(
    api: ScriptedApi, following: Following, code: int, text: str
) -> None:
    api.script(PATH, status(code, text))
    feed = following.start()
    await until(lambda: len(api.lists) == 2)
    found = feed.status
    assert (found.error, found.restarts) == (f"list of namespaces rejected: {code} {text}", {"rejected": 1})


async def test_a_server_that_was_away_is_listed_again(
    api: ScriptedApi, following: Following, unused_tcp_port: int
) -> None:
    """It may be another one, with another history; it would keep silent about all that is behind our version."""
    over, configuration = asyncio.Event(), following.session.reads._credentials
    api.script(PATH, page(namespace("old"), version="900"), watch(bookmark(901), then=over))
    feed = following.start()
    await until(lambda: feed.status.resource_version == "901")
    configuration.host = f"http://127.0.0.1:{unused_tcp_port}"
    over.set()
    await until(lambda: feed.status.restarts.get("unreachable", 0) >= 3)
    assert sorted(following.sink.objects) == ["old"], "answers go on meanwhile"
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
    feed = following.start()
    await following.names("new")
    await until(lambda: len(api.watches) == 2)
    assert (versions(api.confirmations), versions(api.watches)) == (["900", "901", "3"], ["900", "3"])
    assert feed.status.restarts == {"unreachable": 1, "bad_version": 1}


async def test_a_server_that_will_not_say_how_far_it_is_is_watched_all_the_same(
    api: ScriptedApi, following: Following
) -> None:
    api.script(PATH, page(version="5"), watch(event("ADDED", namespace("a", 6))))
    api.deny(status(400, "unknown parameter resourceVersionMatch"))
    feed = following.start()
    await following.names("a")
    assert feed.status.restarts == {}


async def test_a_request_for_our_version_that_is_not_answered_is_given_up(
    api: ScriptedApi, following: Following
) -> None:
    api.script(PATH, page(version="5"), watch(event("ADDED", namespace("a", 6))))
    api.deny(held(page(), asyncio.Event()))
    feed = following.start(WatchOptions(watch_list=False, confirm_timeout=0.05))
    await following.names("a")
    assert feed.status.restarts == {"unreachable": 1}


async def test_a_port_on_which_no_server_listens_yet_is_tried_again(
    api: ScriptedApi, following: Following, unused_tcp_port: int
) -> None:
    following.session.reads._credentials.host = f"http://127.0.0.1:{unused_tcp_port}"
    feed = following.start()
    await until(lambda: feed.status.restarts.get("unreachable", 0) >= 2)
    assert (feed.status.synced, "Cannot connect" in feed.status.error) == (False, True)
    api.script(PATH, page(namespace("a"), version="5"))
    following.session.reads._credentials.host = api.url
    await following.names("a")


@pytest.mark.parametrize("answer", ["<html>login</html>", "[]", '{"items": 3}'])
async def test_a_list_that_is_none_is_asked_for_again(api: ScriptedApi, following: Following, answer: str) -> None:
    api.script(PATH, body(answer), page(namespace("a"), version="5"))
    feed = following.start()
    await following.names("a")
    assert sum(feed.status.restarts.values()) == 1


# -- connections ----------------------------------------------------------------------------------------------------


async def test_half_a_line_at_the_cut_is_dropped_and_sent_again_whole(api: ScriptedApi, following: Following) -> None:
    whole = line('{"type":"ADDED","object":{"metadata":{"name":"b","uid":"u","resourceVersion":"7"}}}')
    api.script(
        PATH,
        page(version="5"),
        watch(event("ADDED", namespace("a", 6)), whole[:40], then=CUT),
        watch(whole),
    )
    feed = following.start()
    await following.names("a", "b")
    assert versions(api.watches) == ["5", "6"]
    assert (len(api.lists), feed.status.decode_errors) == (1, 0)


async def test_half_a_line_before_a_proper_end_is_no_event_either(api: ScriptedApi, following: Following) -> None:
    cut = b'{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"6"}}'
    api.script(PATH, page(namespace("a"), version="5"), watch(bookmark(8), cut, then=END))
    following.start()
    await until(lambda: len(api.watches) == 2)
    assert versions(api.watches) == ["5", "8"]
    assert sorted(following.sink.objects) == ["a"]


async def test_a_silent_watch_is_replaced_and_a_second_silence_lists_anew(
    api: ScriptedApi, following: Following
) -> None:
    """Half-open connections are silent; so is a server whose history is behind our version."""
    second = page(namespace("b"), version="3")
    unanswered = held(page(), asyncio.Event())  # so that no third silence comes
    api.script(PATH, page(namespace("a"), version="5"), watch(), watch(), second, unanswered)
    feed = following.start(WatchOptions(watch_list=False, max_silence=0.05))
    await following.names("b")
    assert versions(api.watches)[:2] == ["5", "5"]
    assert (len(api.lists), feed.status.restarts["silent"]) == (2, 2)
    assert following.clock.slept == []


async def test_a_watch_that_hangs_before_its_headers_is_given_up(api: ScriptedApi, following: Following) -> None:
    # The list before it and the watch after it have to be answered within this time, on a slow machine too.
    following.session.reads._limit = 0.5
    api.script(PATH, page(version="5"), held(page(), asyncio.Event()), watch(event("ADDED", namespace("a", 6))))
    feed = following.start()
    await following.names("a")
    assert feed.status.restarts == {"unreachable": 1}


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
        feed = following.start()
        await following.names("a", "b")
    assert (feed.status.decode_errors, len(api.lists)) == (3, 1)
    assert [record.getMessage().count("namespaces bad") for record in caplog.records] == [1]


async def test_the_version_of_an_unreadable_object_counts_too(api: ScriptedApi, following: Following) -> None:
    """Otherwise it would be sent again after each end of the watch."""
    bad = {"metadata": {"name": "bad", "resourceVersion": "6", "labels": {"team": 7}}}
    api.script(PATH, page(version="5"), watch(event("ADDED", bad), then=END))
    following.start()
    await until(lambda: len(api.watches) == 2)
    assert versions(api.watches) == ["5", "6"]


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param(
            line('{"type":"DELETED","object":{"metadata":{"name":7}}}'),
            id="a deletion of an object that cannot be identified",
        ),
        pytest.param(b'{"type":"ADDED","object":' + b"[" * 20_000 + b"\n", id="no end, and nested deeply"),
        pytest.param(line("<html>bad gateway</html>"), id="no JSON"),
        pytest.param(line("{}"), id="an empty object"),
        pytest.param(line('{"type":"RENAMED","object":{"metadata":{"name":"a"}}}'), id="an unknown type"),
    ],
)
async def test_a_change_that_is_lost_is_made_good_by_a_new_list(
    api: ScriptedApi, following: Following, lost: bytes
) -> None:
    api.script(PATH, page(namespace("a"), version="5"), watch(bookmark(6), lost), page(version="9"))
    feed = following.start()
    await until(lambda: len(following.sink.lists) == 2)
    assert following.sink.objects == {}
    assert feed.status.restarts == {"undecodable": 1}
    await until(lambda: not feed.status.outage)
