"""Overlays on a real control plane: each keeps its permissions when another one follows, and its scheduler starts."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import pytest

from tests.deploy.building import DEPLOY, OVERLAYS, of_kind, overlay, overlay_with
from tests.deploy.reading import blocks
from tests.e2e.cluster import Cluster, eventually_ready, served
from tests.e2e.granting import kubeconfig_of_account
from tests.e2e.overlays import (
    eventually_granted,
    extender_of,
    granted_by,
    installed,
    known,
    kubectl,
    may,
    missing,
    namespace_first,
    place_apart,
)
from tests.e2e.programs import our_command
from tests.e2e.serving import Extender
from tests.programs import tool

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

BUDGET = "poddisruptionbudget.policy/placement-extender"
VERSIONS = "custom-columns=KIND:.kind,NAME:.metadata.name,VERSION:.metadata.resourceVersion"


@pytest.mark.parametrize(("first", "second"), list(permutations(OVERLAYS, 2)))
async def test_an_overlay_keeps_its_permissions_when_another_one_is_applied_after_it(
    cluster: Cluster, first: str, second: str
) -> None:
    api = cluster.api
    await kubectl(cluster, "apply", documents=known(first))
    await kubectl(cluster, "apply", documents=known(second))
    try:
        for name in (first, second):
            await eventually_granted(api, name)
            assert not await may(api, extender_of(name), "", "pods/binding", "create"), "kube-scheduler's own"
            assert not await may(api, extender_of(name), "", "secrets", "get")
        if "second-scheduler" in (first, second):
            account = "system:serviceaccount:kube-system:placement-scheduler"
            assert await may(api, account, "", "pods/binding", "create")
        await kubectl(cluster, "delete", "--wait=false", documents=known(second))
        if {first, second} != {"service", "service-cert-manager"}:  # the same one, with certificates from elsewhere
            assert await missing(api, extender_of(first), granted_by(first)) == set()
    finally:
        both = [*known(first), *known(second)]
        await kubectl(cluster, "delete", "--wait=false", "--ignore-not-found", documents=both)


@pytest.mark.parametrize("name", OVERLAYS)
async def test_what_is_applied_again_is_unchanged(cluster: Cluster, name: str) -> None:
    documents = namespace_first(overlay_with("policies", name, "bind", "kubectl"))
    await kubectl(cluster, "apply", documents=documents)
    try:
        versions = await kubectl(cluster, "get", "-o", VERSIONS, documents=documents)
        said = await kubectl(cluster, "apply", documents=documents)
        again = [line for line in said.splitlines() if not line.endswith(" unchanged")]
        # kubectl prints this for every budget: its selector has the patch strategy "replace", so it is in each patch.
        assert again == [f"{BUDGET} configured" for each in documents if each["kind"] == "PodDisruptionBudget"]
        assert await kubectl(cluster, "get", "-o", VERSIONS, documents=documents) == versions, "nothing was written"
    finally:
        await kubectl(cluster, "delete", "--wait=false", "--ignore-not-found", documents=documents)


@pytest.mark.core("layouts")
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("sidecar", "kube-scheduler.yaml"),
        ("second-scheduler", "kube-scheduler.yaml"),
        ("service", "kube-scheduler.yaml"),
        ("schedulers", "placement-scheduler-1.yaml"),
    ],
)
async def test_with_the_configurations_and_accounts_of_an_overlay_a_real_scheduler_places_pods(
    cluster: Cluster, tmp_path: Path, name: str, file: str
) -> None:
    certificates, plane = tmp_path / "certificates", cluster.plane
    await asyncio.to_thread(subprocess.check_call, our_command("certs", "--out", str(certificates)))
    settings = installed(name, "extender.yaml", certificates, plane)
    document = installed(name, file, certificates, plane)
    profile, *_ = document.get("profiles", [{"schedulerName": "default-scheduler"}])
    documents = await served(cluster.api, known(name))
    await kubectl(cluster, "apply", documents=documents)
    try:
        kubeconfigs = {
            account["metadata"]["name"]: await kubeconfig_of_account(
                cluster.api, plane, tmp_path, account["metadata"]["name"], account["metadata"]["namespace"]
            )
            for account in of_kind(overlay(name), "ServiceAccount")
        }
        settings["logging"] = {"format": "text"}  # whose lines tell the tests the address
        if settings.get("leaderElection"):
            (deployment,) = of_kind(overlay(name), "Deployment")
            settings["leaderElection"]["leaseNamespace"] = deployment["metadata"]["namespace"]  # in a pod its own
            # The scheduler asks this process; test_rollout.py has the Service.
            del settings["leaderElection"]["service"]
        kubeconfig = kubeconfigs.get("placement-extender", plane.extender_kubeconfig)
        settings["kube"] = {"kubeconfig": str(kubeconfig)}
        with Extender(tmp_path, kubeconfig, settings, certificates / "ca.crt") as extender:
            await eventually_ready(extender)
            document["extenders"][0]["urlPrefix"] = extender.url
            if "clientConnection" not in document:  # in a pod the token of its account
                document["clientConnection"] = {"kubeconfig": str(kubeconfigs["placement-scheduler"])}
            own = kubeconfigs.get("placement-scheduler", plane.kubeconfig)
            flags = [f"--{what}-kubeconfig={own}" for what in ("authentication", "authorization")]
            await place_apart(cluster, document, profile["schedulerName"], *flags)
    finally:
        plane.scheduler.stop()
        await kubectl(cluster, "delete", "--wait=false", documents=documents)
    assert "forbidden" not in plane.scheduler.log()


@pytest.mark.parametrize(
    ("title", "name", "namespace"),
    [
        ("Second scheduler", "second-scheduler", "kube-system"),
        ("Service", "service", "placement-extender"),
        ("Several schedulers", "schedulers", "placement-shared"),
    ],
)
async def test_the_commands_of_the_readme_install_everything_that_the_pods_mount(
    cluster: Cluster, tmp_path: Path, title: str, name: str, namespace: str
) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    lines = blocks(title)[0].splitlines(keepends=True)
    commands = "".join(line for line in lines if "rollout status" not in line)  # nothing makes pods of it here
    environment = {
        **os.environ,
        "KUBECONFIG": str(cluster.plane.kubeconfig),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    command = [tool("bash"), "-euo", "pipefail", "-c", commands]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        (deployment,) = of_kind(overlay(name), "Deployment")
        volumes = [
            volume["secret"] for volume in deployment["spec"]["template"]["spec"]["volumes"] if "secret" in volume
        ]
        assert volumes
        for volume in volumes:
            path = f"/api/v1/namespaces/{namespace}/secrets/{volume['secretName']}"
            secret = await cluster.api.request("GET", path)
            if secret["type"] == "Opaque":  # the other is filled in by the control plane
                assert set(secret["data"]) == {"tls.crt", "tls.key", "ca.crt"}
                await cluster.api.delete(path)
    finally:
        await kubectl(cluster, "delete", "--wait=false", "--ignore-not-found", documents=known(name))
