"""What-ifs of an `extender serve` process: what goes on beside one that takes long, and how it ends."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from tests.builders import node_json, pod_json, term
from tests.cli.test_serve import PENDING, ask, serving
from tests.fakes import until

ROOM = {"cpu": "64", "pods": "999"}


def endless() -> dict[str, Any]:
    """Changes whose pods are all different, so that node fit is checked for each: many seconds of computing."""
    nodes = [node_json(f"new-{at}", allocatable=ROOM) | {"kind": "Node"} for at in range(1500)]
    pods = [
        pod_json(f"pod-{at}", apart=[term("host", app=f"a{at}")], requests={"cpu": f"{at + 1}m"}) | {"kind": "Pod"}
        for at in range(1500)
    ]
    return {"apply": [*nodes, *pods]}


def children(process: Process) -> list[str]:
    """The child processes of the service, zombies included."""
    return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("ascii").split()


def exists(pid: str) -> bool:
    """Whether there is such a process, running or not."""
    return Path(f"/proc/{pid}").exists()


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
        asking = asyncio.create_task(client.post(f"{url}/v1/whatif", json=endless()))
        await until(lambda: len(children(process)) == 1)
        assert (await ask(url))["NodeNames"] == ["node-b"]
        async with client.post(f"{url}/v1/whatif", json={}) as second:
            assert (second.status, second.headers["Retry-After"]) == (HTTPStatus.TOO_MANY_REQUESTS, "1")
        asking.cancel()  # closes the connection
        await until(lambda: not children(process))
        async with client.post(f"{url}/v1/whatif", json={"delete": [{"kind": "Node", "name": "node-a"}]}) as third:
            found = await third.json()
    assert found["summary"]["displaced"] == 1
    assert children(process) == []


async def test_a_stop_of_the_service_ends_the_one_that_is_computed(service: tuple[Process, str]) -> None:
    process, url = service
    async with aiohttp.ClientSession() as client:
        asking = asyncio.create_task(client.post(f"{url}/v1/whatif", json=endless()))
        await until(lambda: len(children(process)) == 1)
        (child,) = children(process)
        process.send_signal(signal.SIGTERM)
        answer = await asking
        assert (answer.status, await answer.json()) == (
            HTTPStatus.SERVICE_UNAVAILABLE,
            {"error": "the service is stopping"},
        )
    assert await process.wait() == 0
    assert not exists(child)
