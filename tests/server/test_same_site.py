"""Requests that a browser sends for a page of another site: refused for every POST under /v1 and every verb."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import orjson
import pytest
from aiohttp import ClientSession, web
from pytest_aiohttp.plugin import AiohttpClient

from extender.certificates.authority import CLIENT
from extender.model.units import Address
from extender.server.app import listening
from extender.server.transport.tls import ServerTls
from extender.server.v1.operations import OPERATIONS
from extender.settings.connections import Clients, Paths, Server, Tls
from tests.server.pki import NOW, Pki, new_connections
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


# The type is what tells a page from kube-scheduler where the browser says nothing: see the parameters of `SENT`.
SENT = [
    pytest.param({}, HTTPStatus.OK, id="kube-scheduler"),
    pytest.param({"Content-Type": "application/json; charset=utf-8"}, HTTPStatus.OK, id="another client"),
    pytest.param({"Sec-Fetch-Site": "same-origin"}, HTTPStatus.OK, id="our page"),
    pytest.param({"Sec-Fetch-Site": "cross-site"}, HTTPStatus.FORBIDDEN, id="another site"),
    pytest.param({"Sec-Fetch-Site": "same-site"}, HTTPStatus.FORBIDDEN, id="another host of the site"),
    pytest.param({"Origin": "http://example.org"}, HTTPStatus.FORBIDDEN, id="another site in an old browser"),
    pytest.param({"Origin": "null"}, HTTPStatus.FORBIDDEN, id="a page without an origin"),
    pytest.param({"Content-Type": "text/plain"}, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, id="text"),
    pytest.param({"Content-Type": "Text/Plain;charset=UTF-8"}, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, id="fetch with text"),
    pytest.param({"Content-Type": "application/x-www-form-urlencoded"}, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, id="a form"),
    pytest.param({"Content-Type": "multipart/form-data; boundary=x"}, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, id="a file"),
    pytest.param({"Content-Type": None}, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, id="fetch with bytes"),
]
VERBS: dict[str, object] = {
    "/filter": BY_NAMES,
    "/prioritize": BY_NAMES,
    "/preempt": {"Pod": POD, "NodeNameToMetaVictims": {"node-a": {"Pods": [{"UID": "u-9"}]}}},
    "/bind": {"PodNamespace": "team-a", "PodName": "web-1", "PodUID": "u-1", "Node": "node-a"},
}


def verb_settings(tls: Tls | None = None) -> Server:
    """All four verbs."""
    paths = Paths(bind="/bind")
    return Server(paths=paths) if tls is None else Server(paths=paths, tls=tls)


async def posted(session: ClientSession, url: str, path: str, headers: dict[str, str | None]) -> int:
    """The status of a verb; a header of None is left out."""
    sent = {"Content-Type": "application/json", **headers}
    left_out = [name for name, value in sent.items() if value is None]
    kept = {name: value for name, value in sent.items() if value is not None}
    body = orjson.dumps(VERBS[path])
    async with session.post(url + path, data=body, headers=kept, skip_auto_headers=left_out) as answer:
        return answer.status


@pytest.mark.parametrize("path", VERBS)
@pytest.mark.parametrize(("headers", "status"), SENT)
async def test_a_verb_is_answered_for_no_page(path: str, headers: dict[str, str | None], status: HTTPStatus) -> None:
    app = app_with(server=verb_settings())
    async with listening(app, Address("127.0.0.1:0")) as url, ClientSession() as session:
        assert await posted(session, url, path, headers) == status


@pytest.mark.parametrize("path", VERBS)
async def test_nor_with_the_certificate_of_a_user_which_a_browser_sends_along(tmp_path: Path, path: str) -> None:
    pki = Pki(tmp_path)
    tls = pki.giving(Clients(admin=("operator",)))
    context = pki.client(pki.authority.issue("operator", NOW, 5, CLIENT))
    app = app_with(server=verb_settings(tls))
    async with (
        listening(app, Address("127.0.0.1:0"), ServerTls(tls)) as url,
        new_connections(context) as session,
    ):
        for each in SENT:
            headers, status = each.values
            assert await posted(session, url, path, headers) == status, each.id  # type: ignore[arg-type]  # of the parameters


async def test_reading_is_not_concerned(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(serving())
    answer = await client.get("/v1/openapi.json", headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status == HTTPStatus.OK
