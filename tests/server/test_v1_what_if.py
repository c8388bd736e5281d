"""What-ifs over HTTP: the bodies that are read, the clients that wait, and the time that others have."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from http import HTTPStatus

import pytest
from aiohttp import web
from pytest_aiohttp.plugin import AiohttpClient

from extender.model.units import ByteSize, Duration
from extender.settings.connections import Server
from tests.fakes import until
from tests.server.serving import AGREEABLE, Switch, WhatIfAnswering, app_with

JSON = {"Content-Type": "application/json"}


def serving(what_ifs: WhatIfAnswering | None, server: Server | None = None, ready: str = "") -> web.Application:
    return app_with(replace(AGREEABLE, what_ifs=what_ifs), Switch({"pods": ready}), server or Server())


async def test_the_body_is_passed_on_unread_and_the_answer_as_it_is(aiohttp_client: AiohttpClient) -> None:
    answering = WhatIfAnswering()
    client = await aiohttp_client(serving(answering))
    answer = await client.post("/v1/whatif", data=b"{anything", headers=JSON)
    assert (answer.status, await answer.json()) == (HTTPStatus.OK, {"summary": {"placed": 0, "rejected": 0}})
    assert answering.asked == [b"{anything"]


async def test_a_body_above_the_limit_of_the_server_is_too_large(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(serving(WhatIfAnswering(), Server(max_body_bytes=ByteSize(10))))
    answer = await client.post("/v1/whatif", data=b" " * 11, headers=JSON)
    assert answer.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    assert await answer.json() == {"error": "request body is larger than server.maxBodyBytes (10)"}


async def test_an_answer_may_take_longer_than_other_requests_may(aiohttp_client: AiohttpClient) -> None:
    answering = WhatIfAnswering(may_answer=asyncio.Event())
    client = await aiohttp_client(serving(answering, Server(request_timeout=Duration(0.25))))
    asking = asyncio.create_task(client.post("/v1/whatif", json={}))
    await until(lambda: answering.asked)
    late = await client.post("/v1/explain", data=b" ", headers={**JSON, "Content-Length": "2"})
    assert late.status == HTTPStatus.REQUEST_TIMEOUT  # begun later, and its time is over
    assert answering.may_answer is not None
    answering.may_answer.set()
    assert (await asking).status == HTTPStatus.OK


async def test_a_client_that_goes_away_ends_the_computation(aiohttp_client: AiohttpClient) -> None:
    answering = WhatIfAnswering(may_answer=asyncio.Event())
    client = await aiohttp_client(serving(answering))
    asking = asyncio.create_task(client.post("/v1/whatif", json={}))
    await until(lambda: answering.asked)
    asking.cancel()  # aiohttp closes the connection
    await until(lambda: answering.cancelled == answering.asked)


@pytest.mark.parametrize(
    ("what_ifs", "ready", "text"),
    [
        (None, "", "not ready: whatIf.enabled is false; /readyz?verbose lists the checks"),
        (WhatIfAnswering(), "not listed yet", "not ready: pods; /readyz?verbose lists the checks"),
    ],
)
async def test_there_is_no_answer_where_none_can_be_given(
    aiohttp_client: AiohttpClient, what_ifs: WhatIfAnswering | None, ready: str, text: str
) -> None:
    client = await aiohttp_client(serving(what_ifs, ready=ready))
    answer = await client.post("/v1/whatif", json={})
    assert (answer.status, await answer.json()) == (HTTPStatus.SERVICE_UNAVAILABLE, {"error": text})
    assert what_ifs is None or not what_ifs.asked
