"""`extender serve` as a process of its own, with the objects and the question that its tests share."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from extender.settings.configuration import API_VERSION, KIND
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


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Return once something about another process holds, which can only be asked for."""
    async with asyncio.timeout(PATIENCE):
        while not await holds():  # noqa: ASYNC110 (there is no event across processes)
            await asyncio.sleep(0.01)


async def ready(url: str) -> None:
    """Return once it says that it is ready."""
    async with aiohttp.ClientSession() as session:

        async def is_ready() -> bool:
            return (await session.get(f"{url}/readyz")).status == 200

        await eventually(is_ready)


def configuration(folder: Path, **sections: object) -> str:
    """A configuration file; JSON is YAML."""
    path = folder / "extender.yaml"
    path.write_text(json.dumps({"apiVersion": API_VERSION, "kind": KIND, **sections}), "utf-8")
    return str(path)
