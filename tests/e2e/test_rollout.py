"""The service overlay as a real Deployment whose pods run as processes: it is complete, and replacing its pods fails no call.

kube-controller-manager replaces the pods; `kubelet` runs them, and `forwarding` is what nodes know of the two Services. Meanwhile
pods are created through the webhook, with failurePolicy Fail, and placed by a scheduler that asks the leader, with `ignorable: false`.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from extender.simulator.json_objects import JsonObject, name_of
from tests.deploy.building import DEPLOY, built
from tests.deploy.policies.examples import policy
from tests.e2e import controllers
from tests.e2e.cluster import Cluster
from tests.e2e.controllers import PROGRAM, controlled
from tests.e2e.forwarding import Service
from tests.e2e.kubelet import Kubelet, host_of
from tests.e2e.overlays import installed, kubectl
from tests.e2e.policing import MUTATING, NAMESPACE, SECRET, VALIDATING, established, without_policies
from tests.e2e.programs import our_command
from tests.e2e.rolled_out_service import (
    CREATIONS,
    DEPLOYMENT,
    LEASE,
    SELECTOR,
    Creating,
    Installed,
    applied,
    failed_attempts,
    failed_calls,
)
from tests.fakes import PATIENCE
from tests.simulator.plain import ZONE, pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def service_overlay(folder: Path) -> list[JsonObject]:
    """The service overlay with policies, in the namespace that processes outside of a pod are in."""
    shutil.copytree(DEPLOY, folder / "deploy")
    file = folder / "deploy" / "overlays" / "service" / "kustomization.yaml"
    text = file.read_text("utf-8").replace("namespace: placement-extender", f"namespace: {NAMESPACE}")
    file.write_text(f"{text}components: [../../policies]\n", "utf-8")
    left_out = {"Namespace", "CustomResourceDefinition", "NetworkPolicy"}
    return [each for each in built(file.parent) if each["kind"] not in left_out]


@pytest.fixture
async def service(cluster: Cluster, assets: Path, tmp_path: Path) -> AsyncIterator[Installed]:
    """The overlay, installed and complete."""
    if not controllers.is_there(assets):
        pytest.skip(f"{PROGRAM} is not in {assets}: NOTHING IS KNOWN of rollouts with the real controllers")
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(overlay_running(cluster, assets, tmp_path))


@asynccontextmanager
async def overlay_running(cluster: Cluster, assets: Path, folder: Path) -> AsyncIterator[Installed]:
    """The overlay, installed in a cluster of two zones and complete, and a scheduler that asks it."""
    api, certificates = cluster.api, folder / "certificates"
    await asyncio.to_thread(
        subprocess.check_call, our_command("certs", "--out", str(certificates), "--names", "127.0.0.1")
    )
    documents = await asyncio.to_thread(service_overlay, folder)
    async with AsyncExitStack() as stack:
        for made in (LEASE, MUTATING, VALIDATING, SECRET):  # last: a replica that runs would make them again
            stack.push_async_callback(api.delete, made)
        await established(api)
        stack.push_async_callback(without_policies, api)
        scheduling = Service(api, "placement-extender", host_of)
        admission = Service(api, "placement-extender-webhook", host_of)
        for each in (scheduling, admission):
            await stack.enter_async_context(each.listening())
        settings = installed("service", "extender.yaml", certificates, cluster.plane)
        settings |= {"kube": {"kubeconfig": str(cluster.plane.extender_kubeconfig)}, "logging": {"format": "text"}}
        webhook = {"url": admission.url, "failurePolicy": "Fail"}
        settings["policies"] = {"enabled": True, "webhook": webhook}
        cluster.board.left_alone = "placement-extender"  # these pods have a kubelet that waits for their processes
        kubelet = Kubelet(api, SELECTOR, NAMESPACE, settings, folder)
        await kubectl(cluster, "apply", documents=documents)
        without = ("delete", "--wait=false", "--ignore-not-found")
        stack.push_async_callback(kubectl, cluster, *without, documents=documents)
        await stack.enter_async_context(kubelet.following())
        await stack.enter_async_context(controlled(cluster, assets))
        found = Installed(cluster, kubelet, scheduling, admission)
        await found.rolled_out()
        await found.leader()
        await admission.has(2)
        document = installed("service", "kube-scheduler.yaml", certificates, cluster.plane)
        document["extenders"][0] |= {"urlPrefix": scheduling.url, "ignorable": False}
        stack.callback(cluster.plane.scheduler.stop)
        await asyncio.to_thread(cluster.plane.start_scheduler, document)
        await cluster.add_nodes(zones=2, per_zone=8, cpu="64")  # 110 pods on each at most
        yield found


async def test_the_deployment_is_complete_while_one_replica_leads_and_one_stands_by(service: Installed) -> None:
    assert "successfully rolled out" in await service.rolled_out()
    status = (await service.api.request("GET", DEPLOYMENT))["status"]
    assert (status["readyReplicas"], status["availableReplicas"]) == (2, 2)
    assert len(service.scheduling.endpoints) == 1
    assert len(service.admission.endpoints) == 2


async def test_no_creation_and_no_call_of_the_scheduler_fails_while_every_replica_is_replaced_twice(
    service: Installed,
) -> None:
    cluster, creating = service.cluster, Creating(service.api)
    await service.api.create(policy("PodSchedulingPolicy", nodeSelector={ZONE: "z1"}))
    first = set(service.kubelet.running)
    await applied(service.api)
    running = asyncio.create_task(creating.run())
    for _ in range(2):
        assert "successfully rolled out" in await service.restart()
    creating.is_over = True
    await running
    await cluster.board.bound(*creating.made, within=120)
    print(f"{len(creating.made)} creations, {len(service.scheduling.uses)} leaders")  # noqa: T201 -- shown by -s
    assert creating.problems == []
    assert len(creating.made) >= CREATIONS
    assert [name_of(each) for each in creating.made if each["spec"]["nodeSelector"] != {ZONE: "z1"}] == []
    assert failed_calls(cluster) == []
    assert await failed_attempts(service.api, creating.made) == []
    assert len(service.scheduling.uses) > 1, "the leader was replaced"
    assert (service.scheduling.refused, service.admission.refused) == (0, 0)
    assert len(service.kubelet.running) == len(first) + 4
    assert service.kubelet.ended >= 3, "they ended in order, the last one maybe a moment later"
    assert await cluster.faults() == []


async def test_calls_reach_the_next_leader_after_the_leader_was_killed_though_its_pod_stays(service: Installed) -> None:
    loop, (host, _) = asyncio.get_running_loop(), await service.leader()
    service.kubelet.of_address(host).program.kill()
    killed = loop.time()
    async with asyncio.timeout(PATIENCE * 2):
        while service.scheduling.endpoints[0][0] == host:  # noqa: ASYNC110 -- there is no event across processes
            await asyncio.sleep(0.02)
    print(f"nodes know the next leader after {loop.time() - killed:.1f} s")  # noqa: T201 -- as above
    # In an exempt namespace: the webhook's endpoint of a dead container stays until it starts again.
    pods = [pod(f"after-{number}", NAMESPACE, cpu="1m") for number in range(5)]
    await service.api.create(*pods)
    await service.cluster.board.bound(*pods)
    assert len(service.scheduling.endpoints) == 1, "the endpoint of the dead one is gone"
