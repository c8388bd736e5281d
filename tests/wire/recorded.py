"""Requests that a real kube-scheduler sent, and the lists of its cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from extender.simulator.oracle.brute_force import feasible
from extender.wire.objects.kinds import NAMESPACES, NODES, PODS, Kind
from tests.builders import Json, settings

RECORDINGS = Path(__file__).parents[1] / "recordings"
LISTS: list[Kind[Any]] = [NODES, NAMESPACES, PODS]
EVERY_NODE = settings()


def recorded(*verbs: str) -> dict[str, Json]:
    """The request bodies of these folders, by path."""
    paths = [path for verb in verbs for path in sorted((RECORDINGS / "scheduler" / verb).glob("*.json"))]
    return {f"{path.parent.name}/{path.stem}": orjson.loads(path.read_bytes())["request"] for path in paths}


def each_of(*verbs: str) -> pytest.MarkDecorator:
    """Runs a test with every recorded question of these folders."""
    requests = recorded(*verbs)
    return pytest.mark.parametrize("question", requests.values(), ids=requests)


def listed(kind: Kind[Any]) -> list[Json]:
    """The objects of the recorded list of a kind."""
    lines = (RECORDINGS / f"list-{kind.name}.jsonl").read_bytes().splitlines()
    return [item for line in lines for item in orjson.loads(line)["items"]]


def names_in(request: Json) -> list[str]:
    names: Sequence[str] | None = request["NodeNames"]
    return list(names) if names is not None else [item["metadata"]["name"] for item in request["Nodes"]["items"]]


def victims_in(request: Json) -> dict[str, list[str]]:
    if request["NodeNameToMetaVictims"] is not None:
        brief = request["NodeNameToMetaVictims"]
        return {node: [pod["UID"] for pod in victims["Pods"]] for node, victims in brief.items()}
    full = request["NodeNameToVictims"]
    return {node: [pod["metadata"]["uid"] for pod in victims["Pods"]] for node, victims in full.items()}


def nodes_that_pass(request: Json) -> list[str]:
    """The brute-force model's answer over the listed cluster."""
    found = feasible(request["Pod"], listed(NODES), listed(NAMESPACES), listed(PODS))
    return [name for name in names_in(request) if name in found and found[name].code == "Success"]
