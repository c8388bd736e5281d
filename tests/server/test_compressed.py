"""Compressed requests are refused before a byte is inflated, on every path."""

import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Iterator

import orjson
import pytest

from extender.model.units import Address
from extender.server.app import listening
from extender.wire.extender_v1 import encode_filter_error
from tests.server.raw import whole, wire
from tests.server.serving import BY_NAMES, app_with

INFLATED = 64 * 2**20
ZEROS = b"0" * INFLATED
BOMBS = {
    "gzip": gzip.compress(ZEROS, 9),
    "deflate": zlib.compress(ZEROS, 9),
    "br": b"\x5b\xff\xff\x00",
    "zstd": b"(\xb5/\xfd",
}
PATHS = [("POST", "/filter"), ("POST", "/prioritize"), ("GET", "/livez"), ("PUT", "/debug/loglevel"), ("POST", "/none")]


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """A service as it listens in production."""
    async with listening(app_with(), Address("127.0.0.1:0")) as url:
        yield url


@pytest.fixture
def traced() -> Iterator[None]:
    """Memory is measured."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize("encoding", BOMBS)
async def test_a_bomb_is_rejected_and_never_inflated(url: str, method: str, path: str, encoding: str) -> None:
    async with wire(url) as connection:
        tracemalloc.reset_peak()
        begun, _ = tracemalloc.get_traced_memory()
        await connection.send(whole(method, path, BOMBS[encoding], Content_Encoding=encoding))
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
