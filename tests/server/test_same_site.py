"""Requests that a browser sends for a page of another site: refused for every POST under /v1, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus

import pytest
from aiohttp import web
from pytest_aiohttp.plugin import AiohttpClient

from extender.server.v1.operations import OPERATIONS
from tests.server.serving import AGREEABLE, BY_NAMES, POD, WhatIfAnswering, app_with

POSTED = [each.path for each in OPERATIONS if each.method == "POST"]
BODIES = {"/v1/explain": POD, "/v1/whatif": {}}


def serving() -> web.Application:
    return app_with(replace(AGREEABLE, what_ifs=WhatIfAnswering()))


@pytest.mark.parametrize("path", POSTED)
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({}, HTTPStatus.OK, id="no browser"),
        pytest.param({"Sec-Fetch-Site": "same-origin"}, HTTPStatus.OK, id="our page"),
        pytest.param({"Sec-Fetch-Site": "same-origin", "Origin": "https://proxy"}, HTTPStatus.OK, id="behind a proxy"),
        pytest.param({"Sec-Fetch-Site": "none"}, HTTPStatus.OK, id="the user"),
        pytest.param({"Sec-Fetch-Site": "cross-site"}, HTTPStatus.FORBIDDEN, id="another site"),
        pytest.param({"Sec-Fetch-Site": "same-site"}, HTTPStatus.FORBIDDEN, id="another host of the site"),
        pytest.param({"Origin": "http://{host}"}, HTTPStatus.OK, id="our page in an old browser"),
        pytest.param({"Origin": "http://example.org"}, HTTPStatus.FORBIDDEN, id="another site in an old browser"),
        pytest.param({"Origin": "null"}, HTTPStatus.FORBIDDEN, id="a page without an origin"),
        pytest.param({"Content-Type": "text/plain"}, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, id="a form"),
    ],
)
async def test_what_a_page_may_ask_for(
    aiohttp_client: AiohttpClient, path: str, headers: dict[str, str], status: HTTPStatus
) -> None:
    client = await aiohttp_client(serving())
    host = f"{client.host}:{client.port}"
    sent = {name: value.format(host=host) for name, value in headers.items()}
    answer = await client.post(path, json=BODIES[path], headers=sent)
    assert answer.status == status, await answer.text()


async def test_reading_and_the_verbs_of_the_scheduler_are_not_concerned(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(serving())
    other = {"Sec-Fetch-Site": "cross-site"}
    assert (await client.get("/v1/openapi.json", headers=other)).status == HTTPStatus.OK
    assert (await client.post("/filter", json=BY_NAMES, headers=other)).status == HTTPStatus.OK
