"""Each overlay by the commands of deploy/docs: installed, used, removed."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from extender.simulator.json_objects import JsonObject, name_of, uid_of
from tests.deploy.building import DEPLOY
from tests.deploy.policies.examples import policy
from tests.deploy.reading import blocks
from tests.e2e.client import Api, pod_path
from tests.e2e.cluster import Cluster, eventually_ready
from tests.e2e.control_plane import HOST
from tests.e2e.granting import kubeconfig_of_account
from tests.e2e.overlays import installed
from tests.e2e.pod_groups import LABEL, PLACEMENTS, SIZE
from tests.e2e.policing import MUTATING, VALIDATING
from tests.e2e.programs import free_ports, our_command
from tests.e2e.serving import Extender
from tests.fakes import PATIENCE
from tests.programs import tool
from tests.simulator.plain import ZONE, pod

NAMESPACES: Final = {"sidecar": "kube-system", "second-scheduler": "kube-system", "schedulers": "placement-shared"}
INSTALL: Final = {
    "sidecar": ("Sidecar, with kubeadm", 0),
    "second-scheduler": ("Second scheduler", 0),
    "service": ("Service", 0),
    "service-cert-manager": ("Service", 1),
    "schedulers": ("Several schedulers", 0),
}
REMOVE: Final = {
    "sidecar": "Remove the sidecar",
    "second-scheduler": "Remove the second scheduler",
    "service": "Remove the service",
    "service-cert-manager": "Remove the service",
    "schedulers": "Remove several schedulers",
}
SCHEDULERS: Final = {"second-scheduler": "kube-scheduler.yaml", "schedulers": "placement-scheduler-0.yaml"}


async def printed_by(commands: str, folder: Path, environment: Mapping[str, str]) -> str:
    """What commands print in bash, in a folder. AssertionError where one fails."""
    command = [tool("bash"), "-euo", "pipefail", "-c", commands]
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
    return done.stdout


class Shell:
    """The commands of a user in a copy of the repository."""

    def __init__(self, cluster: Cluster, folder: Path, **variables: str) -> None:
        shutil.copytree(DEPLOY, folder / "deploy")
        folder.joinpath("digest").write_text(f"sha256:{'a' * 64}\n", "utf-8")
        self._folder = folder
        self._environment = {
            **os.environ,
            "KUBECONFIG": str(cluster.plane.kubeconfig),
            "REGISTRY": "registry.example.com/team",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            **variables,
        }

    async def run(self, commands: str) -> str:
        """What they print. AssertionError where one fails."""
        return await printed_by(commands, self._folder, self._environment)


def commands(title: str, number: int = 0) -> str:
    """A block of the documents without what waits for a kubelet or needs a registry."""
    lines = blocks(title)[number].splitlines(keepends=True)
    return "".join(line for line in lines if "rollout status" not in line and not line.startswith(("podman", "make")))


def removing(part: str) -> str:
    """The commands of a part of the section about removal."""
    return "".join(blocks(part))


def enabling_policies(name: str) -> str:
    """The commands that add policies to the service overlay, for another one."""
    found = commands("Scheduling policies", 1).replace("overlays/service", f"overlays/{name}")
    if name != "service-cert-manager":
        return found
    # Its configuration is that of the service.
    return found.replace("../../policies", "../../policies-cert-manager").replace(
        ">> extender", ">> ../service/extender"
    )


@asynccontextmanager
async def cert_manager(api: Api, shell: Shell) -> AsyncIterator[None]:
    """The two kinds of cert-manager that the overlays have."""
    folder = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    kinds = {"certificates": "Certificate", "issuers": "Issuer"}
    for plural, kind in kinds.items():
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        spec = {"group": "cert-manager.io", "scope": "Namespaced", "versions": [version]}
        metadata = {"name": f"{plural}.cert-manager.io"}
        names = {"plural": plural, "kind": kind}
        document = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata}
        await api.request("POST", folder, {**document, "spec": {**spec, "names": names}}, allow=[409])
    crds = " ".join(f"crd/{plural}.cert-manager.io" for plural in kinds)
    await shell.run(f"kubectl wait --for condition=established --timeout=60s {crds}")
    yield
    for plural in kinds:
        await api.delete(f"{folder}/{plural}.cert-manager.io")


def endpoint_slice(name: str, namespace: str, service: str, owners: list[JsonObject]) -> JsonObject:
    """As a replica writes it."""
    labels = {"kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "placement-extender"}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": owners},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.9.201.9"]}],
        "ports": [],
    }


class Use:
    """What runs in the pods of an overlay, as processes: it makes Leases, EndpointSlices, Secrets and decisions."""

    def __init__(self, cluster: Cluster, name: str, folder: Path, *, failure_policy: str = "Ignore") -> None:
        self.cluster, self.api, self.name = cluster, cluster.api, name
        self._failure_policy = failure_policy
        self.namespace = NAMESPACES.get(name, "placement-extender")
        self._folder = folder
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        """The extender as one of the pods, and the scheduler of the overlay, once both work."""
        cluster, name, certificates = self.cluster, self.name, self._folder / "certs"
        own = "service" if name == "service-cert-manager" else name
        settings = installed(own, "extender.yaml", certificates, cluster.plane)
        (pod_of, *_) = await self.pods()
        identity = {"POD_NAME": name_of(pod_of), "POD_UID": uid_of(pod_of), "POD_IP": "10.9.200.1"}
        if self.namespace != "kube-system":  # a process outside of a pod takes this one for its own
            identity = {}
            await self.publish(pod_of)
        (port,) = free_ports(1)
        webhook = {"url": f"https://{HOST}:{port}", "bindAddress": f"{HOST}:{port}", "serviceNamespace": self.namespace}
        webhook["failurePolicy"] = self._failure_policy
        if name == "service-cert-manager":
            await asyncio.to_thread(
                subprocess.check_call, our_command("certs", "--out", str(certificates), "--names", HOST)
            )
            pair = {"certFile": str(certificates / "server.crt"), "keyFile": str(certificates / "server.key")}
            webhook |= {"certificates": "cert-manager", **pair}
        settings["policies"] = {"enabled": True, "webhook": {**webhook, "drain": "100ms"}}
        settings["logging"] = {"format": "text"}
        if "leaderElection" in settings:
            settings["leaderElection"] |= {"leaseNamespace": self.namespace, "service": ""}
        account = await kubeconfig_of_account(
            self.api, cluster.plane, self._folder, "placement-extender", self.namespace
        )
        settings["kube"] = {"kubeconfig": str(account)}
        settings["server"].pop("tls", None)
        extender = self._stack.enter_context(Extender(self._folder, account, settings, environment=identity))
        await eventually_ready(extender)
        async with asyncio.timeout(PATIENCE):
            while await extender.metric("extender_webhook_configuration_correct") < 2:  # noqa: ASYNC110 -- no event across processes
                await asyncio.sleep(0.1)
        if name == "service-cert-manager":
            await self._inject(certificates / "ca.crt")
        if name in SCHEDULERS:
            document = installed(name, SCHEDULERS[name], certificates, cluster.plane)
            kubeconfig = await kubeconfig_of_account(
                self.api, cluster.plane, self._folder, "placement-scheduler", self.namespace
            )
            document["clientConnection"] = {"kubeconfig": str(kubeconfig)}
            document["extenders"] = []
            flags = [f"--{what}-kubeconfig={kubeconfig}" for what in ("authentication", "authorization")]
            self._stack.callback(cluster.plane.scheduler.stop)
            await asyncio.to_thread(cluster.plane.start_scheduler, document, *flags)

    async def _inject(self, authority: Path) -> None:
        """What cert-manager's injector writes into the webhook configurations."""
        bundle = b64encode(authority.read_bytes()).decode()  # noqa: ASYNC240 -- a small file
        for path in (MUTATING, VALIDATING):
            found = await self.api.request("GET", path)
            found["webhooks"][0]["clientConfig"]["caBundle"] = bundle
            await self.api.request("PUT", path, found)

    async def publish(self, of: JsonObject) -> None:
        """The slices of a replica that leads: that of the leader, and that of its webhook, which belongs to its pod."""
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name_of(of), "uid": uid_of(of)}
        for name, service, owners in (
            ("placement-extender-leader", "placement-extender", []),
            (f"placement-extender-webhook-{name_of(of)}", "placement-extender-webhook", [owner]),
        ):
            await self.api.create(endpoint_slice(name, self.namespace, service, owners))

    async def pods(self) -> list[JsonObject]:
        """Those that the controllers have made."""
        async with asyncio.timeout(PATIENCE):
            selector = "app.kubernetes.io/name=placement-extender,app.kubernetes.io/component=extender"
            path = f"/api/v1/namespaces/{self.namespace}/pods"
            while not (found := (await self.api.list(path, labelSelector=selector))[0]):  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0.1)
        return found

    async def gate(self) -> list[JsonObject]:
        """Two pods of a group of three, which wait at the gate, and a GroupPlacement."""
        block: dict[str, Any] = {"group": {"label": LABEL}, "size": {"label": SIZE}, "topology": [ZONE]}
        selector = {"matchExpressions": [{"key": LABEL, "operator": "Exists"}]}
        spec = {"podSelector": selector, "namespaceSelector": {}, "when": ["Release"], "release": block}
        await self.api.create(policy("ClusterPodSchedulingPolicy", "gangs", **spec))
        async with asyncio.timeout(PATIENCE):
            number, gated = 0, list[JsonObject]()
            while len(gated) < 2:
                wanted = pod(f"member-{number}", labels={LABEL: "gang", SIZE: "3"})
                answer = await self.api.request("POST", "/api/v1/namespaces/default/pods", wanted)
                number += 1
                if answer["spec"].get("schedulingGates"):
                    gated.append(answer)
                else:  # the extender does not know the policy yet
                    await self.api.delete(pod_path(answer), grace=0)
                    await asyncio.sleep(0.1)
            while not (await self.api.list(PLACEMENTS))[0]:  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0.1)
        return gated

    async def stop(self) -> None:
        """As the kubelet does when the pods are deleted."""
        await self._stack.aclose()
