"""Deadlines of requests, and the turns in which large bodies are decoded."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import cache
from itertools import pairwise

import orjson
import pytest

from extender.model.units import Address
from extender.server.app import listening
from extender.server.request_checks import Deadline, Deadlines
from extender.server.transport.turns import Turns
from extender.wire.extender_v1 import encode_filter_error
from tests.fakes import PATIENCE
from tests.server.raw import whole, wire
from tests.server.serving import BY_NAMES, app_with


async def within(deadlines: Deadlines, goes_on: asyncio.Event) -> str:
    """How a request ends that waits for something."""
    try:
        with Deadline(deadlines):
            await goes_on.wait()
    except TimeoutError:
        return "timed out"
    except asyncio.CancelledError:
        return "cancelled"
    return "answered"


async def test_requests_that_are_late_end_and_those_before_and_after_do_not() -> None:
    deadlines, now, never = Deadlines(0.02), asyncio.Event(), asyncio.Event()
    now.set()
    async with asyncio.timeout(PATIENCE):
        for _ in range(2):  # the timer that ended the first ones is armed again for the others
            ends = await asyncio.gather(*(within(deadlines, event) for event in (now, never, now, never)))
            assert ends == ["answered", "timed out", "answered", "timed out"]


async def test_a_request_that_is_cancelled_for_another_reason_is_not_late() -> None:
    deadlines, never = Deadlines(PATIENCE), asyncio.Event()
    task = asyncio.create_task(within(deadlines, never))
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "cancelled"


async def test_many_deadlines_share_a_timer() -> None:
    deadlines, armed = Deadlines(PATIENCE), list[float]()
    loop, now = asyncio.get_running_loop(), asyncio.Event()
    now.set()
    call_at = loop.call_at

    def counting(when: float, *args: object) -> asyncio.TimerHandle:
        armed.append(when)
        return call_at(when, *args)  # type: ignore[arg-type] # handed on as it came

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "call_at", counting)
        for _ in range(100):
            assert await within(deadlines, now) == "answered"
    assert len(armed) == 1


async def test_long_work_is_done_one_piece_in_each_iteration_of_the_loop() -> None:
    turns, decoded = Turns(), list[int]()

    async def decode(number: int) -> None:
        await turns.take()
        decoded.append(number)

    tasks = [asyncio.create_task(decode(number)) for number in range(5)]
    await asyncio.sleep(0)
    assert decoded == [0], "one that is alone does not wait"
    tasks[2].cancel()
    counts = []
    for _ in range(10):
        await asyncio.sleep(0)
        counts.append(len(decoded))
    assert decoded == [0, 1, 3, 4]
    assert all(after - before <= 1 for before, after in pairwise(counts))
    with suppress(asyncio.CancelledError):
        await tasks[2]
    await asyncio.wait_for(decode(5), PATIENCE)
    assert decoded[-1] == 5


async def test_several_pieces_of_shorter_work_begin_in_one_iteration_and_the_cancelled_take_no_turn() -> None:
    turns, begun = Turns(2), list[int]()

    async def begin(number: int) -> None:
        await turns.take()
        begun.append(number)

    tasks = [asyncio.create_task(begin(number)) for number in range(7)]
    await asyncio.sleep(0)
    assert begun == [0, 1]
    tasks[2].cancel()
    counts = [2]
    while len(begun) < 6:
        await asyncio.sleep(0)
        counts.append(len(begun))
    assert begun == [0, 1, 3, 4, 5, 6]
    assert {after - before for before, after in pairwise(counts)} <= {0, 2}
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_is_half_done_goes_ahead_of_what_has_not_begun() -> None:
    turns, done = Turns(), list[str]()

    async def work(name: str) -> None:
        await turns.take()
        done.append(f"{name} decoded")
        await turns.take(ahead=True)
        done.append(f"{name} decided")

    await asyncio.gather(*(work(name) for name in "abc"))
    assert done == [f"{name} {step}" for name in "abc" for step in ("decoded", "decided")]


# -- Compressed requests are refused before a byte is inflated, on every path ------------------------------------------

INFLATED = 64 * 2**20
BOMBS: dict[str, Callable[[], bytes]] = {
    "gzip": cache(lambda: gzip.compress(b"0" * INFLATED, 1)),
    "deflate": cache(lambda: zlib.compress(b"0" * INFLATED, 1)),
    "br": lambda: b"\x5b\xff\xff\x00",
    "zstd": lambda: b"(\xb5/\xfd",
}
PATHS = [("POST", "/filter"), ("POST", "/prioritize"), ("GET", "/livez"), ("PUT", "/debug/loglevel"), ("POST", "/none")]


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """A service as it listens in production."""
    async with listening(app_with(), Address("127.0.0.1:0")) as url:
        yield url


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize("encoding", BOMBS)
async def test_a_bomb_is_rejected_and_never_inflated(url: str, method: str, path: str, encoding: str) -> None:
    body = BOMBS[encoding]()
    async with wire(url) as connection:
        tracemalloc.reset_peak()
        begun, _ = tracemalloc.get_traced_memory()
        await connection.send(whole(method, path, body, Content_Encoding=encoding))
        status = await connection.status()
        _, peak = tracemalloc.get_traced_memory()
    text = f'request bodies must not be compressed (Content-Encoding "{encoding}")'
    if path == "/filter":
        assert (status, connection.body) == (200, encode_filter_error(text))
    else:
        assert (status, orjson.loads(connection.body)) == (415, {"error": text})
    assert peak - begun < INFLATED / 32


@pytest.mark.parametrize("encoding", ["gzip, identity", "identity, gzip", "x-gzip", "gzip\xff", ""])
async def test_every_other_form_than_the_bodys_own_is_rejected(url: str, encoding: str) -> None:
    async with wire(url) as connection:
        await connection.send(whole("POST", "/prioritize", b"{}", Content_Encoding=encoding))
        assert await connection.status() == 415


async def test_two_headers_do_not_hide_one_another(url: str) -> None:
    async with wire(url) as connection:
        both = {"Content_Encoding": "identity\r\nContent-Encoding: gzip"}
        await connection.send(whole("POST", "/prioritize", b"{}", **both))
        assert await connection.status() == 415


async def test_a_body_that_says_it_is_as_it_is_gets_its_answer(url: str) -> None:
    async with wire(url) as connection:
        await connection.send(whole("POST", "/filter", orjson.dumps(BY_NAMES), Content_Encoding="Identity"))
        assert await connection.status() == 200
        assert orjson.loads(connection.body)["NodeNames"] == ["node-a", "node-bb"]
