"""What a GitOps tool sees of the chart on a real API server, after the service has written what it writes: nothing to change."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.simulator.json_objects import JsonObject
from extender.wire.webhook_configurations import REQUIRED_ANNOTATION
from tests.deploy.building import of_kind
from tests.deploy.charting import chart
from tests.e2e.client import NAMESPACES
from tests.e2e.cluster import Cluster, eventually_ready
from tests.e2e.granting import kubeconfig_of_account
from tests.e2e.overlays import kubectl
from tests.e2e.policing import MUTATING, established, without_crds
from tests.e2e.programs import free_ports
from tests.e2e.serving import Extender
from tests.e2e.test_chart import Release, write
from tests.fakes import PATIENCE
from tests.programs import tool

# In kube-system the leader changes the selector of the mutating webhook, as the page says.
NAMESPACE = "placement"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/placement-extender-webhook"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

# How Argo CD and Flux apply: by the last applied annotation, or by field managers.
APPLIES = {"client-side": [], "server-side": ["--server-side", "--force-conflicts", "--field-manager=gitops"]}


@asynccontextmanager
async def applied(cluster: Cluster, folder: Path, documents: list[JsonObject], *flags: str) -> AsyncIterator[None]:
    """The objects of the chart, and what its Job and its service write beside them."""
    release = Release(cluster, "secondScheduler", NAMESPACE)
    await cluster.api.request("POST", NAMESPACES, {"metadata": {"name": NAMESPACE}}, allow=[409])
    await without_crds(cluster.api)
    await kubectl(cluster, "apply", *flags, documents=documents)
    try:
        await established(cluster.api)
        await release.certificates(folder)
        (config,) = of_kind(documents, "ConfigMap")
        admin = write(folder / "tls", await release.find("api/v1/*/secrets", "placement-extender-tls"))
        text = config["data"]["extender.yaml"].replace("/etc/placement-extender-tls", str(admin))
        (port,) = free_ports(1)
        webhook = {"serviceNamespace": release.namespace, "bindAddress": f"127.0.0.1:{port}"}
        settings = yaml.safe_load(text)
        settings["policies"]["webhook"] |= webhook
        exempt = settings["policies"].get("exemptNamespaces", ["kube-system"])
        settings["policies"]["exemptNamespaces"] = [*exempt, release.namespace]  # which a pod adds by itself
        settings["logging"] = {"format": "text"}
        del settings["server"]["tls"]["clientCAFile"], settings["server"]["tls"]["clients"]
        account = await kubeconfig_of_account(
            cluster.api, cluster.plane, folder, "placement-extender", release.namespace
        )
        with Extender(folder, account, settings, admin / "ca.crt") as extender:
            await eventually_ready(extender)
            async with asyncio.timeout(PATIENCE):
                while await extender.metric("extender_webhook_configuration_correct") < 2:  # noqa: ASYNC110 -- no event across processes
                    await asyncio.sleep(0.05)
            yield
    finally:
        await kubectl(cluster, "delete", "--wait=false", "--ignore-not-found", documents=documents)


async def drift(cluster: Cluster, documents: list[JsonObject], *flags: str) -> str:
    """The lines that another apply would change, as `kubectl diff` prints them."""
    command = [tool("kubectl"), f"--kubeconfig={cluster.plane.kubeconfig}", "diff", *flags, "-f", "-"]
    text = yaml.safe_dump_all(documents)
    done = await asyncio.to_thread(subprocess.run, command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    return "".join(line for line in done.stdout.splitlines(keepends=True) if line.startswith(("+", "-")))


# Whatever changes the webhook configurations, which the leader keeps as its settings require.
POLICIES = {
    "templates": {"example.com/v1/Widget": "/spec/template", "jobset.x-k8s.io/v1alpha2/JobSet": "/spec/template"},
    "exemptNamespaces": ["kube-system", "monitoring"],
    "exemptions": {"labelIn": ["*"]},
}


@pytest.mark.parametrize("values", [{}, {"kupid": True, "config": POLICIES}], ids=["defaults", "settings"])
@pytest.mark.parametrize("flags", APPLIES.values(), ids=APPLIES)
async def test_nothing_drifts_after_what_the_job_and_the_leader_write(
    cluster: Cluster, tmp_path: Path, flags: list[str], values: dict[str, Any]
) -> None:
    policies = {"enabled": True, "kupid": values.get("kupid", False)}
    documents = chart(namespace=NAMESPACE, policies=policies, config={"policies": values.get("config", {})})
    async with applied(cluster, tmp_path, documents, *flags):
        found = await cluster.api.request("GET", MUTATING)
        assert found["webhooks"][0]["clientConfig"]["caBundle"], "the leader has written it"
        assert found["metadata"]["annotations"][REQUIRED_ANNOTATION]
        assert (await cluster.api.request("GET", SECRET))["data"], "and its certificate"
        assert await drift(cluster, documents, *flags) == ""
