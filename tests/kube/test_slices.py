"""Bursts and long lists are taken in slices, between which everything else has its turn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from random import Random

import orjson
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from extender.kube.decoding import LARGE_LINE, LineSplitter, LineTooLongError, Listed, SliceDecoder
from extender.kube.errors import Rejected, TooLarge
from extender.kube.reflector import Reflector
from extender.kube.reflector_status import ReflectorStatus, WatchOptions
from extender.kube.session import Session
from extender.model.objects import Namespace
from extender.wire.objects.kinds import NAMESPACES, decode_page
from tests.fakes import FakeClock, FakeHandler, until
from tests.kube.conftest import PLAIN, Following
from tests.kube.scripted import (
    ScriptedApi,
    body,
    bookmark,
    cut_short,
    error_event,
    event,
    heavy,
    namespace,
    page,
    recorded_error,
    watch,
)

PATH = NAMESPACES.path


def decoder_of(most: int, seconds: float, step: float = 0.0) -> SliceDecoder[Namespace]:
    return SliceDecoder(NAMESPACES, ReflectorStatus("namespaces"), FakeClock(step=step), most=most, seconds=seconds)


def lines(count: int) -> list[bytes]:
    return [json.dumps(event("ADDED", namespace(f"n{number}", number + 1))).encode() for number in range(count)]


def test_a_slice_holds_no_more_than_so_many_events() -> None:
    decoder = decoder_of(4, 60.0)
    taken = decoder.decode_lines(lines(10), 0)
    assert (len(taken.changes), taken.end, taken.version) == (4, 4, "4")
    assert decoder.decode_lines(lines(10), 8).end == 10


def test_a_slice_ends_when_its_time_is_over_but_takes_at_least_one() -> None:
    slow = decoder_of(100, 3.0, 1.0)
    assert slow.decode_lines(lines(10), 0).end == 3
    slower = decoder_of(100, 3.0, 9.0)
    assert slower.decode_lines(lines(10), 0).end == 1


def test_items_of_a_page_are_decoded_in_slices_too() -> None:
    decoder = decoder_of(100, 3.0, 1.0)
    body = json.dumps({"metadata": {}, "items": [namespace(f"n{number}") for number in range(5)]})
    items = decode_page(body.encode()).items
    assert (len(items), decoder.decode_items(items, 0, Listed(lambda _key: None))) == (5, (3, ""))


def test_a_large_line_or_item_is_prepared_first_and_ends_its_slice() -> None:
    decoder = decoder_of(100, 60.0)
    large = namespace("large", 9) | {"status": {"text": "x" * LARGE_LINE}}
    found = [*lines(2), json.dumps(event("ADDED", large)).encode(), *lines(2)]
    taken = decoder.decode_lines(found, 0)
    assert (taken.end, taken.must_be, len(taken.changes)) == (2, "prepared", 2)
    taken = decoder.decode_lines(found, 2, "prepared")
    assert (taken.end, taken.must_be, taken.is_large, len(taken.changes)) == (3, "", True, 1)
    assert decoder.decode_lines(found, 3).end == 5
    items, into = [json.dumps(each).encode() for each in (namespace("n"), large)], Listed[Namespace](lambda _key: None)
    assert decoder.decode_items(items, 0, into) == (1, "prepared")
    assert decoder.decode_items(items, 1, into, "prepared") == (2, "")
    assert into.objects.keys() == {"n", "large"}


async def count_turns(turns: list[int], following: Following) -> None:
    while True:
        turns.append(len(following.handler.batches))
        await asyncio.sleep(0)


async def test_others_have_their_turn_within_one_chunk_of_a_burst(api: ScriptedApi, following: Following) -> None:
    """All events lie in the buffer at once, so reading alone would never give way."""
    api.script(PATH, page(version="1"), watch(*[event("ADDED", namespace(f"n{number}", 5)) for number in range(200)]))
    turns: list[int] = []
    other = asyncio.create_task(count_turns(turns, following))
    following.start(WatchOptions(watch_list=False, batch_events=10))
    await until(lambda: len(following.handler.changes) == 200)
    other.cancel()
    with suppress(asyncio.CancelledError):
        await other
    assert {len(batch) for batch in following.handler.batches} == {10}
    assert set(range(21)) <= set(turns), "it has seen the state after each batch"


class NotingHandler(FakeHandler[Namespace]):
    """Notes of each batch whether a task applied it."""

    def __init__(self) -> None:
        super().__init__()
        self.by_task: list[bool] = []

    async def apply(self, changes: Sequence[tuple[Namespace, bool]]) -> None:
        self.by_task.append(True)
        await super().apply(changes)

    def apply_one(self, obj: Namespace, *, is_deleted: bool) -> None:
        self.by_task.append(asyncio.current_task() is not None)
        super().apply_one(obj, is_deleted=is_deleted)


async def test_only_a_short_chunk_of_whole_lines_is_applied_where_it_arrives(
    api: ScriptedApi, session: Session, clock: FakeClock
) -> None:
    lines = [json.dumps(event("ADDED", namespace(name, 5))).encode() + b"\n" for name in "abcdef"]
    large = json.dumps(event("ADDED", namespace("large", 6, text="x" * 2**14))).encode() + b"\n"
    chunks = [lines[0], lines[1] + lines[2], lines[3][:9], lines[3][9:], large, lines[4], lines[5]]
    api.sends_late = True
    api.script(PATH, page(namespace("z")), watch(*chunks))
    handler = NotingHandler()
    following = Following(session, clock, handler=handler)
    reflector = following.start()
    await until(lambda: "f" in handler.objects)
    assert [obj.name for obj, _ in handler.changes] == ["a", "b", "c", "d", "large", "e", "f"]
    assert handler.by_task == [False, False, False, True, True, False, False]
    assert (reflector.status.events, reflector.backlog._received) == (7, sum(map(len, chunks)))
    assert not reflector.backlog.is_behind
    following.tasks[0].cancel()


def test_a_chunk_of_megabytes_is_split_in_parts() -> None:
    chunk = b"\n" * 10**6 + b"a\n" * 10**5 + b"b"
    splitter, lines = LineSplitter(100), list[bytes]()
    for part in splitter.split_parts(chunk):
        assert len(part) < len(chunk) / 4
        lines += part
    assert lines == [b"a"] * 10**5
    assert splitter.split(b"\n") == [b"b"]


def test_a_chunk_of_one_line_is_that_line_within_the_same_limit() -> None:
    splitter = LineSplitter(3)
    assert [splitter.split(chunk) for chunk in (b"abc\n", b"\n", b"d", b"ef\n", b"g\n")] == [
        [b"abc"],
        [],
        [],
        [b"def"],
        [b"g"],
    ]
    with pytest.raises(LineTooLongError):
        splitter.split(b"abcd\n")


def test_small_lines_that_cannot_be_read_fit_into_a_slice_together() -> None:
    """Each in a slice of its own, a burst of them would take as many iterations of the event loop."""
    bad = [json.dumps(event("ADDED", namespace(name))).replace("{}", '{"a": 1}').encode() for name in "ab"]
    decoder = decoder_of(100, 3.0)
    taken = decoder.decode_lines([*bad * 10, *lines(1), bad[0]], 0)
    assert (taken.end, taken.must_be, taken.unreadable, len(taken.changes)) == (21, "", {"a", "b"}, 1)


async def test_others_have_their_turn_although_no_line_holds_anything(session: Session) -> None:
    """Reading does not yield while data is waiting, and a chunk may be blank lines only."""
    reflector = Reflector(session.reads, NAMESPACES, WatchOptions(), FakeClock(), Random(1))
    turns = list[str]()
    asyncio.get_running_loop().call_soon(turns.append, "another")
    await reflector._handle_lines([], FakeHandler(), None, 0.0)
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
    deleted = error_event(410, "Expired")
    if options is PLAIN:
        api.script(PATH, page(*first, version="2"), watch(deleted), page(*later, version="4"), watch())
    else:
        lists = [[*(event("ADDED", each) for each in these), bookmark(4, initial_end=True)] for these in (first, later)]
        api.script(PATH, watch(*lists[0], deleted), watch(*lists[1]))
    following.start(options)
    await until(lambda: len(following.handler.lists) == 2)
    before, after = ({found.name: found for found in listed} for listed in following.handler.lists)
    assert after["a"] is before["a"]
    assert after["b"].labels == {"team": "new"}


async def test_a_list_is_emptied_in_parts_and_entirely() -> None:
    listed: Listed[Namespace] = Listed(lambda _key: None)
    for number in range(50):
        listed.add(Namespace(f"n{number}"))
    await listed.release()
    assert listed.objects == {}


# -- What a server sends is bounded: lines, pages, answers and the number of pages. Beyond it the reflector lists again,
#    later

SMALL = WatchOptions(watch_list=False, page_limit=16, longest_line=4_000, largest_page=20_000, most_pages=20)


async def test_a_page_that_is_too_large_is_asked_for_again_in_parts(api: ScriptedApi, following: Following) -> None:
    """Some tenant's 500 largest objects must not fill the memory, nor keep the list from coming to an end."""
    items = [heavy(f"n{number:02}", 3_000 if number < 20 else 10) for number in range(60)]
    api.script(PATH, *[cut_short(items)] * 30)
    reflector = following.start(SMALL)
    await following.names(*(f"n{number:02}" for number in range(60)))
    requested = [(seen.query.get("continue", ""), seen.query["limit"]) for seen in api.lists]
    assert requested[:4] == [("", "16"), ("", "4"), ("4", "4"), ("8", "4")], (
        "four of these fill more than half of a page"
    )
    assert requested[-1][1] == "16", "the limit comes back once the pages are small again"
    assert reflector.status.restarts == {}


async def test_a_page_of_too_many_values_is_asked_for_again_in_parts(api: ScriptedApi, following: Following) -> None:
    """To split it into objects would take too long in one step. An object may have any number of values."""
    items = [heavy(f"n{number:02}") for number in range(4)]
    items[0]["metadata"]["annotations"] = {f"k{number}": "" for number in range(500)}  # type: ignore[index]
    api.script(PATH, *[cut_short(items)] * 10)
    reflector = following.start(replace(SMALL, most_values=300))
    await following.names(*(f"n{number:02}" for number in range(4)))
    assert [seen.query["limit"] for seen in api.lists][:4] == ["16", "4", "1", "1"]
    assert reflector.status.restarts == {}


async def test_more_objects_than_were_asked_for_are_not_split_into_millions(
    api: ScriptedApi, following: Following
) -> None:
    numbers = body(b'{"metadata":{"resourceVersion":"1"},"items":[' + b"1," * 500 + b"1]}")
    api.script(PATH, *[numbers] * 9)
    reflector = following.start(replace(SMALL, most_values=300))
    await until(lambda: reflector.status.restarts)
    assert (set(reflector.status.restarts), reflector.status.decode_errors) == ({"undecodable"}, 0)


async def test_an_object_that_is_too_large_for_a_page_is_reported_and_tried_again_later(
    api: ScriptedApi, following: Following
) -> None:
    api.script(PATH, *[cut_short([heavy("huge", 30_000)])] * 6)
    reflector = following.start(SMALL)
    await until(lambda: reflector.status.restarts.get("oversized", 0) >= 2)
    assert reflector.status.outage == "the answer is longer than 20,000 bytes"
    assert [seen.query["limit"] for seen in api.lists[:3]] == ["16", "4", "1"]
    assert following.clock.slept[1] > following.clock.slept[0]


@pytest.mark.parametrize("is_ended", [True, False], ids=["with its end", "without"])
async def test_a_line_that_is_too_long_is_made_good_by_a_list(
    api: ScriptedApi, following: Following, *, is_ended: bool
) -> None:
    long = json.dumps(event("ADDED", heavy("long", 9_000))).encode()
    api.script(PATH, page(version="5"), watch(bookmark(6), long + b"\n" * is_ended), page(heavy("long", 9_000)))
    reflector = following.start(SMALL)
    await following.names("long")
    assert reflector.status.restarts == {"oversized": 1}
    await until(lambda: not reflector.status.outage)


async def test_bad_lines_again_and_again_are_met_with_growing_pauses(api: ScriptedApi, following: Following) -> None:
    """Each watch begins well, which is no reason to list everything again at once."""
    for version in range(5):
        api.script(PATH, page(version=str(2 * version + 1)), watch(bookmark(2 * version + 2), b"<html>\n"))
    following.start(SMALL)
    await until(lambda: len(api.lists) == 6)
    slept = following.clock.slept
    assert all(0.4 * 2**turn <= pause <= 0.8 * 2**turn for turn, pause in enumerate(slept))


@pytest.mark.parametrize(
    ("tokens", "pages"), [("xyx", 3), ([f"token-{number}" for number in range(25)], 20)], ids=["a circle", "no end"]
)
async def test_a_list_that_does_not_end_is_given_up(
    api: ScriptedApi, following: Following, tokens: Sequence[str], pages: int
) -> None:
    api.script(PATH, *[page(namespace("a"), token=token) for token in tokens])
    reflector = following.start(SMALL)
    await until(lambda: reflector.status.restarts)
    assert reflector.status.outage == f"metadata.continue: the list does not end: {pages} pages so far"
    assert reflector.status.restarts == {"undecodable": 1}


async def test_larger_pages_after_an_expired_list_are_bounded_as_well(api: ScriptedApi, following: Following) -> None:
    items = [heavy(f"n{number:02}", 1_000) for number in range(40)]
    api.script(PATH, cut_short(items), recorded_error("list-continue"), *[cut_short(items)] * 10)
    following.start(WatchOptions(watch_list=False, page_limit=4, largest_page=20_000))
    await following.names(*(f"n{number:02}" for number in range(40)))
    assert [seen.query["limit"] for seen in api.lists[:5]] == ["4", "4", "64", "16", "16"]


async def test_of_an_answer_that_is_too_large_no_more_is_read(api: ScriptedApi, session: Session) -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65_536)
            sent += 65_536

    api.script("/endless", endless)
    with pytest.raises(TooLarge, match="longer than 100,000 bytes"):
        await session.reads.call("GET", "/endless", largest=100_000)
    assert sent < 20_000_000


async def test_of_a_rejection_only_the_beginning_is_read(api: ScriptedApi, session: Session) -> None:
    api.script("/long", body(b"x" * 50_000_000, 403))
    with pytest.raises(Rejected, match=r"^403 x+$"):
        await session.reads.call("GET", "/long")


# -- A burst of events: little of it is read ahead, since a request waits for all that has arrived before it -----------

EVENT = orjson.dumps(event("MODIFIED", namespace("a", 2, text="x" * 2**14))) + b"\n"
EVENTS_A_WRITE, WRITES = 16, 192
HANDLED = 2**24  # bytes until the handler stops: receive buffers have grown by then
QUIET_LOOKS = 25  # in a row without progress: the sender waits


class HaltingHandler(FakeHandler[Namespace]):
    """Handles some bytes, then none until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.left = HANDLED // len(EVENT)
        self.goes_on = asyncio.Event()
        self.is_halted = False

    async def apply(self, changes: Sequence[tuple[Namespace, bool]]) -> None:
        self.left -= len(changes)
        if self.left < 0:
            self.is_halted = True
            await self.goes_on.wait()
        await super().apply(changes)


async def test_less_than_a_megabyte_and_a_half_of_a_burst_arrives_ahead(
    api: ScriptedApi, session: Session, clock: FakeClock
) -> None:
    sent = 0

    async def burst(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for _ in range(WRITES):
            await response.write(EVENT * EVENTS_A_WRITE)
            sent += EVENTS_A_WRITE
        await asyncio.get_running_loop().create_future()
        return response

    api.script(PATH, page(namespace("a")), burst)
    handler = HaltingHandler()
    following = Following(session, clock, handler=handler)
    reflector = following.start()
    await until(lambda: handler.is_halted)
    quiet, before = 0, (-1, -1)
    while quiet < QUIET_LOOKS:  # a slow sender may be taken for one that waits: then less has arrived
        now = (sent, reflector.backlog.unread())
        quiet, before = (quiet + 1 if now == before else 0), now
        await asyncio.sleep(0.005)
    assert reflector.backlog.unread() < 3 * 2**19
    handler.goes_on.set()
    await until(lambda: reflector.status.events == EVENTS_A_WRITE * WRITES)
    for task in following.tasks:
        task.cancel()
