"""`extender serve` as a process, and the service put together against the embedded control plane."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from pathlib import Path

import aiohttp
import orjson
import pytest

from extender.certificates.authority import SERVER
from extender.cli.serve import warn_of_unreadable
from extender.simulator.apiserver.server import ApiServer
from extender.telemetry.logs import fields_of
from tests.cli.serving import (
    PENDING,
    PLAIN_SERVICE,
    QUESTION,
    children,
    configuration,
    endless,
    exists,
    expire,
    files,
    in_flight,
    line_of,
    metric,
    mismatch,
    passing,
    post_filter,
    ready,
    remove,
    serving,
    snapshot,
)
from tests.fakes import PATIENCE, until
from tests.pki import LOOPBACK, NOW, Pki, new_connections
from tests.simulator.plain import pod


async def test_a_snapshot_is_answered_from_at_once(tmp_path: Path) -> None:
    async with serving("--snapshot", snapshot(tmp_path)) as (_, url):
        assert (await post_filter(url))["NodeNames"] == ["node-b"]


def test_objects_of_a_snapshot_that_do_not_count_are_named_but_not_without_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn_of_unreadable("all.json", [f"items[{number}]: is odd" for number in range(1_000)])
    logged = [(record.getMessage(), fields_of(record)) for record in caplog.records]
    assert logged[0] == ("object skipped", {"file": "all.json", "problem": "items[0]: is odd"})
    assert logged[20:] == [("objects skipped", {"file": "all.json", "objects": 1000, "logged": 20})]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_in_order(tmp_path: Path, number: signal.Signals) -> None:
    async with serving("--snapshot", snapshot(tmp_path)) as (process, _):
        process.send_signal(number)
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 0


async def test_a_request_in_flight_is_finished_before_it_ends(tmp_path: Path) -> None:
    stopping = asyncio.Event()
    body = orjson.dumps(QUESTION)

    async def slow_body() -> AsyncIterator[bytes]:
        yield body[:10]
        await stopping.wait()
        yield body[10:]

    async with serving("--snapshot", snapshot(tmp_path)) as (process, url), aiohttp.ClientSession() as session:
        waiting = asyncio.create_task(
            session.post(f"{url}/filter", data=slow_body(), headers={"Content-Length": str(len(body))})
        )
        await in_flight(session, url)
        process.send_signal(signal.SIGTERM)
        await line_of(process, re.compile('(stopping reason="SIGTERM")'))
        stopping.set()
        async with asyncio.timeout(PATIENCE):
            assert (await (await waiting).json())["NodeNames"] == ["node-b"]
            assert await process.wait() == 0


async def test_an_address_in_use_is_reported_without_a_traceback(tmp_path: Path) -> None:
    async with serving("--snapshot", snapshot(tmp_path)) as (_, url):
        address = url.removeprefix("http://")
        command = ("-m", "extender", "serve", "--snapshot", snapshot(tmp_path), "--bind-address", address)
        second = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=PIPE)
        _, logged = await second.communicate()
    assert second.returncode == 1
    assert f"extender: cannot listen on {address}: ".encode() in logged
    assert b"Traceback" not in logged


async def test_an_address_of_the_webhook_that_is_in_use_is_named_by_its_setting(tmp_path: Path) -> None:
    """Not that of the scheduler's port, which is free."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with ApiServer() as api:
            config = configuration(
                tmp_path,
                kube={"kubeconfig": str(api.write_kubeconfig(tmp_path / "kubeconfig"))},
                policies={"enabled": True, "webhook": {"bindAddress": address}},
            )
            command = ("-m", "extender", "serve", "--config", config, "--bind-address", "127.0.0.1:0")
            process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=PIPE)
            _, logged = await process.communicate()
    assert process.returncode == 1
    assert f"extender: cannot listen on policies.webhook.bindAddress {address}: ".encode() in logged
    assert b"Traceback" not in logged


async def test_a_kubeconfig_that_is_not_there_is_reported_without_a_traceback(tmp_path: Path) -> None:
    config = configuration(tmp_path, kube={"kubeconfig": "/nowhere/kubeconfig"})
    command = ("-m", "extender", "serve", "--config", config)
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=PIPE)
    _, logged = await process.communicate()
    assert process.returncode == 1
    assert b"extender: kubeconfig /nowhere/kubeconfig: " in logged
    assert b"Traceback" not in logged


async def test_a_cluster_is_followed_from_its_first_list_on(tmp_path: Path) -> None:
    async with ApiServer() as api:
        api.store.load(json.loads(json.dumps(PENDING)))
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
        config = configuration(tmp_path, kube={"kubeconfig": str(kubeconfig)})
        async with serving("--config", config) as (_, url):
            await ready(url)
            assert (await post_filter(url))["NodeNames"] == ["node-b"]
            async with aiohttp.ClientSession() as session:
                pods = f"{api.url}/api/v1/namespaces/default/pods"
                await session.post(pods, json=pod("web-3", on="node-b", labels={"app": "web"}))
                await passing(url, [])
                await session.delete(f"{pods}/web-1?gracePeriodSeconds=0")
                await passing(url, ["node-a"])


async def test_nothing_is_answered_while_the_cluster_cannot_be_read(tmp_path: Path) -> None:
    async with ApiServer() as api:
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
    config = configuration(tmp_path, kube={"kubeconfig": str(kubeconfig)})
    async with serving("--config", config) as (_, url), aiohttp.ClientSession() as session:
        assert (await session.post(f"{url}/filter", json=QUESTION)).status == 503
        checks = await (await session.get(f"{url}/readyz?verbose")).text()
    assert "[-]pods failed: " in checks


async def test_plain_http_without_policies_loads_nothing_that_reads_certificates() -> None:
    """It would hold 9 MB."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PLAIN_SERVICE, stdout=PIPE)
    logged, _ = await process.communicate()
    assert logged.decode().strip() == "[]"


# -- `extender serve` with certificates, as a process on the loop that it really runs on -------------------------------


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
    _, logged = await process.communicate()
    assert process.returncode == 1
    assert b"extender: server.tls." in logged
    assert problem.encode() in logged
    assert b"Traceback" not in logged


# -- What-ifs of an `extender serve` process: what goes on beside one that takes long, and how it ends -----------------


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[tuple[Process, str]]:
    """A service that answers from a snapshot."""
    path = tmp_path / "cluster.json"
    path.write_bytes(orjson.dumps({"kind": "List", "items": PENDING}))
    async with serving("--snapshot", str(path)) as (process, url):
        yield process, url


async def test_beside_a_long_one_the_scheduler_is_answered_and_its_end_is_that_of_its_client(
    service: tuple[Process, str],
) -> None:
    process, url = service
    async with aiohttp.ClientSession() as client:
        incoming = asyncio.create_task(client.post(f"{url}/v1/whatif", json=endless()))
        await until(lambda: len(children(process)) == 1)
        assert (await post_filter(url))["NodeNames"] == ["node-b"]
        async with client.post(f"{url}/v1/whatif", json={}) as second:
            assert (second.status, second.headers["Retry-After"]) == (HTTPStatus.TOO_MANY_REQUESTS, "1")
        incoming.cancel()  # closes the connection
        await until(lambda: not children(process))
        async with client.post(f"{url}/v1/whatif", json={"delete": [{"kind": "Node", "name": "node-a"}]}) as third:
            found = await third.json()
    assert found["summary"]["displaced"] == 1
    assert children(process) == []


async def test_a_stop_of_the_service_ends_the_one_that_is_computed(service: tuple[Process, str]) -> None:
    process, url = service
    async with aiohttp.ClientSession() as client:
        incoming = asyncio.create_task(client.post(f"{url}/v1/whatif", json=endless()))
        await until(lambda: len(children(process)) == 1)
        (child,) = children(process)
        process.send_signal(signal.SIGTERM)
        answer = await incoming
        assert (answer.status, await answer.json()) == (
            HTTPStatus.SERVICE_UNAVAILABLE,
            {"error": "the service is stopping"},
        )
    assert await process.wait() == 0
    assert not exists(child)
