"""A service that records shadow decisions beside a kube-scheduler, with a fault in a rule."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp

from extender.simulator.json_objects import JsonObject
from tests.e2e.cluster import Cluster
from tests.e2e.programs import our_command
from tests.e2e.serving import Extender

SHADOW = {"shadow": True}


# Imported by each Python process with this folder on its path, before anything else.
FAULT_FILE = "sitecustomize.py"


async def shown(url: str) -> JsonObject:
    async with aiohttp.ClientSession(url) as session, session.get("/debug/shadow") as answer:
        assert answer.status == 200
        found: JsonObject = await answer.json()
        return found


async def settled(url: str, holds: Callable[[JsonObject], object], within: float = 60.0) -> JsonObject:
    """The page, once it says so and nothing is open."""
    async with asyncio.timeout(within):
        while (found := await shown(url))["open"] or not holds(found):  # noqa: ASYNC110 -- across processes
            await asyncio.sleep(0.1)
    return found


def doctor(cluster: Cluster, extender: Extender) -> list[JsonObject]:
    """What doctor says of shadow decisions."""
    command = our_command("doctor", "--url", extender.url, "--no-cluster", "-o", "json")
    printed = subprocess.run(command, cwd=cluster.folder, check=False, capture_output=True, text=True)
    return [each for each in json.loads(printed.stdout)["findings"] if each["check"] == "shadow"]


@asynccontextmanager
async def faulty(cluster: Cluster, fault: str) -> AsyncIterator[Extender]:
    """The same as `Cluster.scheduled`, with a fault in a rule of the extender."""
    folder = cluster.folder / "fault"
    folder.mkdir()
    (folder / FAULT_FILE).write_text(fault, "utf-8")
    async with cluster.scheduled("augment", settings=SHADOW, environment={"PYTHONPATH": str(folder)}) as extender:
        yield extender


def has_compared(most: int, page: JsonObject) -> bool:
    return bool(page["compared"] >= most)


async def placed_one_at_a_time(cluster: Cluster, *pods: JsonObject) -> None:
    """No assumed pod can then explain a difference."""
    for each in pods:
        await cluster.api.create(each)
        await cluster.board.bound(each)


def service(name: str, **selector: str) -> JsonObject:
    spec = {"selector": selector, "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
