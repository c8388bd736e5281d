"""Set-ups for doctor on a real control plane."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from extender.kube.session import MERGE_PATCH
from extender.simulator.json_objects import JsonObject
from tests.e2e.cluster import Cluster
from tests.e2e.programs import our_command
from tests.e2e.serving import Extender
from tests.fakes import PATIENCE
from tests.simulator.plain import pod

Findings = list[tuple[str, str, str]]


async def doctor(extender: Extender, folder: Path, document: JsonObject, *more: str) -> Findings:
    """What it finds, by severity, check and problem. No account and no kubeconfig is given: it takes the service's."""
    file = folder / "kube-scheduler.yaml"
    file.write_text(yaml.safe_dump(document), "utf-8")
    command = our_command("doctor", "-o", "json", "--url", extender.url, "--scheduler-config", str(file), *more)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return [(one["severity"], one["check"], one["problem"]) for one in json.loads(out)["findings"]]


async def place(cluster: Cluster) -> None:
    """A pod comes and is bound."""
    await cluster.api.create(placed := pod("web"))
    await cluster.board.bound(placed)


async def keep_out(cluster: Cluster) -> None:
    """Every node is tainted, and a pod comes."""
    taints = {"spec": {"taints": [{"key": "kept", "value": "out", "effect": "NoSchedule"}]}}
    for name in (node["metadata"]["name"] for node in (await cluster.api.request("GET", "/api/v1/nodes"))["items"]):
        await cluster.api.request("PATCH", f"/api/v1/nodes/{name}", taints, content_type=MERGE_PATCH)
    await cluster.api.create(rejected := pod("web"))
    await cluster.board.rejected(rejected)


async def nothing(_: Cluster) -> None:
    """No pod comes."""


@dataclass(frozen=True)
class SetUp:
    """A set-up: what of the scheduler's configuration is otherwise, whether it calls us at all, and what happens."""

    found: Findings
    mode: str = "offload"
    stanza: dict[str, Any] = field(default_factory=dict)
    calls: bool = True
    happens: Callable[[Cluster], Awaitable[None]] = place


async def eventually_standing_by(extender: Extender) -> None:
    """Return once it is ready as a pod, and another one leads."""
    async with asyncio.timeout(PATIENCE * 3), aiohttp.ClientSession(extender.url) as session:
        while True:
            async with session.get("/readyz?verbose") as answer:
                if answer.status == 200 and "(standby, the leader is" in await answer.text():
                    return
            await asyncio.sleep(0.1)


async def policies_of(cluster: Cluster) -> list[JsonObject]:
    """The policies that are stored, of which a dry run makes none."""
    path = "/apis/placement.extender.dev/v1alpha1/clusterpodschedulingpolicies"
    return list((await cluster.api.request("GET", path))["items"])
