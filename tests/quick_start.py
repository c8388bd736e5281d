"""README's quick start as text, and a shell that follows it command by command.

Only what belongs to the machine differs from README: the port, and where the scheduler's kubeconfig lies.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.e2e.programs import free_ports
from tests.programs import tool

ROOT = Path(__file__).resolve().parents[1]
KUBEADM = "/etc/kubernetes/scheduler.conf"


def blocks(page: str = "README.md", mark: str = "quick start") -> list[str]:
    """The commands between the marks of a page, one text for each indented block."""
    text = (ROOT / page).read_text("utf-8")
    _, _, rest = text.partition(f"<!-- {mark}: begin -->")
    section, _, _ = rest.partition(f"<!-- {mark}: end -->")
    section = re.sub(r"^```.*?^```$", "", section, flags=re.MULTILINE | re.DOTALL)  # what the commands print
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


def needs_shell_tools() -> None:
    """Skips without a tool that the documents use."""
    assert all((tool("bash"), tool("curl"), tool("grep")))


def prepared(folder: Path, scheduler_kubeconfig: Path) -> list[str]:
    """The blocks with a free port and this kubeconfig, and config/ in the folder with that port. Skips without a tool."""
    needs_shell_tools()
    (port,) = free_ports(1)
    shutil.copytree(ROOT / "config", folder / "config")
    settings = folder / "config" / "extender.yaml"
    settings.write_text(settings.read_text("utf-8").replace(":8888", f":{port}"), "utf-8")
    return [block.replace(":8888", f":{port}").replace(KUBEADM, str(scheduler_kubeconfig)) for block in blocks()]
