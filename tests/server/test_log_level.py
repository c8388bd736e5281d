"""The log level, looked at and changed while the service runs."""

import logging
from collections.abc import Iterator
from http import HTTPStatus

import pytest
from pytest_aiohttp.plugin import AiohttpClient

from tests.server.serving import app_with

OURS = logging.getLogger("extender")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Leave the level as other tests expect it."""
    level = OURS.level
    OURS.setLevel(logging.INFO)
    yield
    OURS.setLevel(level)


async def test_the_level_can_be_changed_while_it_runs_and_read_back(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with())
    assert await (await client.get("/debug/loglevel")).text() == "info"
    answer = await client.put("/debug/loglevel", data="debug\n")
    assert (answer.status, await answer.text()) == (HTTPStatus.OK, "debug")
    assert OURS.level == logging.DEBUG
    assert await (await client.get("/debug/loglevel")).text() == "debug"


async def test_a_word_that_is_no_level_changes_nothing_and_is_told_the_levels(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with())
    answer = await client.put("/debug/loglevel", data="loud")
    assert answer.status == HTTPStatus.BAD_REQUEST
    assert (await answer.json())["error"] == "expected one of debug, info, warning, error"
    assert OURS.level == logging.INFO


async def test_the_change_is_logged_whatever_the_new_level(
    aiohttp_client: AiohttpClient, caplog: pytest.LogCaptureFixture
) -> None:
    client = await aiohttp_client(app_with())
    await client.put("/debug/loglevel", data="error")
    (record,) = [found for found in caplog.records if found.getMessage() == "log level changed"]
    assert (vars(record)["from"], vars(record)["to"]) == ("info", "error")
