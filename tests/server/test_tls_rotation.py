"""Certificates renewed while the service runs: no request is lost, and the new files count for every new connection."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import aiohttp
import pytest

from extender.certificates.authority import CLIENT, SERVER, Authority
from extender.server.transport.tls import ServerTls
from tests.fakes import FakeClock, until
from tests.pki import LONG_AGO, LOOPBACK, NOW, SCHEDULER, Pki, new_connections, shown
from tests.server.rotation import connected, load_on, renewed, served
from tests.server.serving import BY_NAMES


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


async def test_a_new_certificate_is_shown_to_new_connections_also_without_a_server_name(pki: Pki) -> None:
    tls = ServerTls(pki.tls)
    async with served(tls, pki) as url:
        assert await shown(url, pki.client()) == "CN=extender"
        renewed(pki)
        tls.reload()
        assert await shown(url, pki.client()) == "CN=extender-0"
        assert await shown(url.replace("127.0.0.1", "localhost"), pki.client()) == "CN=extender-0"


async def test_a_connection_that_stands_goes_on(pki: Pki) -> None:
    tls = ServerTls(pki.tls)
    async with served(tls, pki) as url, aiohttp.ClientSession() as session:
        context = pki.client()
        first = await session.get(f"{url}/livez", ssl=context)
        assert first.connection is None  # read to its end, so the connection is free for the next
        renewed(pki)
        pki.authority = Authority.make("another", NOW, 5)
        pki.put_server(pki.authority.issue("extender", NOW, 5, SERVER, LOOPBACK))
        tls.reload()
        assert (await session.get(f"{url}/livez", ssl=context)).status == HTTPStatus.OK
        with pytest.raises(ssl.SSLCertVerificationError):  # a new one would not be trusted
            await shown(url, context)


async def test_rotation_under_load_loses_no_request(pki: Pki) -> None:
    pki.put_clients_of(pki.authority)
    tls = ServerTls(pki.tls)
    async with served(tls, pki) as url, load_on(url, pki.client(pki.scheduler())) as load:
        for number in range(10):
            enough = load.total + 20
            renewed(pki, number)
            tls.reload()
            await until(lambda enough=enough: load.total >= enough)  # type: ignore[misc]  # bound in the loop
        assert await shown(url, pki.client()) == "CN=extender-9"
    assert tls.reloads == {"succeeded": 10, "failed": 0}
    assert load.answers == {"200": load.total}


async def test_a_client_authority_is_rotated_by_standing_beside_the_new_one(pki: Pki) -> None:
    old, new = pki.authority, Authority.make("second", NOW, 5)
    pki.put_clients_of(old)
    tls = ServerTls(pki.tls)
    of_old = pki.client(pki.scheduler())
    of_new = pki.client(new.issue(SCHEDULER, NOW, 5, CLIENT))

    async def answered(url: str, context: ssl.SSLContext) -> bool:
        try:
            async with new_connections(context) as session, session.post(f"{url}/filter", json=BY_NAMES) as response:
                return response.status == HTTPStatus.OK
        except aiohttp.ClientError:
            return False

    async with served(tls, pki) as url:
        assert (await answered(url, of_old), await answered(url, of_new)) == (True, False)
        pki.put_clients_of(old, new)
        tls.reload()
        assert (await answered(url, of_old), await answered(url, of_new)) == (True, True)
        pki.put_clients_of(new)
        tls.reload()
        assert (await answered(url, of_old), await answered(url, of_new)) == (False, True)


async def test_a_session_is_not_taken_up_again_as_it_would_outlive_its_authority(pki: Pki) -> None:
    pki.put_clients_of(pki.authority)
    context = pki.client(pki.scheduler())
    async with served(ServerTls(pki.tls), pki) as url:
        port = int(url.rpartition(":")[2])
        session, _ = await asyncio.to_thread(connected, context, port, None)
        _, is_taken_up = await asyncio.to_thread(connected, context, port, session)
    assert session is not None
    assert not is_taken_up


SPOILED: dict[str, Callable[[Pki], object]] = {
    "gone": lambda pki: Path(pki.tls.cert_file).unlink(),
    "half written": lambda pki: Path(pki.tls.cert_file).write_text("-----BEGIN CERTIFICATE-----\nMII"),
    "of another key": lambda pki: Path(pki.tls.key_file).write_bytes(pki.scheduler().key_pem),
    "expired": lambda pki: pki.put_server(pki.authority.issue("extender", LONG_AGO, 5, SERVER, LOOPBACK)),
}


@pytest.mark.parametrize("how", SPOILED)
async def test_files_that_cannot_be_used_leave_the_old_ones_in_use(
    pki: Pki, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    tls = ServerTls(pki.tls)
    async with served(tls, pki) as url:
        SPOILED[how](pki)
        for _ in range(3):
            tls.reload()
        assert await shown(url, pki.client()) == "CN=extender"
        assert tls.reloads == {"succeeded": 0, "failed": 1}, "the same files are told once"
        errors = [record.message for record in caplog.records if record.levelno == logging.ERROR]
        assert errors == ["the old certificates stay in use"]
        renewed(pki)
        tls.reload()
        assert await shown(url, pki.client()) == "CN=extender-0"


async def test_the_files_are_looked_at_again_and_again(pki: Pki) -> None:
    tls, clock = ServerTls(pki.tls), FakeClock()
    following = asyncio.create_task(tls.follow(clock))
    await until(lambda: len(clock.slept) > 2)
    assert tls.reloads["succeeded"] == 0, "files that stay the same are no renewal"
    renewed(pki)
    await until(lambda: tls.reloads["succeeded"] == 1)
    following.cancel()
