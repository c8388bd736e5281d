"""Bursts and long lists are taken in slices, between which everything else has its turn."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.kube.decoding import LineSplitter, LineTooLongError, Listed, SliceDecoder
from extender.kube.reflector import Reflector
from extender.kube.reflector_status import ReflectorStatus, WatchOptions
from extender.kube.session import Session
from extender.model.objects import Namespace
from extender.wire.objects.kinds import NAMESPACES, decode_page
from tests.fakes import FakeClock, FakeSink, until
from tests.kube.conftest import PLAIN, Following
from tests.kube.scripted import ScriptedApi, bookmark, error_event, event, namespace, page, watch

PATH = "/api/v1/namespaces"


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


@given(st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"x"))), st.lists(st.integers(0, 200)))
def test_any_cuts_give_the_same_lines(lines: list[bytes], cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    splitter = LineSplitter(100_000_000)
    found = [line for start, end in pairwise(edges) for line in splitter.split(data[start:end])]
    assert found == [line for line in lines if line]


def test_what_stands_after_the_last_newline_is_no_line_yet() -> None:
    splitter = LineSplitter(100_000_000)
    assert splitter.split(b"one\ntw") == [b"one"]
    assert splitter.split(b"o") == []
    assert splitter.split(b"\n") == [b"two"]


def test_a_long_line_is_joined_once() -> None:
    """Joining at each chunk would copy 3 GB for this line."""
    splitter = LineSplitter(100_000_000)
    piece = b"x" * 65_536
    assert all(splitter.split(piece) == [] for _ in range(320))
    (line,) = splitter.split(b"\n")
    assert len(line) == 320 * 65_536
    assert splitter._pieces == []


@given(st.integers(1, 40), st.lists(st.integers(1, 60), min_size=1), st.integers(1, 30))
def test_a_line_is_given_or_rejected_by_its_length_whatever_the_cuts(longest: int, sizes: list[int], cut: int) -> None:
    data = b"".join(b"x" * size + b"\n" for size in sizes)
    splitter, found = LineSplitter(longest), list[bytes]()
    pieces = [data[start : start + cut] for start in range(0, len(data), cut)]
    if all(size <= longest for size in sizes):
        assert [len(line) for piece in pieces for line in splitter.split(piece)] == sizes
        return
    with pytest.raises(LineTooLongError, match=f"longer than {longest:,} bytes"):
        found += (line for piece in pieces for line in splitter.split(piece))
    assert sum(map(len, splitter._pieces)) <= longest


@pytest.mark.parametrize("options", [PLAIN, WatchOptions()], ids=["pages", "streaming list"])
async def test_an_equal_object_of_a_later_list_is_the_one_that_is_held(
    api: ScriptedApi, following: Following, options: WatchOptions
) -> None:
    first, later = [namespace("a", 1), namespace("b", 2)], [namespace("a", 1), namespace("b", 3, team="new")]
    gone = error_event(410, "Expired")
    if options is PLAIN:
        api.script(PATH, page(*first, version="2"), watch(gone), page(*later, version="4"), watch())
    else:
        lists = [[*(event("ADDED", each) for each in these), bookmark(4, initial_end=True)] for these in (first, later)]
        api.script(PATH, watch(*lists[0], gone), watch(*lists[1]))
    following.start(options)
    await until(lambda: len(following.sink.lists) == 2)
    before, after = ({found.name: found for found in listed} for listed in following.sink.lists)
    assert after["a"] is before["a"]
    assert after["b"].labels == {"team": "new"}


async def test_a_list_is_emptied_in_parts_and_entirely() -> None:
    listed: Listed[Namespace] = Listed(lambda _key: None)
    for number in range(50):
        listed.add(Namespace(f"n{number}"))
    await listed.release()
    assert listed.objects == {}
