"""The Helm chart on a real control plane: installed, changed, rolled back and uninstalled, and a scheduler that places pods with it."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.simulator.json_objects import JsonObject
from tests.deploy.building import of_kind, rules
from tests.deploy.charting import CHART, LAYOUTS, NAMESPACES, chart, helm
from tests.e2e.cluster import Cluster, eventually_ready, every_object
from tests.e2e.granting import kubeconfig_of_account
from tests.e2e.overlays import missing, place_apart
from tests.e2e.policing import without_crds
from tests.e2e.programs import our_command
from tests.e2e.serving import Extender
from tests.fakes import PATIENCE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

RELEASE = "tried"
ACCOUNT = "placement-extender-certificates"
PLACES = {"/etc/placement-extender-tls": "tls", "/etc/placement-extender-client": "scheduler"}


class Release:
    """A release of the chart, in the namespace of its overlay or another one."""

    def __init__(self, cluster: Cluster, layout: str, namespace: str = "") -> None:
        self.api, self._plane, self.layout = cluster.api, cluster.plane, layout
        self.namespace = namespace or NAMESPACES[layout]

    async def helm(self, command: str, *arguments: str, **values: Any) -> str:
        """What helm prints of it."""
        where = [f"--kubeconfig={self._plane.kubeconfig}", f"--namespace={self.namespace}"]
        given = {"layout": self.layout, **values} if command in {"install", "upgrade"} else None
        folder = [] if given is None else [str(CHART)]
        return await asyncio.to_thread(helm, command, RELEASE, *folder, *arguments, *where, values=given)

    async def certificates(self, folder: Path) -> str:
        """What the Job of the release prints, run here under its account."""
        account = await kubeconfig_of_account(self.api, self._plane, folder, ACCOUNT, self.namespace)
        token = ["--token"] if self.layout == "secondScheduler" else []
        command = our_command(
            "certs", "--secrets", self.namespace, "--days", "90", *token, "--kubeconfig", str(account)
        )
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def find(self, kind: str, name: str) -> JsonObject:
        """An object of the release."""
        return await self.api.request("GET", f"/{kind.replace('*', f'namespaces/{self.namespace}')}/{name}")


async def settled(cluster: Cluster, before: set[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
    """What is there beside what was there; the API server deletes some objects a little later."""
    for _ in range(50):
        if not await every_object(cluster.api) - before:
            break
        await asyncio.sleep(0.2)
    return await every_object(cluster.api) - before


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_release_is_installed_changed_rolled_back_and_leaves_nothing(
    cluster: Cluster, tmp_path: Path, layout: str
) -> None:
    release = Release(cluster, layout)
    deployment = "placement-scheduler" if layout == "secondScheduler" else "placement-extender"
    if release.namespace != "kube-system":
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": release.namespace}}
        await cluster.api.request("POST", "/api/v1/namespaces", namespace, allow=[409])
    await without_crds(cluster.api)  # helm refuses objects that another installation has made
    before = await every_object(cluster.api)
    await release.helm("install")
    try:
        user = f"system:serviceaccount:{release.namespace}:placement-extender"
        granted = set(rules([one for one in chart(layout) if "extender-" in one["metadata"]["name"]], "ClusterRole"))
        async with asyncio.timeout(PATIENCE):
            while await missing(cluster.api, user, granted):  # noqa: ASYNC110 -- no event across processes
                await asyncio.sleep(0.05)
        assert "placement-extender-admin: written" in await release.certificates(tmp_path)
        secret = await release.find("api/v1/*/secrets", "placement-extender-tls")

        changed: JsonObject = {"replicas": 3, "policies": {"enabled": True}, "crds": {"keep": False}}
        await release.helm("upgrade", **changed)
        found = await release.find("apis/apps/v1/*/deployments", deployment)
        assert found["spec"]["replicas"] == 3
        assert await release.find(
            "apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", "placement-extender"
        )
        kept = await release.find("api/v1/*/secrets", "placement-extender-tls")
        assert kept["data"] == secret["data"], "an upgrade keeps the certificates"
        wanted = "Secret placement-extender-token: written" if layout == "secondScheduler" else "no certificate is due"
        assert await release.certificates(tmp_path) == f"{wanted}\n"

        await release.helm("upgrade", **changed)
        again = await release.find("apis/apps/v1/*/deployments", deployment)
        assert again["metadata"]["generation"] == found["metadata"]["generation"], "the same values change nothing"

        await release.helm("rollback", "1")
        back = await release.find("apis/apps/v1/*/deployments", deployment)
        assert back["spec"]["replicas"] == 2
        assert (await release.find("api/v1/*/secrets", "placement-extender-tls"))["data"] == secret["data"]
    finally:
        await release.helm("uninstall")
    assert await settled(cluster, before) == set()


async def test_with_the_files_of_a_release_a_scheduler_places_pods_and_doctor_finds_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    release = Release(cluster, "secondScheduler")
    plane = cluster.plane
    await release.helm("install")
    try:
        await release.certificates(tmp_path)
        (config,) = of_kind(chart("secondScheduler"), "ConfigMap")
        texts = dict(config["data"])
        for place, part in PLACES.items():
            secret = await release.find("api/v1/*/secrets", f"placement-extender-{part}")
            folder = write(tmp_path / part, secret)
            texts = {file: text.replace(place, str(folder)) for file, text in texts.items()}
        admin = write(tmp_path / "admin", await release.find("api/v1/*/secrets", "placement-extender-admin"))
        settings, document = (yaml.safe_load(texts[file]) for file in ("extender.yaml", "kube-scheduler.yaml"))
        settings["logging"] = {"format": "text"}  # whose lines tell the tests the address
        accounts = {
            name: await kubeconfig_of_account(cluster.api, plane, tmp_path, name, release.namespace)
            for name in ("placement-extender", "placement-scheduler")
        }
        token = await release.find("api/v1/*/secrets", "placement-extender-token")
        given = yaml.safe_load(plane.kubeconfig.read_text("utf-8"))
        given["users"][0]["user"] = {"token": base64.b64decode(token["data"]["token"]).decode()}
        accounts["placement-extender"].write_text(json.dumps(given), "utf-8")
        settings["kube"] = {"kubeconfig": str(accounts["placement-extender"])}
        with Extender(tmp_path, accounts["placement-extender"], settings, admin / "ca.crt") as extender:
            await eventually_ready(extender)
            document["extenders"][0]["urlPrefix"] = extender.url
            own = accounts["placement-scheduler"]
            document["clientConnection"] = {"kubeconfig": str(own)}
            flags = [f"--{what}-kubeconfig={own}" for what in ("authentication", "authorization")]
            await place_apart(cluster, document, "placement-scheduler", *flags)
            file = tmp_path / "kube-scheduler.yaml"
            file.write_text(json.dumps(document), "utf-8")
            trust = [f"--ca-file={admin}/ca.crt", f"--cert-file={admin}/tls.crt", f"--key-file={admin}/tls.key"]
            account = f"--as=system:serviceaccount:{release.namespace}:placement-extender"
            command = our_command("doctor", "--url", extender.url, "--scheduler-config", str(file), *trust, account)
            kubeconfig = ["--kubeconfig", str(plane.kubeconfig)]
            done = await asyncio.to_thread(
                subprocess.run, [*command, *kubeconfig], capture_output=True, text=True, check=False
            )
            assert "0 errors, 0 warnings" in done.stdout, done.stdout + done.stderr
    finally:
        plane.scheduler.stop()
        await release.helm("uninstall")


def write(folder: Path, secret: JsonObject) -> Path:
    """The files of a Secret, as the kubelet mounts them."""
    folder.mkdir()
    for key, text in secret["data"].items():
        (folder / key).write_bytes(base64.b64decode(text))
        (folder / key).chmod(0o600)
    return folder
