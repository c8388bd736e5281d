"""README's quick start, followed literally by a shell, in front of the embedded control plane.

Only the port differs, in the commands as in the configuration: somebody else may have 8888 on the machine of the tests.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from extender.simulate.apiserver import ApiServer
from extender.simulate.extender_client import ExtenderStanza
from extender.simulate.json_objects import node_of
from extender.simulate.kinds import PODS
from extender.simulate.scheduler import LoopSettings, SchedulingLoop
from tests.e2e.programs import free_ports
from tests.simulate.plain import namespace, node, pod
from tests.tools import tool

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.timeout(120)


def blocks() -> list[str]:
    """The commands between the marks of README, one text for each indented block."""
    readme = (ROOT / "README.md").read_text("utf-8")
    _, _, rest = readme.partition("<!-- quick start: begin -->")
    section, _, _ = rest.partition("<!-- quick start: end -->")
    found = re.findall(r"(?:^    .*\n)+", section, re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in found]


@asynccontextmanager
async def shell(folder: Path, environment: dict[str, str]) -> AsyncIterator[Process]:
    """A bash that ends with the first command that fails; what it has started ends with it."""
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-e",
        "-o",
        "pipefail",
        stdin=PIPE,
        stdout=PIPE,
        stderr=STDOUT,
        cwd=folder,
        env={**os.environ, **environment},
    )
    assert process.stdin
    process.stdin.write(b"trap 'kill $(jobs -p)' EXIT\n")
    try:
        yield process
    finally:
        process.stdin.close()  # the end of what is typed is the end of the shell
        await process.communicate()


async def follow(process: Process, commands: str) -> str:
    """Type the commands; what they print, once all have succeeded. AssertionError with it when one fails."""
    assert process.stdin
    assert process.stdout
    process.stdin.write(f"{commands}\necho followed\n".encode())
    printed = ""
    while line := (await process.stdout.readline()).decode():
        if line == "followed\n":
            return printed
        printed += line
    raise AssertionError(f"a command failed:\n{commands}\n{printed}")


async def place_a_pod(api: ApiServer, configuration: str) -> str:
    """Have a scheduler with that configuration place a pod; the node that it gets."""
    (entry,) = yaml.safe_load(configuration)["extenders"]
    stanza = ExtenderStanza(
        url_prefix=entry["urlPrefix"], filter_verb=entry["filterVerb"], prioritize_verb=entry.get("prioritizeVerb", "")
    )
    loop = SchedulingLoop(api.store, api.url, stanza, LoopSettings())
    await loop.start()
    api.operations.create(PODS, pod("web"))
    assert await loop.settle(within=30.0, calm=0.2)
    await loop.stop()
    return node_of(api.store.find(PODS, "default/web").read())


async def test_the_quick_start_of_the_readme_leads_to_a_set_up_without_a_finding(tmp_path: Path) -> None:
    assert all((tool("bash"), tool("curl"), tool("grep")))
    (port,) = free_ports(1)
    shutil.copytree(ROOT / "config", tmp_path / "config")
    settings = tmp_path / "config" / "extender.yaml"
    settings.write_text(settings.read_text("utf-8").replace(":8888", f":{port}"), "utf-8")
    serve, generate, prove = (block.replace(":8888", f":{port}") for block in blocks())
    async with ApiServer() as api:
        api.store.load([namespace("default"), node("node-a", "z1")])
        environment = {
            "KUBECONFIG": str(api.write_kubeconfig(tmp_path / "kubeconfig")),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        async with shell(tmp_path, environment) as process:
            assert "readyz check passed" in await follow(process, serve)
            await follow(process, generate)
            assert await place_a_pod(api, await follow(process, "cat kube-scheduler.yaml")) == "node-a"
            proven = await follow(process, prove)
    assert "0 errors, 0 warnings" in proven
    assert 'extender_requests_total{code="200",verb="filter"} 1.0' in proven
