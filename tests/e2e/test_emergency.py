"""The commands of deploy/docs/emergency.md and upgrade.md, as printed, on overlays that are in use, and a release of the chart."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
import yaml

from extender.simulator.json_objects import JsonObject, name_of
from tests.deploy.reading import blocks
from tests.e2e import controllers
from tests.e2e.client import pod_path
from tests.e2e.cluster import Cluster
from tests.e2e.controllers import PROGRAM, controlled
from tests.e2e.granting import kubeconfig_of_account
from tests.e2e.overlays import extender_of, installed, may, place_apart
from tests.e2e.policing import MUTATING, VALIDATING, without_crds
from tests.e2e.programs import free_ports, our_command
from tests.e2e.removal import INSTALL, NAMESPACES, REMOVE, Shell, Use, commands, enabling_policies, removing
from tests.fakes import PATIENCE
from tests.simulator.plain import pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

CONTROLLERS: Final = ("namespace-controller", "garbage-collector-controller", "serviceaccount-token-controller")
PODS: Final = "/api/v1/namespaces/default/pods"
WITHOUT: Final = {
    "second-scheduler": "The second scheduler without the extender",
    "schedulers": "Several schedulers without the extender",
}
AGAIN: Final = {"second-scheduler": "The second scheduler asks again", "schedulers": "Several schedulers ask again"}
WORKLOAD: Final = {"second-scheduler": "deployments", "schedulers": "statefulsets"}
NAME: Final = {"second-scheduler": "placement-scheduler", "schedulers": "placement-scheduler-2"}


@dataclass
class Installation:
    """An overlay that was installed by the commands of the documents."""

    cluster: Cluster
    name: str
    shell: Shell
    namespace: str
    folder: Path
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def workload(self, plural: str = "", name: str = "placement-scheduler") -> JsonObject:
        path = f"/apis/apps/v1/namespaces/{self.namespace}/{plural or WORKLOAD[self.name]}/{name}"
        return await self.cluster.api.request("GET", path)

    async def file(self, mounted: JsonObject, name: str) -> JsonObject:
        """The scheduler's configuration that the pods of a template read."""
        (container,) = [one for one in mounted["spec"]["containers"] if one["name"] == "kube-scheduler"]
        mounts = [one for one in container["volumeMounts"] if one["mountPath"] == "/etc/placement-extender"]
        (volume,) = [one for one in mounted["spec"]["volumes"] if one["name"] == mounts[0]["name"]]
        path = f"/api/v1/namespaces/{self.namespace}/configmaps/{volume['configMap']['name']}"
        document: JsonObject = yaml.safe_load((await self.cluster.api.request("GET", path))["data"][name])
        return document

    async def place_apart(self, document: JsonObject) -> None:
        """With the scheduler's own account, as in its pod."""
        own = await kubeconfig_of_account(
            self.cluster.api, self.cluster.plane, self.folder, "placement-scheduler", self.namespace
        )
        document["clientConnection"] = {"kubeconfig": str(own)}
        flags = [f"--{what}-kubeconfig={own}" for what in ("authentication", "authorization")]
        self.stack.callback(self.cluster.plane.scheduler.stop)
        await place_apart(self.cluster, document, NAME[self.name], *flags)


@asynccontextmanager
async def installation(cluster: Cluster, assets: Path, folder: Path, name: str) -> AsyncIterator[Installation]:
    """Removed at the end, by the commands of the documents."""
    if not controllers.is_there(assets):
        pytest.skip(f"{PROGRAM} is not in {assets}: NOTHING IS KNOWN of the pods that controllers make")
    namespace = NAMESPACES.get(name, "placement-extender")
    shell = Shell(cluster, folder, NAMESPACE=namespace)
    async with controlled(cluster, assets, *CONTROLLERS):
        await without_crds(cluster.api)
        await shell.run(commands("The image"))
        await shell.run(commands(*INSTALL[name]))
        found = Installation(cluster, name, shell, namespace, folder)
        try:
            async with found.stack:
                yield found
        finally:
            await shell.run(removing(REMOVE[name]))


async def refused(cluster: Cluster, number: int) -> bool:
    """Whether a pod cannot be created because no replica answers the webhook."""
    answer = await cluster.api.request("POST", PODS, pod(f"tried-{number}"), allow=[500])
    return "failed calling webhook" in answer.get("message", "")


@pytest.mark.parametrize("name", WITHOUT)
async def test_pods_are_placed_without_the_extender_and_by_it_again(
    cluster: Cluster, assets: Path, tmp_path: Path, name: str
) -> None:
    """In offload mode: webhook, scheduler, gates, extender. The extender is dead, and the webhook fails closed."""
    async with installation(cluster, assets, tmp_path, name) as found:
        api, shell = cluster.api, found.shell
        await shell.run(enabling_policies(name))
        use = Use(cluster, name, tmp_path, failure_policy="Fail")
        found.stack.push_async_callback(use.stop)
        before = (await found.workload())["spec"]
        await use.start()
        gated = await use.gate()
        await use.stop()
        assert await refused(cluster, 0)

        await shell.run(commands("1. The webhook"))
        async with asyncio.timeout(PATIENCE):
            number = 1
            while await refused(cluster, number):  # the API server learns of it by a watch
                number += 1
                await asyncio.sleep(0.1)

        await shell.run("".join(blocks(WITHOUT[name])))
        changed = (await found.workload())["spec"]
        assert [one["name"] for one in changed["template"]["spec"]["containers"]] == ["kube-scheduler"]
        assert [one["name"] for one in changed["template"]["spec"]["volumes"] if "secret" in one] == []
        file = "kube-scheduler.yaml" if name == "second-scheduler" else "placement-scheduler-0.yaml"
        document = await found.file(changed["template"], file)
        profiles = {one["schedulerName"] for one in (await found.file(before["template"], file))["profiles"]}
        assert profiles <= {one["schedulerName"] for one in document["profiles"]}
        assert "extenders" not in document
        await found.place_apart(document)

        await shell.run(commands("4. Pods at a gate"))
        for each in gated:
            assert not (await api.request("GET", pod_path(each)))["spec"].get("schedulingGates")
        if name == "schedulers":
            await shell.run(commands("5. The extender"))
            assert (await found.workload("deployments", "placement-extender"))["spec"]["replicas"] == 0
            await shell.run(commands("The extender answers again"))
            assert (await found.workload("deployments", "placement-extender"))["spec"]["replicas"] == 2

        await shell.run(commands(AGAIN[name]))
        after = (await found.workload())["spec"]
        assert (after["template"], after["replicas"]) == (before["template"], before["replicas"])
        await shell.run(f"kubectl apply -k deploy/overlays/{name}")
        for path in (MUTATING, VALIDATING):
            assert await api.request("GET", path)


async def test_in_augment_mode_the_extender_goes_first_and_the_scheduler_places_without_it(
    cluster: Cluster, assets: Path, tmp_path: Path
) -> None:
    async with installation(cluster, assets, tmp_path, "service") as found:
        use = Use(cluster, "service", tmp_path)
        (replica, *_) = await use.pods()
        await use.publish(replica)
        await found.shell.run(commands("5. The extender"))
        assert (await found.workload("deployments", "placement-extender"))["spec"]["replicas"] == 0
        slices = f"/apis/discovery.k8s.io/v1/namespaces/{found.namespace}/endpointslices"
        assert "placement-extender-leader" not in map(name_of, (await cluster.api.list(slices))[0])

        certificates = tmp_path / "certs"
        await asyncio.to_thread(subprocess.check_call, our_command("certs", "--out", str(certificates)))
        document = installed("service", "kube-scheduler.yaml", certificates, cluster.plane)
        (port,) = free_ports(1)
        document["extenders"][0]["urlPrefix"] = f"https://127.0.0.1:{port}"
        found.stack.callback(cluster.plane.scheduler.stop)
        await place_apart(cluster, document, "default-scheduler")

        await found.shell.run(commands("The extender answers again"))
        assert (await found.workload("deployments", "placement-extender"))["spec"]["replicas"] == 2


@pytest.mark.parametrize("name", ["service", "schedulers"])  # the accounts in kube-system have roles of these tests too
async def test_its_writes_end_with_one_command_and_come_back_with_the_overlay(
    cluster: Cluster, assets: Path, tmp_path: Path, name: str
) -> None:
    async with installation(cluster, assets, tmp_path, name) as found:
        user = extender_of(name)

        async def becomes(*, allowed: bool) -> None:
            async with asyncio.timeout(PATIENCE):
                while await may(cluster.api, user, "", "pods", "delete") is not allowed:  # noqa: ASYNC110 -- no event across processes
                    await asyncio.sleep(0.05)

        await becomes(allowed=True)
        await found.shell.run(commands("2. Its writes"))
        await becomes(allowed=False)
        assert await may(cluster.api, user, "", "pods", "watch"), "it still answers"
        await found.shell.run(f"kubectl apply -k deploy/overlays/{name}")
        await becomes(allowed=True)


ROLL_BACK: Final = {
    "second-scheduler": (1, "deployments", "placement-scheduler"),
    "service": (2, "deployments", "placement-extender"),
    "schedulers": (3, "deployments", "placement-extender"),
}


@pytest.mark.parametrize("name", ROLL_BACK)
async def test_the_commands_for_a_rollback_restore_the_pods_of_before(
    cluster: Cluster, assets: Path, tmp_path: Path, name: str
) -> None:
    number, plural, workload = ROLL_BACK[name]
    async with installation(cluster, assets, tmp_path, name) as found:
        before = (await found.workload(plural, workload))["spec"]["template"]
        schedulers = (await found.workload())["spec"]["template"] if name == "schedulers" else None
        kustomization = tmp_path / "deploy" / "overlays" / name / "kustomization.yaml"
        text = kustomization.read_text("utf-8")
        kustomization.write_text(text.replace("a" * 64, "b" * 64), "utf-8")
        settings = kustomization.parent / "extender.yaml"
        settings.write_text(settings.read_text("utf-8").replace("format: json", "format: text"), "utf-8")
        if name == "schedulers":  # whose schedulers have a newer image too
            text = kustomization.read_text("utf-8")
            kustomization.write_text(re.sub(r"newTag: \S+", "newTag: v1.99.9", text), "utf-8")
        await found.shell.run(f"kubectl apply -k deploy/overlays/{name}")
        assert (await found.workload(plural, workload))["spec"]["template"] != before
        await found.shell.run(commands("Rolling back", number))
        assert (await found.workload(plural, workload))["spec"]["template"] == before
        if name == "schedulers":
            assert (await found.workload())["spec"]["template"] != schedulers
            await found.shell.run(commands("Rolling back", number + 1))
            assert (await found.workload())["spec"]["template"] == schedulers


async def test_costs_of_deletion_that_no_leader_removes_are_removed_by_a_command(
    cluster: Cluster, tmp_path: Path
) -> None:
    cost, mark = "controller.kubernetes.io/pod-deletion-cost", "placement.extender.dev/deletion-cost"
    given = {"ours": {cost: "-2", mark: "-2", "kept": "yes"}, "theirs": {cost: "7"}}
    pods = [pod(name) for name in given]
    for each in pods:
        each["metadata"]["annotations"] = given[name_of(each)]
    await cluster.api.create(*pods)
    await Shell(cluster, tmp_path).run(commands("What a newer version leaves"))
    left = {name_of(each): each["metadata"].get("annotations") for each in (await cluster.api.list(PODS))[0]}
    assert left == {"ours": {"kept": "yes"}, "theirs": {cost: "7"}}


async def test_the_commands_of_helm_run_as_printed(cluster: Cluster, tmp_path: Path) -> None:
    """Installed, changed, rolled back, mended after the webhook was deleted in an emergency, and removed."""
    shell = Shell(cluster, tmp_path)
    await without_crds(cluster.api)
    await shell.run(commands("With Helm"))
    try:
        await shell.run(commands("Scheduling policies"))
        assert await cluster.api.request("GET", MUTATING)
        await shell.run(commands("1. The webhook"))
        assert (await cluster.api.request("GET", MUTATING, allow=[404]))["kind"] == "Status"
        (again,) = re.findall(r"helm upgrade .*", commands("Scheduling policies"))
        await shell.run(again)
        assert await cluster.api.request("GET", MUTATING)
        assert "superseded" in await shell.run(commands("Rolling back"))
    finally:
        await shell.run(commands("Remove a release of the chart"))
        await shell.run("kubectl delete --ignore-not-found -f deploy/policies/crds.yaml")
        await shell.run("kubectl delete namespace placement --wait=false")
