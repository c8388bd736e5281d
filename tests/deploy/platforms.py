"""The pages of deploy/platforms: their YAML blocks by the file that each names, and their commands with stand-ins for a cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import yaml

from tests.deploy.building import DEPLOY, ROOT
from tests.programs import tool

PAGES: Final = {path.stem: path for path in sorted((DEPLOY / "platforms").glob("*.md"))}
CLOUDS: Final = {"eks": "v1.35.2-eks-3025e55", "gke": "v1.35.2-gke.1269000", "aks": "v1.35.2", "k3s": "v1.35.2+k3s1"}
SERVICE: Final = "10.96.0.50"
_STANDS_IN: Final = {
    # What follows `upgrade --install` is rendered instead of installed.
    "helm": 'case "$1" in upgrade) shift 2; {helm} template --kube-version={version} "$@" >rendered.yaml ;; *) {helm} "$@" ;; esac',
    "kubectl": """case "$*" in
        *"get service"*) printf {service} ;;
        *"get secret"*) printf c2VjcmV0Cg== ;;
        apply*) cat "$3" ;;
    esac""",
    "aws": "echo sg-0a1b",
    "gcloud": "echo 172.16.0.0/28",
    "az": "true",
    "extender": 'case "$1" in doctor) ;; *) {python} -m extender "$@" ;; esac',
}


@dataclass(frozen=True)
class Block:
    """A YAML block. ``name``: the file in its first line, where `in FILE` is a part of that file."""

    name: str
    text: str

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [document for document in yaml.safe_load_all(self.text) if document]


@dataclass
class Page:
    """A page, and what its commands did in a folder."""

    name: str
    calls: list[list[str]] = field(default_factory=list)

    @cached_property
    def text(self) -> str:
        return PAGES[self.name].read_text("utf-8")

    @property
    def blocks(self) -> list[Block]:
        found = re.findall(r"^```yaml\n# (.+)\n((?:.*\n)*?)```$", self.text, re.MULTILINE)
        assert len(found) == self.text.count("```yaml"), "the first line of each block names its file"
        return [Block(name, text) for name, text in found]

    @property
    def commands(self) -> str:
        """All of them, as a shell reads them."""
        prose = re.sub(r"^```.*?^```$", "", self.text, flags=re.MULTILINE | re.DOTALL)
        return "".join(line[4:] for line in re.findall(r"^    .*\n", prose, re.MULTILINE))

    def play(self, folder: Path, *, version: str = "v1.36.0", **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the commands beside the first YAML block of each file. Paths below /etc are paths below the folder."""
        programs = folder / "bin"
        programs.mkdir()
        for name in ("deploy", "config"):
            (folder / name).symlink_to(ROOT / name)
        for name, text in _STANDS_IN.items():
            shell = text.format(helm=tool("helm"), version=version, service=SERVICE, python=sys.executable)
            log = f'printf "%s\\n" {name} "$@" "" >>"{folder}/calls"'
            (programs / name).write_text(f"#!/bin/sh\n{log}\n{shell}\n", "utf-8")
            (programs / name).chmod(0o755)
        for block in reversed(self.blocks):
            if "/" not in block.name:
                (folder / block.name).write_text(block.text, "utf-8")
        kept = {name: value for name, value in os.environ.items() if name not in self.variables}
        done = subprocess.run(
            [tool("bash"), "-euo", "pipefail", "-c", self.commands.replace("/etc/", f"{folder}/etc/")],
            cwd=folder,
            env={**kept, **variables, "PATH": f"{programs}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        calls = (folder / "calls").read_text("utf-8") if (folder / "calls").exists() else ""
        self.calls = [call.splitlines() for call in calls.split("\n\n") if call]
        return done

    @property
    def variables(self) -> set[str]:
        """What a user has to set."""
        return set(re.findall(r"\$\{?([A-Z_]+)", self.commands))

    def called(self, *beginning: str) -> list[str]:
        """The one call that begins so."""
        (found,) = [call for call in self.calls if call[: len(beginning)] == list(beginning)]
        return found
