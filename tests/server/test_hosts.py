"""Names of hosts in requests: a site whose name is made to resolve to the service reads nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Final

import orjson
import pytest
from aiohttp import ClientSession

from extender.certificates.authority import CLIENT
from extender.model.units import Address
from extender.server.app import listening
from extender.server.request_checks import PeerCertificate, names_in
from extender.server.transport.tls import ServerTls
from extender.server.v1.operations import OPERATIONS
from extender.settings.connections import Clients, Paths, Server
from tests.pki import NOW, Pki, new_connections
from tests.server.serving import AGREEABLE, BY_NAMES, POD, Client, Serve, WhatIfAnswering, app_with

PATHS: Final = (
    *("/ui/", "/v1/openapi.json", "/v1/explain/team-a/web-1", "/debug/decisions", "/debug/shadow"),
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
async def test_which_hosts_are_answered(serve: Serve, host: str, status: HTTPStatus) -> None:
    client = await serve(server=Server(hosts=NAMES))
    answers = [await client.get(path, headers={"Host": host}) for path in (*PATHS, "/metrics")]
    assert [answer.status for answer in answers] == [status] * (1 + len(PATHS))


async def test_the_error_names_the_host_and_the_setting(client: Client) -> None:
    answer = await client.get("/ui/", headers={"Host": "proxy.example.org"})
    said = (await answer.json())["error"]
    assert said == (
        'the host "proxy.example.org" is not among server.hosts; http://127.0.0.1 and http://localhost need not be'
    )


async def test_a_change_of_the_service_and_a_verb_are_refused_too(serve: Serve) -> None:
    """A scheduler that reaches the service by a name, without certificates, needs that name in server.hosts."""
    name = "extender.kube-system.svc"
    client = await serve()
    other = {"Host": name}
    assert (await client.put("/debug/loglevel", data="info", headers=other)).status == HTTPStatus.FORBIDDEN
    assert (await client.post("/filter", json=BY_NAMES, headers=other)).status == HTTPStatus.FORBIDDEN
    named = await serve(server=Server(hosts=(name,)))
    assert (await named.post("/filter", json=BY_NAMES, headers=other)).status == HTTPStatus.OK


@pytest.mark.parametrize("name", ["extender.kube-system.svc", "extender.kube-system.svc.cluster.local:8888"])
async def test_of_a_service_by_its_name_only_the_metrics_are_answered(client: Client, name: str) -> None:
    answers = {path: (await client.get(path, headers={"Host": name})).status for path in (*PATHS, "/metrics")}
    assert answers == {**dict.fromkeys(PATHS, HTTPStatus.FORBIDDEN), "/metrics": HTTPStatus.OK}


@pytest.mark.parametrize("path", ["/livez", "/healthz", "/readyz", "/readyz/pods"])
async def test_a_probe_may_name_any_host(client: Client, path: str) -> None:
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


# -- The names in a client's certificate, in the forms in which OpenSSL gives them -------------------------------------

DIRECTORY = ("DirName", ((("commonName", "system:kube-scheduler"),),))
FORMS = {
    "each form that is one text": (
        (("DNS", "a.example"), ("URI", "spiffe://b"), ("email", "c@d"), ("IP Address", "::1")),
        ["a.example", "spiffe://b", "c@d", "::1"],
    ),
    "forms that OpenSSL does not read": ((("othername", "<unsupported>"), ("Registered ID", "1.2.3")), []),
    "a directory name, which is no text": ((DIRECTORY,), []),
    "one name many times": ((("DNS", "a"),) * 5000, ["a"]),
    "entries of another length": ((("DNS",), ("DNS", "a", "b"), ()), []),
}


@pytest.mark.parametrize(("entries", "names"), FORMS.values(), ids=FORMS)
def test_only_plain_forms_name_a_client(entries: tuple[tuple[object, ...], ...], names: list[str]) -> None:
    certificate: PeerCertificate = {"subject": (), "subjectAltName": entries}
    assert list(names_in(certificate)) == names


def test_common_names_come_first_and_each_name_once() -> None:
    certificate: PeerCertificate = {
        "subject": ((("organizationName", "team"),), (("commonName", "one"), ("commonName", "two"))),
        "subjectAltName": (("DNS", "two"), ("DNS", "three")),
    }
    assert list(names_in(certificate)) == ["one", "two", "three"]


# -- Requests that a browser sends for a page of another site: refused for every POST under /v1 and every verb ---------

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
