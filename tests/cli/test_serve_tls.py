"""`extender serve` with certificates, as a process on the loop that it really runs on."""

import asyncio
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import aiohttp
import pytest

from extender.certificates.authority import SERVER
from tests.cli.test_serve import QUESTION, configuration, serving, snapshot
from tests.fakes import PATIENCE
from tests.server.pki import LONG_AGO, LOOPBACK, NOW, SCHEDULER, Pki, new_connections


def files(pki: Pki) -> dict[str, object]:
    """The section of the configuration that points to the files."""
    pki.put_clients_of(pki.authority)
    tls = {"certFile": pki.tls.cert_file, "keyFile": pki.tls.key_file, "clientCAFile": pki.tls.client_ca_file}
    return {"tls": tls | {"clients": {"admin": [SCHEDULER]}}}


async def metric(session: aiohttp.ClientSession, url: str, line: str) -> str:
    """The value of one line of the metrics page."""
    async with session.get(f"{url}/metrics") as page:
        found = re.search(rf"^{re.escape(line)} (\S+)$", await page.text(), re.MULTILINE)
    assert found, line
    return found[1]


async def test_a_running_service_takes_renewed_files_in(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    config = configuration(tmp_path, server=files(pki))
    client = pki.client(pki.scheduler())
    async with (
        serving("--snapshot", snapshot(tmp_path), "--config", config) as (_, url),
        new_connections(client) as session,
    ):
        async with session.post(f"{url}/filter", json=QUESTION) as answer:
            assert (await answer.json())["NodeNames"] == ["node-b"]
        expiry = 'extender_certificate_expiry_timestamp_seconds{name="server"}'
        before = await metric(session, url, expiry)
        pki.put_server(pki.authority.issue("extender", NOW, 9, SERVER, LOOPBACK))
        async with asyncio.timeout(PATIENCE):
            while await metric(session, url, expiry) == before:  # noqa: ASYNC110 (another process)
                await asyncio.sleep(0.05)
        assert await metric(session, url, 'extender_certificate_reloads_total{result="succeeded"}') == "1.0"
        assert (await session.post(f"{url}/filter", json=QUESTION)).status == HTTPStatus.OK


def expire(pki: Pki) -> None:
    """A certificate that was good once."""
    pki.put_server(pki.authority.issue("extender", LONG_AGO, 5, SERVER, LOOPBACK))


def mismatch(pki: Pki) -> None:
    """The key of another certificate."""
    Path(pki.tls.key_file).write_bytes(pki.scheduler().key_pem)


def remove(pki: Pki) -> None:
    """No certificate at all."""
    Path(pki.tls.cert_file).unlink()


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (expire, 'server.crt: certificate "extender" expired on '),
        (mismatch, "server.key: is not the key of the certificate in server.tls.certFile "),
        (remove, "server.crt: No such file or directory"),
    ],
)
async def test_files_that_cannot_be_used_end_the_start_without_a_traceback(
    tmp_path: Path, spoil: Callable[[Pki], None], problem: str
) -> None:
    pki = Pki(tmp_path)
    spoil(pki)
    command = ("-m", "extender", "serve", "--snapshot", snapshot(tmp_path))
    config = configuration(tmp_path, server=files(pki))
    process = await asyncio.create_subprocess_exec(sys.executable, *command, "--config", config, stderr=PIPE)
    _, told = await process.communicate()
    assert process.returncode == 1
    assert b"extender: server.tls." in told
    assert problem.encode() in told
    assert b"Traceback" not in told
