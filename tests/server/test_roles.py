"""Which client may ask what: by the names in a client's certificate, and without one by where the client is."""

from http import HTTPStatus
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web
from pytest_aiohttp.plugin import AiohttpClient

from extender.certificates.authority import CLIENT
from extender.model.units import Address
from extender.server.app import listening
from extender.server.transport.tls import ServerTls
from extender.settings.connections import Clients, Paths, Server
from tests.server.pki import NOW, Pki, new_connections
from tests.server.serving import BY_NAMES, POD, app_with

CLIENTS: Final = Clients(scheduler=("system:kube-scheduler",), metrics=("prometheus",), admin=("operator",))
REQUESTS: Final = (
    ("POST", "/filter"),
    ("POST", "/prioritize"),
    ("GET", "/metrics"),
    ("GET", "/configz"),
    ("GET", "/debug/loglevel"),
    ("PUT", "/debug/loglevel"),
    ("GET", "/v1/explain/team-a/web-1"),
    ("POST", "/v1/explain"),
    ("GET", "/v1/openapi.json"),
    ("GET", "/ui/"),
    ("GET", "/ui/main.js"),
    ("GET", "/version"),
    ("GET", "/livez"),
    ("HEAD", "/readyz"),
)
FOR_ALL: Final = {("GET", "/version"), ("GET", "/livez"), ("HEAD", "/readyz")}
MAY: Final = {
    "system:kube-scheduler": FOR_ALL | {("POST", "/filter"), ("POST", "/prioritize")},
    "prometheus": FOR_ALL | {("GET", "/metrics")},
    "operator": set(REQUESTS),
    "somebody": FOR_ALL,
}


async def allowed(pki: Pki, name: str, clients: Clients) -> set[tuple[str, str]]:
    """The requests that are not refused to a client of this name."""
    tls = pki.giving(clients)
    context = pki.client(pki.authority.issue(name, NOW, 5, CLIENT))
    found = set()
    async with (
        listening(app_with(server=Server(tls=tls)), Address("127.0.0.1:0"), ServerTls(tls)) as url,
        new_connections(context) as session,
    ):
        for method, path in REQUESTS:
            asked = POD if path.startswith("/v1/") else BY_NAMES
            body = {"json": asked} if method == "POST" else {"data": b"info"} if method == "PUT" else {}
            async with session.request(method, url + path, **body) as answer:
                assert answer.status in {HTTPStatus.OK, HTTPStatus.FORBIDDEN}
                if answer.status == HTTPStatus.OK:
                    found.add((method, path))
    return found


@pytest.mark.parametrize("name", MAY)
async def test_a_name_may_what_its_role_may(tmp_path: Path, name: str) -> None:
    assert await allowed(Pki(tmp_path), name, CLIENTS) == MAY[name]


async def test_without_names_every_certificate_may_everything(tmp_path: Path) -> None:
    assert await allowed(Pki(tmp_path), "somebody", Clients()) == set(REQUESTS)


async def test_one_list_with_names_closes_the_others(tmp_path: Path) -> None:
    assert (
        await allowed(Pki(tmp_path), "prometheus", Clients(scheduler=("prometheus",))) == MAY["system:kube-scheduler"]
    )


@pytest.mark.parametrize(
    ("remote", "status"),
    [
        ("127.0.0.9", 200),
        ("::1", 200),
        ("::ffff:127.0.0.1", 200),
        ("10.0.0.7", 403),
        ("fe80::1%eth0", 403),
        (None, 403),
    ],
)
async def test_without_certificates_only_this_machine_changes_anything_or_sees_the_page(
    aiohttp_client: AiohttpClient, monkeypatch: pytest.MonkeyPatch, remote: str | None, status: int
) -> None:
    monkeypatch.setattr(web.Request, "remote", remote)
    client = await aiohttp_client(app_with())
    assert (await client.put("/debug/loglevel", data="info")).status == status
    assert [(await client.get(path)).status for path in ("/ui/", "/ui/main.js")] == [status, status]
    assert (await client.get("/debug/loglevel")).status == HTTPStatus.OK


@pytest.mark.parametrize(("path", "status"), [("", HTTPStatus.NOT_FOUND), ("/bind", HTTPStatus.OK)])
async def test_binding_is_off_unless_it_has_a_path(aiohttp_client: AiohttpClient, path: str, status: int) -> None:
    client = await aiohttp_client(app_with(server=Server(paths=Paths(bind=path))))
    body = {"PodName": "web-1", "PodNamespace": "team-a", "PodUID": "u-1", "Node": "node-a"}
    assert (await client.post("/bind", json=body)).status == status
