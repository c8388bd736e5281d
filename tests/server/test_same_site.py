"""Requests that a browser sends for a page of another site: refused for every POST under /v1 and every verb."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import orjson
import pytest
from aiohttp import ClientSession

from extender.certificates.authority import CLIENT
from extender.model.units import Address
from extender.server.app import listening
from extender.server.transport.tls import ServerTls
from extender.server.v1.operations import OPERATIONS
from extender.settings.connections import Clients, Paths, Server
from tests.server.pki import NOW, Pki, new_connections
from tests.server.serving import AGREEABLE, BY_NAMES, POD, WhatIfAnswering, app_with

BODIES: dict[str, object] = {
    "/filter": BY_NAMES,
    "/prioritize": BY_NAMES,
    "/preempt": {"Pod": POD, "NodeNameToMetaVictims": {"node-a": {"Pods": [{"UID": "u-9"}]}}},
    "/bind": {"PodNamespace": "team-a", "PodName": "web-1", "PodUID": "u-1", "Node": "node-a"},
    **{each.path: {} if each.path == "/v1/whatif" else POD for each in OPERATIONS if each.method == "POST"},
}
# Where the browser says nothing the type tells a page from kube-scheduler: no page can send JSON without asking first.
NO_JSON = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
SENT: dict[str, tuple[dict[str, str | None], HTTPStatus]] = {
    "no browser": ({}, HTTPStatus.OK),
    "another client": ({"Content-Type": "application/json; charset=utf-8"}, HTTPStatus.OK),
    "our page": ({"Sec-Fetch-Site": "same-origin"}, HTTPStatus.OK),
    "behind a proxy": ({"Sec-Fetch-Site": "same-origin", "Origin": "https://proxy"}, HTTPStatus.OK),
    "the user": ({"Sec-Fetch-Site": "none"}, HTTPStatus.OK),
    "another site": ({"Sec-Fetch-Site": "cross-site"}, HTTPStatus.FORBIDDEN),
    "another host of the site": ({"Sec-Fetch-Site": "same-site"}, HTTPStatus.FORBIDDEN),
    "our page in an old browser": ({"Origin": "{url}"}, HTTPStatus.OK),
    "another site in an old browser": ({"Origin": "http://example.org"}, HTTPStatus.FORBIDDEN),
    "a page without an origin": ({"Origin": "null"}, HTTPStatus.FORBIDDEN),
    "text": ({"Content-Type": "text/plain"}, NO_JSON),
    "fetch with text": ({"Content-Type": "Text/Plain;charset=UTF-8"}, NO_JSON),
    "a form": ({"Content-Type": "application/x-www-form-urlencoded"}, NO_JSON),
    "a file": ({"Content-Type": "multipart/form-data; boundary=x"}, NO_JSON),
    "fetch with bytes": ({"Content-Type": None}, NO_JSON),
}


@asynccontextmanager
async def served(pki: Pki | None = None) -> AsyncIterator[tuple[str, ClientSession]]:
    """All that is posted, and a client; with a user's certificate, which a browser sends along, where there are any."""
    tls = pki.giving(Clients(admin=("operator",))) if pki else None
    server = Server(paths=Paths(bind="/bind"), tls=tls) if tls else Server(paths=Paths(bind="/bind"))
    app = app_with(replace(AGREEABLE, what_ifs=WhatIfAnswering()), server=server)
    shown = pki.client(pki.authority.issue("operator", NOW, 5, CLIENT)) if pki else None
    async with (
        listening(app, Address("127.0.0.1:0"), ServerTls(tls) if tls else None) as url,
        new_connections(shown) if shown else ClientSession() as session,
    ):
        yield url, session


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "with a user's certificate"])
async def test_nothing_is_done_for_a_page_of_another_site(tmp_path: Path, path: str, *, with_tls: bool) -> None:
    found = {}
    async with served(Pki(tmp_path) if with_tls else None) as (url, session):
        for name, (headers, _) in SENT.items():
            sent = {"Content-Type": "application/json", **headers}
            left_out = [key for key, value in sent.items() if value is None]
            kept = {key: value.format(url=url) for key, value in sent.items() if value is not None}
            body = orjson.dumps(BODIES[path])
            async with session.post(url + path, data=body, headers=kept, skip_auto_headers=left_out) as answer:
                found[name] = answer.status
    assert found == {name: status for name, (_, status) in SENT.items()}


async def test_reading_is_not_concerned() -> None:
    headers = {"Sec-Fetch-Site": "cross-site"}
    async with served() as (url, session), session.get(f"{url}/v1/openapi.json", headers=headers) as answer:
        assert answer.status == HTTPStatus.OK
