"""The log level, looked at and changed while the service runs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus

import pytest
from pytest_aiohttp.plugin import AiohttpClient

from extender.model.units import Duration
from extender.settings.connections import Server
from tests.server.serving import app_with

OURS = logging.getLogger("extender")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Leave the level as other tests expect it."""
    level = OURS.level
    OURS.setLevel(logging.INFO)
    yield
    OURS.setLevel(level)


async def test_the_level_can_be_changed_while_it_runs_and_read_back(
    aiohttp_client: AiohttpClient, caplog: pytest.LogCaptureFixture
) -> None:
    client = await aiohttp_client(app_with())
    assert await (await client.get("/debug/loglevel")).text() == "info"
    answer = await client.put("/debug/loglevel", data="debug\n")
    assert (answer.status, await answer.text()) == (HTTPStatus.OK, "debug")
    assert OURS.level == logging.DEBUG
    assert await (await client.get("/debug/loglevel")).text() == "debug"
    await client.put("/debug/loglevel", data="error")
    changes = [vars(record) for record in caplog.records if record.getMessage() == "log level changed"]
    assert [(each["from"], each["to"]) for each in changes] == [("info", "debug"), ("debug", "error")]


async def test_a_word_that_is_no_level_is_an_error_with_the_levels_and_changes_nothing(
    aiohttp_client: AiohttpClient,
) -> None:
    client = await aiohttp_client(app_with())
    answer = await client.put("/debug/loglevel", data="loud")
    assert answer.status == HTTPStatus.BAD_REQUEST
    assert (await answer.json())["error"] == "expected one of debug, info, warning, error"
    assert OURS.level == logging.INFO


@pytest.mark.parametrize("charset", ["punycode", "idna", "utf-16", "no-such-charset", "unicode_escape"])
async def test_the_charset_that_a_client_names_is_not_used(aiohttp_client: AiohttpClient, charset: str) -> None:
    client = await aiohttp_client(app_with())
    kind = {"Content-Type": f"text/plain; charset={charset}"}
    good = await client.put("/debug/loglevel", data=b"debug", headers=kind)
    bad = await client.put("/debug/loglevel", data=b"\xff\xfe-99999", headers=kind)
    assert (good.status, bad.status) == (HTTPStatus.OK, HTTPStatus.BAD_REQUEST)


async def test_more_than_a_word_is_not_read(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with())
    answer = await client.put("/debug/loglevel", data=b"d" * 100)
    assert answer.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    assert await answer.json() == {"error": "request body is larger than 64 bytes"}


async def test_a_word_that_does_not_arrive_is_given_up(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with(server=Server(request_timeout=Duration(0.05))))
    never = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"deb"
        await never.wait()

    async with client.put("/debug/loglevel", data=endless(), headers={"Content-Length": "5"}) as answer:
        assert answer.status == HTTPStatus.REQUEST_TIMEOUT
