"""`make deploy`, again with another image, and `make undeploy` on a real API server, with real controllers: nothing is left."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from deploy.install import LAYOUTS
from tests.deploy.building import ROOT
from tests.e2e import controllers
from tests.e2e.client import ApiFailure, pod_path
from tests.e2e.cluster import Cluster, every_object
from tests.e2e.controllers import PROGRAM, controlled
from tests.e2e.policing import without_crds
from tests.fakes import PATIENCE
from tests.programs import tool

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

CONTROLLERS: Final = ("namespace-controller", "garbage-collector-controller", "serviceaccount-token-controller")
IMAGE: Final = "registry.example.com/team/placement-extender"


async def make(cluster: Cluster, *arguments: str) -> str:
    """What it prints. AssertionError where it fails."""
    environment = {**os.environ, "KUBECONFIG": str(cluster.plane.kubeconfig)}
    command = [tool("make"), "--no-print-directory", *arguments]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@asynccontextmanager
async def running_pods(cluster: Cluster, namespace: str) -> AsyncIterator[None]:
    """What the kubelet reports of the pods of a namespace, until the block is left."""
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}

    async def report() -> None:
        while True:
            for each in (await cluster.api.list(f"/api/v1/namespaces/{namespace}/pods"))[0]:
                if each["status"].get("phase") != "Running":
                    with suppress(ApiFailure):  # the pod is gone
                        await cluster.api.patch(f"{pod_path(each)}/status", {"status": ready})
            await asyncio.sleep(0.2)

    reporting = asyncio.create_task(report())
    try:
        yield
    finally:
        reporting.cancel()
        with suppress(asyncio.CancelledError):
            await reporting


async def deploy(cluster: Cluster, layout: str, tag: str) -> str:
    """`make deploy` with policies, while the pods become ready."""
    async with running_pods(cluster, LAYOUTS[layout].namespace):
        return await make(cluster, "deploy", f"IMAGE={IMAGE}:{tag}", f"LAYOUT={layout}", "POLICIES=1", "TIMEOUT=60")


@pytest.mark.parametrize("layout", ["second-scheduler", "service", "schedulers"])
async def test_what_make_deploy_installs_is_changed_by_it_and_removed_by_make_undeploy(
    cluster: Cluster, assets: Path, layout: str
) -> None:
    if not controllers.is_there(assets):
        pytest.skip(f"{PROGRAM} is not in {assets}: NOTHING IS KNOWN of the objects that controllers remove")
    await without_crds(cluster.api)
    before = await every_object(cluster.api)
    async with controlled(cluster, assets, *CONTROLLERS):
        said = await deploy(cluster, layout, "1")
        assert "created" in said
        assert LAYOUTS[layout].then in said
        made = {kind.rpartition("/")[2] for kind, *_ in await every_object(cluster.api) - before}
        assert {"customresourcedefinitions", "cronjobs", "jobs", "secrets", "mutatingwebhookconfigurations"} <= made
        again = await deploy(cluster, layout, "2")
        changed = {line.split()[0] for line in again.splitlines() if line.endswith((" configured", " created"))}
        assert {name.partition("/")[0] for name in changed} <= {
            "deployment.apps",
            "job.batch",
            "cronjob.batch",
            "poddisruptionbudget.policy",
        }
        await make(cluster, "undeploy", f"LAYOUT={layout}", "TIMEOUT=60")
        async with asyncio.timeout(PATIENCE):
            while left := await every_object(cluster.api) - before:
                if not {kind.rpartition("/")[2] for kind, *_ in left} <= {"pods", "replicasets"}:
                    break
                await asyncio.sleep(0.2)
    assert left == set()
