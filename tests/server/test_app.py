"""Listening on a socket."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from aiohttp import web

from extender.certificates.authority import CLIENT
from extender.model.units import Address, Duration
from extender.server.app import listening
from extender.server.collaborators import COLLABORATORS
from extender.server.transport.tls import ServerTls
from extender.settings.configuration import Settings, parse_settings
from extender.settings.connections import Clients, Paths, Server
from tests.fakes import until
from tests.pki import NOW, Pki, new_connections
from tests.server.serving import BY_NAMES, BY_NODES, POD, Client, Serve, Switch, app_with, is_listening


async def test_a_free_port_is_found_and_reported() -> None:
    async with listening(app_with(), Address("127.0.0.1:0")) as url, aiohttp.ClientSession() as session:
        answer = await session.post(f"{url}/filter", json=BY_NAMES)
        assert (await answer.json())["NodeNames"] == ["node-a", "node-bb"]


async def test_a_request_that_is_still_arriving_when_we_stop_is_answered() -> None:
    body, begun, stopping = json.dumps(BY_NAMES).encode(), asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield body[:10]
        begun.set()
        await stopping.wait()
        yield body[10:]

    app, length = app_with(), {"Content-Length": str(len(body))}
    async with aiohttp.ClientSession() as session:
        async with AsyncExitStack() as server:
            url = await server.enter_async_context(listening(app, Address("127.0.0.1:0")))
            question = asyncio.create_task(session.post(f"{url}/filter", data=slowly(), headers=length))
            await begun.wait()
            await until(lambda: app[COLLABORATORS].bodies.requests)
            closing = asyncio.create_task(server.aclose())
            await until(lambda: not is_listening(url))
            stopping.set()
            await closing
        assert (await (await question).json())["NodeNames"] == ["node-a", "node-bb"]


async def test_an_address_in_use_is_an_error_at_once() -> None:
    async with listening(app_with(), Address("127.0.0.1:0")) as url:
        taken = Address(url.removeprefix("http://"))
        with pytest.raises(OSError, match="Address already in use"):
            async with listening(app_with(), taken):
                pytest.fail("two servers on one address")


# -- What probes, Prometheus and people get to read --------------------------------------------------------------------


LISTED: dict[str, str] = {"nodes": "", "pods": ""}
LISTING = {"nodes": "", "pods": "not listed yet"}
STANDBY = {"pods": "", "leadership": "standby, the leader is a"}
PROBES: list[tuple[dict[str, str], str, int, str]] = [
    (LISTED, "/readyz", 200, "ok"),
    (LISTED, "/readyz?verbose", 200, "[+]nodes ok\n[+]pods ok\nreadyz check passed\n"),
    (LISTING, "/livez", 200, "ok"),
    (LISTING, "/healthz", 200, "ok"),
    (LISTING, "/readyz", 503, "[+]nodes ok\n[-]pods failed: not listed yet\nreadyz check failed\n"),
    (LISTING, "/readyz/nodes", 200, "ok"),
    (LISTING, "/readyz/pods", 503, "not listed yet"),
    (LISTING, "/readyz/cats", 404, '{"error":"Not Found"}'),
    (STANDBY, "/readyz", 200, "ok"),
    (STANDBY, "/readyz?verbose", 200, "[+]pods ok\n[+]leadership ok (standby, the leader is a)\nreadyz check passed\n"),
    (STANDBY, "/readyz/leadership", 503, "standby, the leader is a"),
]


@pytest.mark.parametrize(("missing", "path", "status", "text"), PROBES)
async def test_a_probe_is_answered_by_what_each_check_misses(
    serve: Serve, missing: dict[str, str], path: str, status: int, text: str
) -> None:
    answer = await (await serve(readiness=Switch(dict(missing)))).get(path)
    assert (answer.status, await answer.text()) == (status, text)


async def test_readiness_is_a_metric_read_at_each_scrape(serve: Serve) -> None:
    readiness = Switch({"pods": "not listed yet"})
    client = await serve(readiness=readiness)
    before = await client.get("/metrics")
    assert 'extender_ready{check="pods"} 0.0' in await before.text()
    assert before.headers["Content-Type"].startswith("text/plain; version=")
    readiness.missing["pods"] = ""
    assert 'extender_ready{check="pods"} 1.0' in await (await client.get("/metrics")).text()


async def test_requests_are_counted_by_the_form_of_their_nodes(client: Client) -> None:
    for body in (BY_NAMES, BY_NODES, BY_NODES):
        await client.post("/filter", json=body)
    lines = (await (await client.get("/metrics")).text()).splitlines()
    assert 'extender_requests_by_form_total{form="names",verb="filter"} 1.0' in lines
    assert 'extender_requests_by_form_total{form="nodes",verb="filter"} 2.0' in lines


async def test_configz_shows_the_settings_as_a_configuration_file_has_them(client: Client) -> None:
    document = (await (await client.get("/configz")).json())["placement.extender.dev"]
    assert document["server"]["maxBodyBytes"] == "8Mi"
    assert parse_settings(document) == Settings()


async def test_version_says_what_is_running(client: Client) -> None:
    about = await (await client.get("/version")).json()
    assert about["version"] == "1.2.3"
    assert set(about) == {"version", "pythonVersion", "platform"}


# -- Which client may ask what: by the names in a client's certificate, and without one by where the client is ---------

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
VERBS: Final = {("POST", "/filter"), ("POST", "/prioritize")}
MAY: Final = {
    "the scheduler": (CLIENTS, "system:kube-scheduler", FOR_ALL | VERBS),
    "Prometheus": (CLIENTS, "prometheus", FOR_ALL | {("GET", "/metrics")}),
    "an operator": (CLIENTS, "operator", set(REQUESTS)),
    "another name": (CLIENTS, "somebody", FOR_ALL),
    "any name where the settings have none": (Clients(), "somebody", set(REQUESTS)),
    "a name of one list closes the other lists": (Clients(scheduler=("prometheus",)), "prometheus", FOR_ALL | VERBS),
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
            requested = POD if path.startswith("/v1/") else BY_NAMES
            body = {"json": requested} if method == "POST" else {"data": b"info"} if method == "PUT" else {}
            async with session.request(method, url + path, **body) as answer:
                assert answer.status in {HTTPStatus.OK, HTTPStatus.FORBIDDEN}
                if answer.status == HTTPStatus.OK:
                    found.add((method, path))
    return found


@pytest.mark.parametrize(("clients", "name", "requests"), MAY.values(), ids=MAY)
async def test_a_certificate_may_what_the_role_of_its_name_may(
    tmp_path: Path, clients: Clients, name: str, requests: set[tuple[str, str]]
) -> None:
    assert await allowed(Pki(tmp_path), name, clients) == requests


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
    client: Client, monkeypatch: pytest.MonkeyPatch, remote: str | None, status: int
) -> None:
    monkeypatch.setattr(web.Request, "remote", remote)
    assert (await client.put("/debug/loglevel", data="info")).status == status
    assert [(await client.get(path)).status for path in ("/ui/", "/ui/main.js")] == [status, status]
    assert (await client.get("/debug/loglevel")).status == HTTPStatus.OK


@pytest.mark.parametrize(("path", "status"), [("", HTTPStatus.NOT_FOUND), ("/bind", HTTPStatus.OK)])
async def test_binding_is_off_unless_it_has_a_path(serve: Serve, path: str, status: int) -> None:
    client = await serve(server=Server(paths=Paths(bind=path)))
    body = {"PodName": "web-1", "PodNamespace": "team-a", "PodUID": "u-1", "Node": "node-a"}
    assert (await client.post("/bind", json=body)).status == status


# -- The log level, looked at and changed while the service runs -------------------------------------------------------

OURS = logging.getLogger("extender")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Leave the level as other tests expect it."""
    level = OURS.level
    OURS.setLevel(logging.INFO)
    yield
    OURS.setLevel(level)


async def test_the_level_can_be_changed_while_it_runs_and_read_back(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    assert await (await client.get("/debug/loglevel")).text() == "info"
    answer = await client.put("/debug/loglevel", data="debug\n")
    assert (answer.status, await answer.text()) == (HTTPStatus.OK, "debug")
    assert OURS.level == logging.DEBUG
    assert await (await client.get("/debug/loglevel")).text() == "debug"
    await client.put("/debug/loglevel", data="error")
    changes = [vars(record) for record in caplog.records if record.getMessage() == "log level changed"]
    assert [(each["from"], each["to"]) for each in changes] == [("info", "debug"), ("debug", "error")]


async def test_a_word_that_is_no_level_is_an_error_with_the_levels_and_changes_nothing(
    client: Client,
) -> None:
    answer = await client.put("/debug/loglevel", data="loud")
    assert answer.status == HTTPStatus.BAD_REQUEST
    assert (await answer.json())["error"] == "expected one of debug, info, warning, error"
    assert OURS.level == logging.INFO


@pytest.mark.parametrize("charset", ["punycode", "idna", "utf-16", "no-such-charset", "unicode_escape"])
async def test_the_charset_that_a_client_names_is_not_used(client: Client, charset: str) -> None:
    kind = {"Content-Type": f"text/plain; charset={charset}"}
    good = await client.put("/debug/loglevel", data=b"debug", headers=kind)
    bad = await client.put("/debug/loglevel", data=b"\xff\xfe-99999", headers=kind)
    assert (good.status, bad.status) == (HTTPStatus.OK, HTTPStatus.BAD_REQUEST)


async def test_more_than_a_word_is_not_read(client: Client) -> None:
    answer = await client.put("/debug/loglevel", data=b"d" * 100)
    assert answer.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    assert await answer.json() == {"error": "request body is larger than 64 bytes"}


async def test_a_word_that_does_not_arrive_is_given_up(serve: Serve) -> None:
    client = await serve(server=Server(request_timeout=Duration(0.05)))
    never = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"deb"
        await never.wait()

    async with client.put("/debug/loglevel", data=endless(), headers={"Content-Length": "5"}) as answer:
        assert answer.status == HTTPStatus.REQUEST_TIMEOUT
