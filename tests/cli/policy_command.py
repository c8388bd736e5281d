"""extender policy as a command: its result on files, on a snapshot and on a cluster."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders import Json
from tests.cli.printing import Result, called
from tests.policies import expression, node_term, requiring
from tests.verbs.admit.reviewing import pod


def node(name: str, *, tainted: bool = False, **labels: str) -> Json:
    """A node, with a taint for its pool."""
    spec = {"taints": [{"key": "pool", "value": "a", "effect": "NoSchedule"}]} if tainted else {}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec}


@dataclass
class Command:
    """The command with files that a test writes."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    def write(self, name: str, *objects: Json) -> str:
        """A file of these objects, one YAML document each."""
        path = self.folder / name
        path.write_text(yaml.safe_dump_all(objects), "utf-8")
        return str(path)

    def snapshot(self, *objects: Json) -> str:
        path = self.folder / "cluster.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}), "utf-8")
        return str(path)

    def __call__(self, *arguments: str) -> Result:
        return called(self.capsys, "policy", "test", *arguments)

    def on(self, policies: list[Json], *arguments: str, obj: Json | None = None) -> Result:
        """Run it with these policies and a pod, by default one with the label app=web, and print JSON."""
        given = self.write("policies.yaml", *policies)
        return self(given, "--pod", self.write("pod.yaml", obj or pod()), "-o", "json", *arguments)


SSD = requiring(node_term(expression("pool", "In", "b", "c")))
PREFERRED = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 50, "preference": node_term(expression("pool", "In", "b"))},
            {"weight": 7, "preference": node_term(expression("pool", "Exists"))},
        ]
    }
}


def both() -> dict[str, Any]:
    return {"nodeAffinity": {**SSD["nodeAffinity"], **PREFERRED["nodeAffinity"]}}
