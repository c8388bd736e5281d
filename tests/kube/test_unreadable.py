"""Objects that the decoder refuses: the reflector goes on around them, and what can be read of them is read."""

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
from extender.telemetry.logs import fields_of
from extender.wire.objects.kinds import NAMESPACES
from tests.fakes import FakeClock, until
from tests.kube.conftest import PLAIN, Following
from tests.kube.scripted import Reply, ScriptedApi, body, bookmark, event, namespace, page, watch

PATH = NAMESPACES.path
Labels = dict[str, dict[str, str]]
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


def spoiled(name: str, version: int, text: bytes) -> bytes:
    """A namespace whose team is bytes that are no UTF-8."""
    return msgspec.json.encode(namespace(name, version, team="MARK")).replace(b"MARK", text)


MARK = bookmark(5, initial_end=True)
MARK["object"]["unheardOf"] = DEEP
STREAM_OF_ODD = [
    *(event("ADDED", odd(name, version)) for version, name in enumerate("abc", 1)),
    *(event("MODIFIED", namespace("b", 4)), event("DELETED", odd("c", 5)), bookmark(6, initial_end=True)),
]
NO_OBJECTS = [b"5", b"null", b'{"metadata":5}', b'{"metadata":{"name":"\xff","labels":{"a":7}}}', b'"\xff"', b"[]"]
TWO = page(namespace("a"), namespace("b"), version="5")
# The answers, the labels of the objects that are read, how often decoding failed, and how many objects stay unreadable.
READ: dict[str, tuple[list[Reply], Labels, int, int]] = {
    "deep nesting in a list and in a watch": (
        [
            body(listed(namespace("a"), deep("b", team="x"), namespace("c"))),
            watch(line(event("MODIFIED", deep("a", 6, team="y"))), event("ADDED", namespace("d", 7))),
        ],
        {"a": {"team": "y"}, "b": {"team": "x"}, "c": {}, "d": {}}, 0, 0,
    ),
    "deep nesting in a deletion": ([TWO, watch(line(event("DELETED", deep("a", 6))))], {"b": {}}, 0, 0),
    "text that is no UTF-8 is replaced by U+FFFD": (
        [
            body(listed(spoiled("a", 1, b"x\xff"))),
            watch(b'{"type":"ADDED","object":' + spoiled("b", 6, b"\xff") + b"}\n"),
        ],
        {"a": {"team": "x\ufffd"}, "b": {"team": "\ufffd"}}, 0, 0,
    ),
    **{
        f"an item that is {item!r}": ([body(listed(namespace("a"), item, namespace("b")))], {"a": {}, "b": {}}, 1, b"name" in item)
        for item in NO_OBJECTS
    },
    "a deletion of an object that cannot be read, which needs no list": (
        [TWO, watch(event("DELETED", odd("a", 6)))], {"b": {}}, 1, 0,
    ),
    "stream: deep nesting in the list and in its mark": (
        [watch(event("ADDED", namespace("a", 1)), line(event("ADDED", deep("b", 2))), line(MARK))],
        {"a": {}, "b": {}}, 0, 0,
    ),
    "stream: objects that cannot be read": ([watch(*STREAM_OF_ODD)], {"b": {}}, 4, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
async def test_what_can_be_read_is_read(api: ScriptedApi, following: Following, name: str) -> None:
    replies, labels, decode_errors, unreadable = READ[name]
    api.script(PATH, *replies)
    is_stream = name.startswith("stream")
    reflector = following.start(STREAMING if is_stream else PLAIN)
    await following.names(*labels)
    await until(lambda: {name: dict(found.labels) for name, found in following.handler.objects.items()} == labels)
    await until(lambda: not is_stream or reflector.status.resource_version)
    status = reflector.status
    assert (status.decode_errors, status.unreadable, status.restarts) == (decode_errors, unreadable, {})
    assert (status.error, len(api.lists)) == ("", 0 if is_stream else 1)


# -- what cannot be read at all -------------------------------------------------------------------------------------


async def test_an_object_that_becomes_unreadable_stays_as_it_was_read_also_through_a_new_list(
    api: ScriptedApi, following: Following
) -> None:
    api.script(PATH, page(namespace("a", team="x"), namespace("b"), version="5"))
    api.script(PATH, watch(event("MODIFIED", odd("a", 6)), event("UNKNOWN", {})))
    api.script(PATH, page(odd("a", 6), odd("never-read", 7), version="9"))
    reflector = following.start()
    await until(lambda: len(following.handler.lists) == 2)
    assert {name: dict(found.labels) for name, found in following.handler.objects.items()} == {"a": {"team": "x"}}
    assert (reflector.status.unreadable, reflector.status.decode_errors) == (2, 3)


async def test_objects_that_are_unreadable_now_are_counted_until_they_are_read_or_gone(
    api: ScriptedApi, following: Following
) -> None:
    api.script(PATH, page(odd("a"), odd("b"), namespace("c"), version="5"))
    read, deleted = asyncio.Event(), asyncio.Event()
    api.script(PATH, watch(event("MODIFIED", odd("c", 6)), then=read))
    api.script(PATH, watch(event("MODIFIED", namespace("a", 7)), then=deleted), watch(event("DELETED", odd("c", 8))))
    reflector = following.start()
    await until(lambda: reflector.status.unreadable == 3)
    read.set()
    await until(lambda: reflector.status.unreadable == 2)
    deleted.set()
    await until(lambda: reflector.status.unreadable == 1)
    await following.names("a")


async def test_it_is_said_once_what_becomes_of_it(
    api: ScriptedApi, following: Following, caplog: pytest.LogCaptureFixture
) -> None:
    api.script(PATH, page(odd("a"), version="5"), watch(event("MODIFIED", odd("a", 6)), event("ADDED", namespace("b"))))
    with caplog.at_level(logging.WARNING):
        following.start()
        await following.names("b")
    (record,) = caplog.records
    assert record.getMessage() == "object cannot be read and counts as it was last read, if ever"
    fields = fields_of(record)
    assert (fields["kind"], fields["object"]) == ("namespaces", "a")
    assert str(fields["problem"]).startswith("metadata.labels")


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
