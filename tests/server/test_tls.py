"""HTTPS and which clients are answered, with clients as kube-scheduler's TLSConfig makes them, over real connections."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import aiohttp
import msgspec
import pytest

from extender.certificates.authority import CLIENT, SERVER, Authority, Pair
from extender.model.units import Address
from extender.server.app import listening
from extender.server.transport.tls import ServerTls
from extender.settings.connections import Server, Tls
from tests.server.pki import LONG_AGO, NOW, SCHEDULER, Pki, new_connections
from tests.server.serving import BY_NAMES, app_with

SERVICE = "placement-extender.kube-system.svc"


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    """An authority and a server's files."""
    return Pki(tmp_path)


@asynccontextmanager
async def served(tls: Tls) -> AsyncIterator[str]:
    """The service under these settings; yields its URL."""
    async with listening(app_with(server=Server(tls=tls)), Address("127.0.0.1:0"), ServerTls(tls)) as url:
        yield url


async def answer(url: str, context: ssl.SSLContext, server_name: str | None = None) -> list[str]:
    """The nodes that filter lets pass."""
    async with (
        new_connections(context) as session,
        session.post(f"{url}/filter", json=BY_NAMES, server_hostname=server_name) as response,
    ):
        assert response.status == HTTPStatus.OK
        passed: list[str] = (await response.json())["NodeNames"]
        return passed


async def status(url: str, context: ssl.SSLContext, path: str = "/filter") -> int:
    """How a request is answered."""
    method = "POST" if path == "/filter" else "GET"
    async with new_connections(context) as session, session.request(method, f"{url}{path}", data=b"{}") as response:
        return response.status


@pytest.mark.parametrize("names", [(), (SCHEDULER,), ("other", SCHEDULER)])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_client_with_its_certificate_is_answered_by_host_name_and_by_address(
    pki: Pki, host: str, names: tuple[str, ...]
) -> None:
    async with served(pki.verifying(*names)) as url:
        by_name = url.replace("127.0.0.1", host)
        assert await answer(by_name, pki.client(pki.scheduler())) == ["node-a", "node-bb"]


async def test_a_server_name_of_its_own_is_verified_instead_of_the_urls(pki: Pki) -> None:
    pki.put_server(pki.authority.issue("extender", NOW, 5, SERVER, (SERVICE,)))
    async with served(pki.verifying()) as url:
        context = pki.client(pki.scheduler())
        assert await answer(url, context, SERVICE) == ["node-a", "node-bb"]
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await answer(url, context)


async def test_an_insecure_client_need_not_know_our_authority_but_must_show_its_certificate(pki: Pki) -> None:
    stranger = Authority.make("stranger", NOW, 5)
    async with served(pki.verifying()) as url:
        known = pki.client(pki.scheduler(), stranger, insecure=True)
        assert await answer(url, known) == ["node-a", "node-bb"]
        unknown = pki.client(None, stranger, insecure=True)
        assert await status(url, unknown) == HTTPStatus.UNAUTHORIZED


async def test_without_a_client_ca_no_client_needs_a_certificate(pki: Pki) -> None:
    async with served(pki.tls) as url:
        assert await answer(url, pki.client()) == ["node-a", "node-bb"]


async def test_a_client_without_a_certificate_is_rejected_before_its_request_is_read(pki: Pki) -> None:
    async with served(pki.verifying()) as url, new_connections(pki.client()) as session:
        response = await session.post(f"{url}/filter", data=b"{no json")
        assert response.status == HTTPStatus.UNAUTHORIZED
        assert await response.json() == {"error": "a client certificate of server.tls.clientCAFile is needed"}


def certificates(pki: Pki) -> dict[str, Pair]:
    """Certificates that are good for nothing here."""
    return {
        "of another authority": Authority.make("first", NOW, 5).issue(SCHEDULER, NOW, 5, CLIENT),
        "expired": pki.authority.issue(SCHEDULER, LONG_AGO, 5, CLIENT),
        "for servers": pki.authority.issue(SCHEDULER, NOW, 5, SERVER),
    }


@pytest.mark.parametrize("kind", ["of another authority", "expired", "for servers"])
async def test_a_bad_client_certificate_ends_the_handshake(pki: Pki, kind: str) -> None:
    async with served(pki.verifying()) as url:
        with pytest.raises(aiohttp.ClientError):
            await status(url, pki.client(certificates(pki)[kind]))
        assert await status(url, pki.client(pki.scheduler())) == HTTPStatus.OK


async def test_an_alternative_name_counts_as_well_as_the_common_one(pki: Pki) -> None:
    pair = pki.authority.issue("whoever", NOW, 5, CLIENT, ["scheduler.example"])
    async with served(pki.verifying("scheduler.example")) as url:
        assert await answer(url, pki.client(pair)) == ["node-a", "node-bb"]


async def test_a_name_outside_the_list_is_forbidden_and_told_to_both_sides(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    pair = pki.authority.issue("system:kube-scheduler-2", NOW, 5, CLIENT)
    async with served(pki.verifying(SCHEDULER)) as url, new_connections(pki.client(pair)) as session:
        response = await session.post(f"{url}/filter", json=BY_NAMES)
        assert response.status == HTTPStatus.FORBIDDEN
        text = "the client certificate's names (system:kube-scheduler-2) are not among server.tls.clients.scheduler"
        assert await response.json() == {"error": text}
        await session.post(f"{url}/prioritize", json=BY_NAMES)
    warnings = [vars(record)["problem"] for record in caplog.records if record.message == "request rejected"]
    assert warnings == [text, text]  # one for each path


OPEN = dict.fromkeys(("/livez", "/readyz", "/readyz/pods", "/healthz"), HTTPStatus.OK)
CLOSED = dict.fromkeys(("/metrics", "/configz", "/version", "/filter"), HTTPStatus.UNAUTHORIZED)


async def test_probes_need_no_certificate_and_everything_else_does(pki: Pki) -> None:
    async with served(pki.verifying(SCHEDULER)) as url:
        found = {path: await status(url, pki.client(), path) for path in OPEN | CLOSED}
    assert found == OPEN | CLOSED


@pytest.mark.parametrize(("lowest", "answers"), [("VersionTLS12", True), ("VersionTLS13", False)])
async def test_the_lowest_version_is_a_setting(pki: Pki, lowest: str, *, answers: bool) -> None:
    tls = msgspec.structs.replace(pki.tls, min_version=lowest)
    context = pki.client()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with served(tls) as url:
        if answers:
            assert await status(url, context) == HTTPStatus.OK
        else:
            with pytest.raises(aiohttp.ClientConnectorError):
                await status(url, context)
