"""The service installed as deploy/docs says, with kubectl's plugin and a pod of the overlay."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from extender.simulator.json_objects import JsonObject
from tests.deploy.building import of_kind, overlay
from tests.e2e.cluster import Cluster
from tests.e2e.port_forwarding import ForwardingKubelet
from tests.e2e.serving import Extender
from tests.programs import tool

NAMESPACE = "placement-extender"


@dataclass
class Installed:
    """The service overlay with two pods, of which the leader's process runs. ``user`` has the Role of deploy/kubectl alone."""

    cluster: Cluster
    kubelet: ForwardingKubelet
    extender: Extender
    user: Path
    certificates: Path

    async def kubectl(self, *arguments: str, account: Path | None = None) -> tuple[int, str, str]:
        """The exit code of `kubectl placement` as a user, and what it printed."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        process = await asyncio.create_subprocess_exec(
            tool("kubectl"),
            *arguments,
            env={**os.environ, "PATH": path, "KUBECONFIG": str(account or self.user)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, error = await process.communicate()
        return process.returncode or 0, out.decode(), error.decode()

    async def placement(self, *arguments: str, account: Path | None = None) -> tuple[int, str, str]:
        return await self.kubectl("placement", *arguments, account=account)


def pod_of_the_overlay(name: str) -> JsonObject:
    (deployment,) = of_kind(overlay("service"), "Deployment")
    template = deployment["spec"]["template"]
    metadata = {"name": name, "namespace": NAMESPACE, "labels": template["metadata"]["labels"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**template["spec"], "nodeName": "machine"},
    }
