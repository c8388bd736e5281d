"""Data of many tiny lines is parsed in slices, a slice in each turn of the loop, and nothing is lost or mixed up."""

from __future__ import annotations

import asyncio

import orjson

from extender.model.units import Address
from extender.server.app import listening
from extender.server.slicing import SLICE, SlicedFeeder, is_dense
from tests.server.raw import head_of, wire
from tests.server.serving import BY_NAMES, app_with


def test_data_of_tiny_chunks_is_dense_and_json_is_not() -> None:
    chunks = b"1\r\n \r\n" * SLICE
    lines = orjson.dumps([{"metadata": {"name": f"node-{n}"}} for n in range(5000)], option=orjson.OPT_INDENT_2)
    assert is_dense(chunks)
    assert not is_dense(chunks[:SLICE])
    assert not is_dense(orjson.dumps([f"node-{n}" for n in range(5000)]))
    assert not is_dense(lines)


async def test_each_turn_of_the_loop_feeds_one_slice_of_one_connection() -> None:
    feeder, fed = SlicedFeeder(), list[str]()
    for name in ("a", "b"):

        def note(data: bytes, name: str = name) -> None:
            fed.append(f"{name}{len(data)}")

        def end(name: str = name) -> None:
            fed.append(f"{name} ended")

        feeder.add(b"x" * (SLICE + 1), note, end)
    turns = []
    while len(fed) < 6:
        await asyncio.sleep(0)
        turns.append(len(fed))
    assert fed == [f"a{SLICE}", "a1", "a ended", f"b{SLICE}", "b1", "b ended"]
    assert turns == [1, 2, 3, 4, 5, 6]


async def test_what_fails_to_be_fed_keeps_nothing_else_back() -> None:
    feeder, fed, failed = SlicedFeeder(), list[bytes](), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context["exception"]))

    def fail(_data: bytes) -> None:
        raise ValueError

    ended = asyncio.Event()
    feeder.add(b"x", fail, lambda: None)
    feeder.add(b"y", fed.append, ended.set)
    async with asyncio.timeout(5):
        await ended.wait()
    assert fed == [b"y"]
    assert [type(one) for one in failed] == [ValueError]


async def test_a_question_in_chunks_of_one_byte_is_read_whole() -> None:
    body = orjson.dumps(BY_NAMES) + b" " * (8 * SLICE)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    request = head_of("POST", "/filter", Transfer_Encoding="chunked") + chunks
    async with listening(app_with(), Address("127.0.0.1:0")) as url, wire(url) as connection:
        for _ in range(2):
            await connection.send(request)
            assert await connection.status() == 200
            assert orjson.loads(connection.body)["Error"] == ""
