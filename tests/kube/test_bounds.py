"""What a server sends is bounded: lines, pages, answers and the number of pages. Beyond it the feed lists again, later."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count

import pytest
from aiohttp import web

from extender.kube.errors import Rejected, TooLarge
from extender.kube.reflector_status import WatchOptions
from extender.kube.session import Session
from extender.wire.objects.kinds import NAMESPACES
from tests.fakes import until
from tests.kube.conftest import Following
from tests.kube.scripted import (
    Reply,
    ScriptedApi,
    body,
    bookmark,
    event,
    namespace,
    page,
    recorded_error,
    watch,
)

PATH = NAMESPACES.path
SMALL = WatchOptions(watch_list=False, page_limit=16, longest_line=4_000, largest_page=20_000, most_pages=20)


def heavy(name: str, size: int = 3_000, version: int = 1) -> dict[str, object]:
    """A namespace of about so many bytes."""
    found = namespace(name, version)
    found["metadata"]["annotations"] = {"blob": "x" * size}
    return found


def cut_short(items: list[dict[str, object]]) -> Reply:
    """A list that honours limit and continue, and a silent watch."""

    async def reply(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await watch()(request)
        start, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        end = start + limit
        token = str(end) if end < len(items) else ""
        return await page(*items[start:end], version="5", token=token)(request)

    return reply


async def test_a_page_that_is_too_large_is_asked_for_again_in_parts(api: ScriptedApi, following: Following) -> None:
    """Some tenant's 500 largest objects must not fill the memory, nor keep the list from coming to an end."""
    items = [heavy(f"n{number:02}", 3_000 if number < 20 else 10) for number in range(60)]
    api.script(PATH, *[cut_short(items)] * 30)
    feed = following.start(SMALL)
    await following.names(*(f"n{number:02}" for number in range(60)))
    asked = [(seen.query.get("continue", ""), seen.query["limit"]) for seen in api.lists]
    assert asked[:4] == [("", "16"), ("", "4"), ("4", "4"), ("8", "4")], "four of these fill more than half of a page"
    assert asked[-1][1] == "16", "the limit comes back once the pages are small again"
    assert feed.status.restarts == {}


async def test_a_page_of_too_many_values_is_asked_for_again_in_parts(api: ScriptedApi, following: Following) -> None:
    """To split it into objects would take too long in one step. An object may have any number of values."""
    items = [heavy(f"n{number:02}") for number in range(4)]
    items[0]["metadata"]["annotations"] = {f"k{number}": "" for number in range(500)}  # type: ignore[index]
    api.script(PATH, *[cut_short(items)] * 10)
    feed = following.start(replace(SMALL, most_values=300))
    await following.names(*(f"n{number:02}" for number in range(4)))
    assert [seen.query["limit"] for seen in api.lists][:4] == ["16", "4", "1", "1"]
    assert feed.status.restarts == {}


async def test_more_objects_than_were_asked_for_are_not_split_into_millions(
    api: ScriptedApi, following: Following
) -> None:
    numbers = body(b'{"metadata":{"resourceVersion":"1"},"items":[' + b"1," * 500 + b"1]}")
    api.script(PATH, *[numbers] * 9)
    feed = following.start(replace(SMALL, most_values=300))
    await until(lambda: feed.status.restarts)
    assert (feed.status.restarts, feed.status.decode_errors) == ({"undecodable": 1}, 0)


async def test_an_object_that_is_too_large_for_a_page_is_reported_and_tried_again_later(
    api: ScriptedApi, following: Following
) -> None:
    api.script(PATH, *[cut_short([heavy("huge", 30_000)])] * 6)
    feed = following.start(SMALL)
    await until(lambda: feed.status.restarts.get("oversized", 0) >= 2)
    assert feed.status.outage == "the answer is longer than 20,000 bytes"
    assert [seen.query["limit"] for seen in api.lists[:3]] == ["16", "4", "1"]
    assert following.clock.slept[1] > following.clock.slept[0]


@pytest.mark.parametrize("is_ended", [True, False], ids=["with its end", "without"])
async def test_a_line_that_is_too_long_is_made_good_by_a_list(
    api: ScriptedApi, following: Following, *, is_ended: bool
) -> None:
    long = json.dumps(event("ADDED", heavy("long", 9_000))).encode()
    api.script(PATH, page(version="5"), watch(bookmark(6), long + b"\n" * is_ended), page(heavy("long", 9_000)))
    feed = following.start(SMALL)
    await following.names("long")
    assert feed.status.restarts == {"oversized": 1}
    await until(lambda: not feed.status.outage)


async def test_bad_lines_again_and_again_are_met_with_growing_pauses(api: ScriptedApi, following: Following) -> None:
    """Each watch begins well, which is no reason to list everything again at once."""
    for version in range(5):
        api.script(PATH, page(version=str(2 * version + 1)), watch(bookmark(2 * version + 2), b"<html>\n"))
    following.start(SMALL)
    await until(lambda: len(api.lists) == 6)
    slept = following.clock.slept
    assert all(0.4 * 2**turn <= pause <= 0.8 * 2**turn for turn, pause in enumerate(slept))


async def test_a_list_that_turns_in_a_circle_is_given_up(api: ScriptedApi, following: Following) -> None:
    api.script(PATH, *[page(namespace("a"), token=token) for token in ("x", "y", "x")])
    feed = following.start(SMALL)
    await until(lambda: feed.status.restarts)
    assert feed.status.outage == "metadata.continue: the list does not end: 3 pages so far"
    assert feed.status.restarts == {"undecodable": 1}


async def test_a_list_without_an_end_is_given_up(api: ScriptedApi, following: Following) -> None:
    numbers = count()

    async def another(request: web.Request) -> web.StreamResponse:
        return await page(token=f"token-{next(numbers)}")(request)

    api.script(PATH, *[another] * 25)
    feed = following.start(SMALL)
    await until(lambda: feed.status.restarts)
    assert feed.status.outage == "metadata.continue: the list does not end: 20 pages so far"


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
