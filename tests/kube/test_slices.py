"""Bursts and long lists are taken in slices, between which everything else has its turn."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from random import Random

from extender.kube.session import Session
from extender.kube.watch.decoding import LineSplitter, Listed, SliceDecoder
from extender.kube.watch.reflector import Reflector
from extender.kube.watch.reflector_values import ReflectorStatus, WatchOptions
from extender.wire.objects.kinds import NAMESPACES, decode_page
from tests.fakes import FakeClock, FakeSink, until
from tests.kube.conftest import Following
from tests.kube.scripted import ScriptedApi, event, namespace, page, watch

PATH = NAMESPACES.path


def lines(count: int) -> list[bytes]:
    return [json.dumps(event("ADDED", namespace(f"n{number}", number + 1))).encode() for number in range(count)]


def test_a_slice_holds_no_more_than_so_many_events() -> None:
    decoder = SliceDecoder(NAMESPACES, ReflectorStatus("namespaces"), FakeClock(), most=4, seconds=60.0)
    taken = decoder.decode_lines(lines(10), 0)
    assert (len(taken.changes), taken.end, taken.version) == (4, 4, "4")
    assert decoder.decode_lines(lines(10), 8).end == 10


def test_a_slice_ends_when_its_time_is_over_but_takes_at_least_one() -> None:
    slow = SliceDecoder(NAMESPACES, ReflectorStatus("namespaces"), FakeClock(step=1.0), most=100, seconds=3.0)
    assert slow.decode_lines(lines(10), 0).end == 3
    slower = SliceDecoder(NAMESPACES, ReflectorStatus("namespaces"), FakeClock(step=9.0), most=100, seconds=3.0)
    assert slower.decode_lines(lines(10), 0).end == 1


def test_items_of_a_page_are_decoded_in_slices_too() -> None:
    decoder = SliceDecoder(NAMESPACES, ReflectorStatus("namespaces"), FakeClock(step=1.0), most=100, seconds=3.0)
    body = json.dumps({"metadata": {}, "items": [namespace(f"n{number}") for number in range(5)]})
    items = decode_page(body.encode()).items
    assert (len(items), decoder.decode_items(items, 0, Listed(lambda _key: None))) == (5, (3, False))


async def count_turns(turns: list[int], following: Following) -> None:
    while True:
        turns.append(len(following.sink.batches))
        await asyncio.sleep(0)


async def test_others_have_their_turn_within_one_chunk_of_a_burst(api: ScriptedApi, following: Following) -> None:
    """All events lie in the buffer at once, so reading alone would never give way."""
    api.script(PATH, page(version="1"), watch(*[event("ADDED", namespace(f"n{number}", 5)) for number in range(200)]))
    turns: list[int] = []
    other = asyncio.create_task(count_turns(turns, following))
    following.start(WatchOptions(watch_list=False, batch_events=10))
    await until(lambda: len(following.sink.changes) == 200)
    other.cancel()
    with suppress(asyncio.CancelledError):
        await other
    assert {len(batch) for batch in following.sink.batches} == {10}
    assert set(range(21)) <= set(turns), "it has seen the state after each batch"


def test_a_chunk_of_megabytes_is_split_in_parts() -> None:
    chunk = b"\n" * 10**6 + b"a\n" * 10**5 + b"b"
    splitter, lines = LineSplitter(100), list[bytes]()
    for part in splitter.split_parts(chunk):
        assert len(part) < len(chunk) / 4
        lines += part
    assert lines == [b"a"] * 10**5
    assert splitter.split(b"\n") == [b"b"]


def test_small_lines_that_cannot_be_read_fit_into_a_slice_together() -> None:
    """Each in a slice of its own, a burst of them would take as many iterations of the event loop."""
    bad = [json.dumps(event("ADDED", namespace(name))).replace("{}", '{"a": 1}').encode() for name in "ab"]
    decoder = SliceDecoder(NAMESPACES, ReflectorStatus("namespaces"), FakeClock(), most=100, seconds=3.0)
    taken = decoder.decode_lines([*bad * 10, *lines(1), bad[0]], 0)
    assert (taken.end, taken.must_simplify, taken.unreadable, len(taken.changes)) == (21, False, {"a", "b"}, 1)


async def test_others_have_their_turn_although_no_line_holds_anything(session: Session) -> None:
    """Reading does not yield while data is waiting, and a chunk may be blank lines only."""
    reflector = Reflector(session.reads, NAMESPACES, WatchOptions(), FakeClock(), Random(1))
    turns = list[str]()
    asyncio.get_running_loop().call_soon(turns.append, "another")
    await reflector._handle_lines([], FakeSink(), None, 0.0)
    assert turns == ["another"]
