"""`extender serve` as a process, and the service put together against the embedded control plane."""

import asyncio
import json
import re
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from extender.cli.serve import warn_of_unreadable
from extender.settings.configuration import API_VERSION, KIND
from extender.simulator.apiserver.server import ApiServer
from tests.fakes import PATIENCE
from tests.simulator.plain import HOSTNAME, anti_affinity, namespace, node, pod, term

OBJECTS = [
    namespace("default"),
    node("node-a", "z1"),
    node("node-b", "z2"),
    pod("web-1", on="node-a", labels={"app": "web"}),
]
APART = pod("web-2", labels={"app": "web"}, affinity=anti_affinity(term(HOSTNAME, app="web")))
APART["metadata"]["uid"] = "uid-web-2"
PENDING = [*OBJECTS, APART]  # the pod of the question stands in the scheduler's queue
QUESTION = {"Pod": APART, "NodeNames": ["node-a", "node-b"]}
ANNOUNCED = re.compile(r'answering url="(https?://[^"]+)"')


@asynccontextmanager
async def serving(*arguments: str) -> AsyncIterator[tuple[Process, str]]:
    """An `extender serve` process on a free port, and its URL; ended on leaving if it has not ended itself."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "extender", "serve", "--bind-address", "127.0.0.1:0", *arguments), stderr=PIPE
    )
    try:
        yield process, await url_of(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def url_of(process: Process) -> str:
    """What it announces in its log."""
    return await line_of(process, ANNOUNCED)


async def line_of(process: Process, pattern: re.Pattern[str]) -> str:
    """What the pattern's group finds in the first line of the log that has it."""
    assert process.stderr
    seen = ""
    async with asyncio.timeout(PATIENCE):
        while line := (await process.stderr.readline()).decode():
            seen += line
            if found := pattern.search(line):
                return found[1]
    raise AssertionError(f"it ended without {pattern.pattern}:\n{seen}")


async def ask(url: str, question: object = QUESTION) -> Any:
    """Filter's answer."""
    async with aiohttp.ClientSession() as session, session.post(f"{url}/filter", json=question) as answer:
        assert answer.status == 200
        return await answer.json()


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Return once something about another process holds, which can only be asked for."""
    async with asyncio.timeout(PATIENCE):
        while not await holds():  # noqa: ASYNC110 (there is no event across processes)
            await asyncio.sleep(0.01)


async def passing(url: str, names: list[str]) -> None:
    """Return once filter answers these names; the watch needs a moment to tell."""

    async def answers() -> bool:
        return bool((await ask(url))["NodeNames"] == names)

    await eventually(answers)


async def in_flight(session: aiohttp.ClientSession, url: str) -> None:
    """Return once it says that it is reading a request."""

    async def reads() -> bool:
        return "extender_requests_in_flight 1.0" in await (await session.get(f"{url}/metrics")).text()

    await eventually(reads)


async def ready(url: str) -> None:
    """Return once it says that it is ready."""
    async with aiohttp.ClientSession() as session:

        async def is_ready() -> bool:
            return (await session.get(f"{url}/readyz")).status == 200

        await eventually(is_ready)


def snapshot(folder: Path) -> str:
    """The objects as kubectl prints them, in a file."""
    path = folder / "cluster.json"
    objects = [found | {"metadata": {"uid": f"uid-{n}"} | found["metadata"]} for n, found in enumerate(OBJECTS)]
    path.write_bytes(orjson.dumps({"kind": "List", "items": objects}))
    return str(path)


def configuration(folder: Path, **sections: object) -> str:
    """A configuration file; JSON is YAML."""
    path = folder / "extender.yaml"
    path.write_text(json.dumps({"apiVersion": API_VERSION, "kind": KIND, **sections}), "utf-8")
    return str(path)


async def test_a_snapshot_is_answered_from_at_once(tmp_path: Path) -> None:
    async with serving("--snapshot", snapshot(tmp_path)) as (_, url):
        assert (await ask(url))["NodeNames"] == ["node-b"]


def test_objects_of_a_snapshot_that_do_not_count_are_named_but_not_without_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn_of_unreadable("all.json", [f"items[{number}]: is odd" for number in range(1_000)])
    told = [record.getMessage() for record in caplog.records]
    assert told[0] == "all.json: skipped: items[0]: is odd"
    assert told[20:] == ["all.json: 1000 objects skipped, of which 20 are named"]


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
        await line_of(process, re.compile("(stopping: SIGTERM)"))
        stopping.set()
        async with asyncio.timeout(PATIENCE):
            assert (await (await waiting).json())["NodeNames"] == ["node-b"]
            assert await process.wait() == 0


async def test_an_address_in_use_is_reported_without_a_traceback(tmp_path: Path) -> None:
    async with serving("--snapshot", snapshot(tmp_path)) as (_, url):
        address = url.removeprefix("http://")
        command = ("-m", "extender", "serve", "--snapshot", snapshot(tmp_path), "--bind-address", address)
        second = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=PIPE)
        _, told = await second.communicate()
    assert second.returncode == 1
    assert f"extender: cannot listen on {address}: ".encode() in told
    assert b"Traceback" not in told


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
            _, told = await process.communicate()
    assert process.returncode == 1
    assert f"extender: cannot listen on policies.webhook.bindAddress {address}: ".encode() in told
    assert b"Traceback" not in told


async def test_a_kubeconfig_that_is_not_there_is_reported_without_a_traceback(tmp_path: Path) -> None:
    config = configuration(tmp_path, kube={"kubeconfig": "/nowhere/kubeconfig"})
    command = ("-m", "extender", "serve", "--config", config)
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=PIPE)
    _, told = await process.communicate()
    assert process.returncode == 1
    assert b"extender: kubeconfig /nowhere/kubeconfig: " in told
    assert b"Traceback" not in told


async def test_a_cluster_is_followed_from_its_first_list_on(tmp_path: Path) -> None:
    async with ApiServer() as api:
        api.store.load(json.loads(json.dumps(PENDING)))
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
        config = configuration(tmp_path, kube={"kubeconfig": str(kubeconfig)})
        async with serving("--config", config) as (_, url):
            await ready(url)
            assert (await ask(url))["NodeNames"] == ["node-b"]
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


PLAIN_SERVICE = """
import sys
from random import Random
import extender.cli.serve
from extender.compose.service import service_of_objects
from extender.settings.configuration import Settings
service_of_objects(Settings(), [], Random(1))
print([name for name in ("cryptography", "extender.certificates", "extender.compose.admission") if name in sys.modules])
"""


async def test_plain_http_without_policies_loads_nothing_that_reads_certificates() -> None:
    """It would hold 9 MB."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PLAIN_SERVICE, stdout=PIPE)
    told, _ = await process.communicate()
    assert told.decode().strip() == "[]"
