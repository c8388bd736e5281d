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
from typing import Any

import aiohttp
import orjson

from extender.certificates.authority import SERVER
from extender.settings.configuration import API_VERSION, KIND
from tests.builders import node_json, pod_json
from tests.builders import term as builders_term
from tests.fakes import PATIENCE
from tests.pki import LONG_AGO, LOOPBACK, SCHEDULER, Pki
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


async def post_filter(url: str, question: object = QUESTION) -> Any:
    async with aiohttp.ClientSession() as session, session.post(f"{url}/filter", json=question) as answer:
        assert answer.status == 200
        return await answer.json()


async def passing(url: str, names: list[str]) -> None:
    """Return once filter answers these names; the watch needs a moment to tell."""

    async def answers() -> bool:
        return bool((await post_filter(url))["NodeNames"] == names)

    await eventually(answers)


async def in_flight(session: aiohttp.ClientSession, url: str) -> None:
    """Return once it says that it is reading a request."""

    async def reads() -> bool:
        return "extender_requests_in_flight 1.0" in await (await session.get(f"{url}/metrics")).text()

    await eventually(reads)


def snapshot(folder: Path) -> str:
    """The objects as kubectl prints them, in a file."""
    path = folder / "cluster.json"
    objects = [found | {"metadata": {"uid": f"uid-{n}"} | found["metadata"]} for n, found in enumerate(OBJECTS)]
    path.write_bytes(orjson.dumps({"kind": "List", "items": objects}))
    return str(path)


PLAIN_SERVICE = """
import sys
from random import Random
import extender.cli.serve
from extender.compose.service import service_of_objects
from extender.settings.configuration import Settings
service_of_objects(Settings(), [], Random(1))
print([name for name in ("cryptography", "extender.certificates", "extender.compose.admission") if name in sys.modules])
"""


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


def expire(pki: Pki) -> None:
    pki.put_server(pki.authority.issue("extender", LONG_AGO, 5, SERVER, LOOPBACK))


def mismatch(pki: Pki) -> None:
    Path(pki.tls.key_file).write_bytes(pki.scheduler().key_pem)


def remove(pki: Pki) -> None:
    Path(pki.tls.cert_file).unlink()


ROOM = {"cpu": "64", "pods": "999"}


def endless() -> dict[str, Any]:
    """Changes whose pods are all different, so that node fit is checked for each: many seconds of computing."""
    nodes = [node_json(f"new-{at}", allocatable=ROOM) | {"kind": "Node"} for at in range(1500)]
    pods = [
        pod_json(f"pod-{at}", apart=[builders_term("host", app=f"a{at}")], requests={"cpu": f"{at + 1}m"})
        | {"kind": "Pod"}
        for at in range(1500)
    ]
    return {"apply": [*nodes, *pods]}


def children(process: Process) -> list[str]:
    """The child processes of the service, zombies included."""
    return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("ascii").split()


def exists(pid: str) -> bool:
    """Whether there is such a process, running or not."""
    return Path(f"/proc/{pid}").exists()
