"""Names of hosts in requests: a site whose name is made to resolve to the service reads nothing."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import Final

import pytest
from pytest_aiohttp.plugin import AiohttpClient

from extender.certificates.authority import CLIENT
from extender.model.units import Address
from extender.server.app import listening
from extender.server.transport.tls import ServerTls
from extender.settings.connections import Clients, Server
from tests.server.pki import NOW, Pki, new_connections
from tests.server.serving import BY_NAMES, app_with

PATHS: Final = (
    *("/ui/", "/v1/openapi.json", "/v1/explain/team-a/web-1", "/debug/decisions"),
    *("/debug/loglevel", "/configz", "/version"),
)
NAMES: Final = ("cluster.example.org", "a.example.org")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", HTTPStatus.OK),
        ("127.0.0.1:8888", HTTPStatus.OK),
        ("[::1]:8888", HTTPStatus.OK),
        ("10.0.0.7", HTTPStatus.OK),
        ("localhost:8888", HTTPStatus.OK),
        ("LOCALHOST.", HTTPStatus.OK),
        ("page.localhost", HTTPStatus.OK),
        ("cluster.example.org", HTTPStatus.OK),
        ("cluster.example.org:443", HTTPStatus.OK),
        ("evil.example.org:8888", HTTPStatus.FORBIDDEN),
        ("localhost.example.org", HTTPStatus.FORBIDDEN),
        ("127.0.0.1.example.org", HTTPStatus.FORBIDDEN),
        ("cluster.example.org.example.com", HTTPStatus.FORBIDDEN),
        ("[::1", HTTPStatus.FORBIDDEN),
    ],
)
async def test_which_hosts_are_answered(aiohttp_client: AiohttpClient, host: str, status: HTTPStatus) -> None:
    client = await aiohttp_client(app_with(server=Server(hosts=NAMES)))
    answers = [await client.get(path, headers={"Host": host}) for path in (*PATHS, "/metrics")]
    assert [answer.status for answer in answers] == [status] * (1 + len(PATHS))


async def test_the_error_names_the_host_and_the_setting(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with())
    answer = await client.get("/ui/", headers={"Host": "proxy.example.org"})
    said = (await answer.json())["error"]
    assert said == (
        'the host "proxy.example.org" is not among server.hosts; http://127.0.0.1 and http://localhost need not be'
    )


async def test_a_change_of_the_service_and_a_verb_are_refused_too(aiohttp_client: AiohttpClient) -> None:
    """A scheduler that reaches the service by a name, without certificates, needs that name in server.hosts."""
    name = "extender.kube-system.svc"
    client = await aiohttp_client(app_with())
    other = {"Host": name}
    assert (await client.put("/debug/loglevel", data="info", headers=other)).status == HTTPStatus.FORBIDDEN
    assert (await client.post("/filter", json=BY_NAMES, headers=other)).status == HTTPStatus.FORBIDDEN
    named = await aiohttp_client(app_with(server=Server(hosts=(name,))))
    assert (await named.post("/filter", json=BY_NAMES, headers=other)).status == HTTPStatus.OK


@pytest.mark.parametrize("name", ["extender.kube-system.svc", "extender.kube-system.svc.cluster.local:8888"])
async def test_of_a_service_by_its_name_only_the_metrics_are_answered(aiohttp_client: AiohttpClient, name: str) -> None:
    client = await aiohttp_client(app_with())
    answers = {path: (await client.get(path, headers={"Host": name})).status for path in (*PATHS, "/metrics")}
    assert answers == {**dict.fromkeys(PATHS, HTTPStatus.FORBIDDEN), "/metrics": HTTPStatus.OK}


@pytest.mark.parametrize("path", ["/livez", "/healthz", "/readyz", "/readyz/pods"])
async def test_a_probe_may_name_any_host(aiohttp_client: AiohttpClient, path: str) -> None:
    client = await aiohttp_client(app_with())
    assert (await client.get(path, headers={"Host": "evil.example.org"})).status == HTTPStatus.OK


async def test_with_client_certificates_the_name_of_the_host_says_nothing(tmp_path: Path) -> None:
    """The certificate of the server names its host, so a browser does not take it for another one."""
    pki = Pki(tmp_path)
    tls = pki.giving(Clients(admin=("operator",)))
    context = pki.client(pki.authority.issue("operator", NOW, 5, CLIENT))
    async with (
        listening(app_with(server=Server(tls=tls)), Address("127.0.0.1:0"), ServerTls(tls)) as url,
        new_connections(context) as session,
        session.get(f"{url}/ui/", headers={"Host": "cluster.example.org"}) as answer,
        session.post(f"{url}/filter", json=BY_NAMES, headers={"Host": "cluster.example.org"}) as decided,
    ):
        assert (answer.status, decided.status) == (HTTPStatus.OK, HTTPStatus.OK)
