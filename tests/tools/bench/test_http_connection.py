"""The bench's HTTP connection, against a real server: whole answers, kept alive, and what is no answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.tools.bench.http_player import BadAnswer, Connection


async def _echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read())


async def _break_off(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def _hello(_: web.Request) -> web.Response:
    return web.Response(text="hello")


@pytest.fixture
async def url() -> AsyncIterator[str]:
    app = web.Application(client_max_size=2**24)
    app.router.add_post("/echo", _echo)
    app.router.add_post("/break", _break_off)
    app.router.add_get("/page", _hello)
    async with TestServer(app) as server:
        yield str(server.make_url(""))


@pytest.mark.parametrize("size", [1, 70_000, 5_000_000])
async def test_an_answer_of_any_size_comes_whole_over_one_connection(url: str, size: int) -> None:
    def talk() -> list[tuple[bytes, int]]:
        with closing(Connection(url)) as connection:
            return [connection.post("/echo", b"x" * size), connection.post("/echo", b"y" * size)]

    (first, took), (second, _) = await asyncio.to_thread(talk)
    assert (first, second) == (b"x" * size, b"y" * size)
    assert took > 0


async def test_a_page_can_be_read(url: str) -> None:
    with closing(await asyncio.to_thread(Connection, url)) as connection:
        assert await asyncio.to_thread(connection.get, "/page") == b"hello"


async def test_what_is_not_200_is_no_answer(url: str) -> None:
    with closing(await asyncio.to_thread(Connection, url)) as connection, pytest.raises(BadAnswer, match="404"):
        await asyncio.to_thread(connection.post, "/nowhere", b"{}")


async def test_an_answer_that_breaks_off_is_none(url: str) -> None:
    broken = pytest.raises((BadAnswer, ConnectionError))
    with closing(await asyncio.to_thread(Connection, url)) as connection, broken:
        await asyncio.to_thread(connection.post, "/break", b"{}")
