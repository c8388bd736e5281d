"""Each overlay, installed, used and removed by the commands of deploy/docs: all of them exit 0, and nothing is left behind.

The controllers are real, and so are the extender and the scheduler, which run as processes beside the pods that no kubelet starts.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest

from extender.simulator.json_objects import JsonObject
from tests.deploy.building import OVERLAYS
from tests.e2e import controllers
from tests.e2e.client import pod_path
from tests.e2e.cluster import Cluster, every_object
from tests.e2e.controllers import PROGRAM, controlled
from tests.e2e.removal import (
    INSTALL,
    REMOVE,
    SCHEDULERS,
    Shell,
    Use,
    cert_manager,
    commands,
    enabling_policies,
    removing,
)
from tests.fakes import PATIENCE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

CONTROLLERS: Final = ("namespace-controller", "garbage-collector-controller", "serviceaccount-token-controller")


@pytest.mark.parametrize("name", OVERLAYS)
async def test_an_overlay_that_was_used_is_removed_by_the_commands_of_the_readme_and_leaves_nothing(
    cluster: Cluster, assets: Path, tmp_path: Path, name: str
) -> None:
    if not controllers.is_there(assets):
        pytest.skip(f"{PROGRAM} is not in {assets}: NOTHING IS KNOWN of the objects that controllers remove")
    api, shell, use = cluster.api, Shell(cluster, tmp_path), Use(cluster, name, tmp_path)
    async with AsyncExitStack() as stack:
        if name == "service-cert-manager":
            await stack.enter_async_context(cert_manager(api, shell))
        await stack.enter_async_context(controlled(cluster, assets, *CONTROLLERS))
        await shell.run(
            "kubectl delete --ignore-not-found -f deploy/policies/crds.yaml"
        )  # which tests before this one have left
        async with asyncio.timeout(PATIENCE):
            while any("placement.extender.dev" in name for _, _, name in await every_object(api)):  # noqa: ASYNC110 -- the API server removes the APIService of a group by and by
                await asyncio.sleep(0.2)
        before = await every_object(api)
        await shell.run(commands("The image"))
        await shell.run(commands(*INSTALL[name]))
        gated: list[JsonObject] = []
        stack.push_async_callback(use.stop)
        if name != "sidecar":
            await shell.run(enabling_policies(name))
            await use.start()
            gated = await use.gate()
            made = {kind.rpartition("/")[2] for kind, *_ in await every_object(api) - before}
            assert {"configmaps", "groupplacements", "clusterpodschedulingpolicies", "pods"} <= made
            assert ("leases" in made) == (name in SCHEDULERS or "service" in name)
            await shell.run(removing("Remove scheduling policies"))
            for each in gated:
                assert not (await api.request("GET", pod_path(each)))["spec"].get("schedulingGates")
                await api.delete(pod_path(each), grace=0)
            await asyncio.sleep(3)  # the leader repairs every two seconds what it may
        await use.stop()
        await shell.run(
            removing(REMOVE[name]).replace("overlays/service", f"overlays/{name}")
            if "service" in name
            else removing(REMOVE[name])
        )
        async with asyncio.timeout(PATIENCE):
            while left := await every_object(api) - before:
                if not {kind for kind, *_ in left} <= {"/api/v1/pods", "/apis/apps/v1/replicasets"}:
                    break  # only these are collected in the background
                await asyncio.sleep(0.2)
        assert left == set()
        assert before - await every_object(api) == set()
