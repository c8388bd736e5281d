"""Objects that the decoder refuses: the feed goes on around them, and what can be read of them is read."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from extender.kube.effects import decode_lease
from extender.kube.listing import WatchFreshness
from extender.kube.reflector_status import WatchOptions
from extender.kube.session import Session
from extender.wire.objects.kinds import NAMESPACES
from tests.fakes import FakeClock, until
from tests.kube.conftest import Following
from tests.kube.scripted import ScriptedApi, body, bookmark, event, namespace, page, watch

PATH = NAMESPACES.path
STREAMING = WatchOptions(watch_list=True)
DEEP = msgspec.Raw(b"[" * 5_000 + b"]" * 5_000)


def deep(name: str, version: int = 1, **labels: str) -> dict[str, Any]:
    """A namespace that is nested deeply where nothing is read."""
    found = namespace(name, version, **labels)
    found["metadata"]["managedFields"] = [{"manager": "tenant", "fieldsV1": {"f:x": DEEP}}]
    found["status"] = {"conditions": DEEP}
    return found


def odd(name: str, version: int = 1) -> dict[str, Any]:
    """A namespace that cannot be read, but for its name."""
    found = namespace(name, version)
    found["metadata"]["labels"] = {"team": 7}
    return found


def line(found: dict[str, Any]) -> bytes:
    return msgspec.json.encode(found) + b"\n"


def listed(*items: dict[str, Any] | bytes, version: str = "5") -> bytes:
    parts = (item if isinstance(item, bytes) else msgspec.json.encode(item) for item in items)
    return b'{"metadata":{"resourceVersion":"%s"},"items":[%s]}' % (version.encode(), b",".join(parts))


async def test_deep_nesting_in_a_list_and_in_a_watch_hides_nothing(api: ScriptedApi, following: Following) -> None:
    api.script(PATH, body(listed(namespace("a"), deep("b", team="x"), namespace("c"))))
    api.script(PATH, watch(line(event("MODIFIED", deep("a", 6, team="y"))), event("ADDED", namespace("d", 7))))
    feed = following.start()
    await following.names("a", "b", "c", "d")
    labels = {name: dict(found.labels) for name, found in following.sink.objects.items()}
    assert labels == {"a": {"team": "y"}, "b": {"team": "x"}, "c": {}, "d": {}}
    status = feed.status
    assert (status.decode_errors, status.unreadable, status.restarts, len(api.lists)) == (0, 0, {}, 1)


async def test_deep_nesting_in_a_streaming_list_and_its_mark_hides_nothing(
    api: ScriptedApi, following: Following
) -> None:
    end = bookmark(5, initial_end=True)
    end["object"]["unheardOf"] = DEEP
    api.script(PATH, watch(event("ADDED", namespace("a", 1)), line(event("ADDED", deep("b", 2))), line(end)))
    feed = following.start(STREAMING)
    await following.names("a", "b")
    await until(lambda: feed.status.resource_version == "5")  # noted after the objects have been handed over
    assert feed.status.decode_errors == 0


async def test_a_deletion_that_is_nested_deeply_is_a_deletion(api: ScriptedApi, following: Following) -> None:
    api.script(PATH, page(namespace("a"), namespace("b"), version="5"), watch(line(event("DELETED", deep("a", 6)))))
    feed = following.start()
    await following.names("b")
    assert (len(api.lists), feed.status.decode_errors) == (1, 0)


@pytest.mark.parametrize(
    "item",
    [b"5", b"null", b'{"metadata":5}', b'{"metadata":{"name":"\xff","labels":{"a":7}}}', b'"\xff"', b"[]"],
)
async def test_a_list_goes_on_around_an_item_that_is_no_object(
    api: ScriptedApi, following: Following, item: bytes
) -> None:
    api.script(PATH, body(listed(namespace("a"), item, namespace("b"))))
    feed = following.start()
    await following.names("a", "b")
    assert (feed.status.decode_errors, feed.status.error) == (1, "")


async def test_text_that_is_no_utf8_is_read_as_the_apiserver_reads_it(api: ScriptedApi, following: Following) -> None:
    """It is replaced by U+FFFD, so that a byte in a label does not take its object out of the counts."""
    bad = line(event("ADDED", namespace("b", 6, team="MARK"))).replace(b"MARK", b"\xff")
    api.script(PATH, body(listed(msgspec.json.encode(namespace("a", team="MARK")).replace(b"MARK", b"x\xff"))))
    api.script(PATH, watch(bad))
    feed = following.start()
    await following.names("a", "b")
    labels = {name: found.labels["team"] for name, found in following.sink.objects.items()}
    assert (labels, feed.status.decode_errors) == ({"a": "x\ufffd", "b": "\ufffd"}, 0)


# -- what cannot be read at all -------------------------------------------------------------------------------------


async def test_an_object_that_becomes_unreadable_stays_as_it_was_read_also_through_a_new_list(
    api: ScriptedApi, following: Following
) -> None:
    api.script(PATH, page(namespace("a", team="x"), namespace("b"), version="5"))
    api.script(PATH, watch(event("MODIFIED", odd("a", 6)), event("UNKNOWN", {})))
    api.script(PATH, page(odd("a", 6), odd("never-read", 7), version="9"))
    feed = following.start()
    await until(lambda: len(following.sink.lists) == 2)
    assert {name: dict(found.labels) for name, found in following.sink.objects.items()} == {"a": {"team": "x"}}
    assert (feed.status.unreadable, feed.status.decode_errors) == (2, 3)


async def test_objects_that_are_unreadable_now_are_counted_until_they_are_read_or_gone(
    api: ScriptedApi, following: Following
) -> None:
    api.script(PATH, page(odd("a"), odd("b"), namespace("c"), version="5"))
    read, gone = asyncio.Event(), asyncio.Event()
    api.script(PATH, watch(event("MODIFIED", odd("c", 6)), then=read))
    api.script(PATH, watch(event("MODIFIED", namespace("a", 7)), then=gone), watch(event("DELETED", odd("c", 8))))
    feed = following.start()
    await until(lambda: feed.status.unreadable == 3)
    read.set()
    await until(lambda: feed.status.unreadable == 2)
    gone.set()
    await until(lambda: feed.status.unreadable == 1)
    await following.names("a")


async def test_the_deletion_of_an_object_that_cannot_be_read_needs_no_list(
    api: ScriptedApi, following: Following
) -> None:
    """Otherwise a client that makes and deletes such objects could have everything listed again and again."""
    api.script(PATH, page(namespace("a"), namespace("b"), version="5"), watch(event("DELETED", odd("a", 6))))
    feed = following.start()
    await following.names("b")
    await until(lambda: feed.status.resource_version == "6")
    assert len(api.lists) == 1


async def test_a_streaming_list_knows_which_of_its_objects_cannot_be_read(
    api: ScriptedApi, following: Following
) -> None:
    api.script(
        PATH,
        watch(
            event("ADDED", odd("a", 1)),
            event("ADDED", odd("b", 2)),
            event("ADDED", odd("c", 3)),
            event("MODIFIED", namespace("b", 4)),
            event("DELETED", odd("c", 5)),
            bookmark(6, initial_end=True),
        ),
    )
    feed = following.start(STREAMING)
    await following.names("b")
    assert feed.status.unreadable == 1


async def test_it_is_said_once_what_becomes_of_it(
    api: ScriptedApi, following: Following, caplog: pytest.LogCaptureFixture
) -> None:
    api.script(PATH, page(odd("a"), version="5"), watch(event("MODIFIED", odd("a", 6)), event("ADDED", namespace("b"))))
    with caplog.at_level(logging.WARNING):
        following.start()
        await following.names("b")
    begin = "namespaces a cannot be read and counts as it was last read, if ever: metadata.labels"
    assert [record.getMessage().startswith(begin) for record in caplog.records] == [True]


async def test_others_have_their_turn_while_a_large_object_is_simplified(
    api: ScriptedApi, following: Following
) -> None:
    big = deep("big", 6)
    big["status"] = [[[index], [index]] for index in range(20_000)]
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    api.script(PATH, page(version="5"), watch(line(event("ADDED", big))))
    following.start()
    other = asyncio.ensure_future(take_turns())
    await following.names("big")
    other.cancel()
    assert turns > 50


# -- single reads ---------------------------------------------------------------------------------------------------


async def test_the_newest_version_is_reported_whatever_the_one_object_is(
    api: ScriptedApi, session: Session, clock: FakeClock
) -> None:
    api.script(PATH, body(listed(deep("a"), version="7")), body(listed(odd("b"), version="8")))
    comparing = WatchFreshness(session.reads, NAMESPACES, clock)
    assert [await comparing.newest_version() for _ in range(2)] == ["7", "8"]


def test_a_lease_is_read_whatever_its_managed_fields_hold() -> None:
    lease = {"metadata": {"name": "extender", "managedFields": [DEEP]}, "spec": {"holderIdentity": "me"}}
    assert decode_lease(msgspec.json.encode(lease)).holder == "me"
