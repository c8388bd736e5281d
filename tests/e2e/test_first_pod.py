"""From nothing to a first pod by the documents: the commands of the README and what they print, and the processes of the manifests."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
import yaml
from aiohttp import ClientError, ClientSession

from deploy.install import LAYOUTS
from tests.deploy.building import ROOT
from tests.deploy.charting import OVERLAY_OF
from tests.deploy.reading import blocks
from tests.e2e import controllers
from tests.e2e.cluster import Cluster
from tests.e2e.controllers import PROGRAM, controlled
from tests.e2e.forwarding import Service
from tests.e2e.kubelet import NODE, host_of
from tests.e2e.kubelet_of_manifests import KubeletOfManifests, lead_to
from tests.e2e.port_forwarding import ForwardingKubelet
from tests.e2e.removal import printed_by
from tests.fakes import PATIENCE
from tests.simulator.plain import pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

REGISTRY = "registry.example.com/team"
FIRST = re.compile(r"^kubectl run first ", re.MULTILINE)


class NewUser:
    """Runs commands as they are printed, in a clone, with kubectl's context and nothing else."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.commands = 0
        self._folder = folder
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {
            **os.environ,
            "PATH": path,
            "KUBECONFIG": str(cluster.plane.kubeconfig),
            "REGISTRY": REGISTRY,
        }
        for name in ("deploy", "Makefile", "config", "extender", "pyproject.toml", ".venv"):
            if (ROOT / name).exists():
                (folder / name).symlink_to(ROOT / name)

    async def run(self, commands: str) -> str:
        """What they print. AssertionError where one fails."""
        self.commands += len(re.findall(r"^\S", commands.replace("\\\n", ""), re.MULTILINE))
        return await printed_by(commands, self._folder, self._environment)


def by_chart(layout: str) -> tuple[str, str]:
    """The first way of the README, and the namespace that it names."""
    (install,) = [block for block in blocks("With Helm") if block.startswith("helm install")]
    install = "".join(line for line in install.splitlines(keepends=True) if "rollout status" not in line).rstrip()
    return f"{install} --set layout={layout}", "placement"


def by_make(layout: str) -> tuple[str, str]:
    (command,) = blocks("With make")
    return f"{command.rstrip()} LAYOUT={OVERLAY_OF[layout]}", LAYOUTS[OVERLAY_OF[layout]].namespace


@asynccontextmanager
async def machines(cluster: Cluster, assets: Path, folder: Path, namespace: str) -> AsyncIterator[KubeletOfManifests]:
    """Nodes, controllers and a kubelet for the pods of the installation."""
    cluster.board.left_alone = "placement-extender"  # these pods have a kubelet that waits for their processes
    forwards = ForwardingKubelet(cluster.plane.folder)
    service = Service(cluster.api, "placement-extender", host_of, namespace)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(forwards.listening())
        await stack.enter_async_context(service.listening())
        await cluster.api.create(forwards.node(NODE))
        await cluster.add_nodes(zones=2, per_zone=2)
        kubelet = KubeletOfManifests(cluster.api, cluster.plane, assets, namespace, folder, forwards)
        kubelet.service = service.url
        await stack.enter_async_context(kubelet.following())
        await stack.enter_async_context(controlled(cluster, assets))
        yield kubelet


async def start_scheduler(cluster: Cluster, folder: Path, kubelet: KubeletOfManifests) -> None:
    """kube-scheduler with the files that the document has made, under its account, once the Service leads to a leader.

    Before that kube-scheduler ignores the failed call, as the entry says in mode augment, and places the pod.
    """
    trusted = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    trusted.check_hostname = False
    trusted.load_cert_chain(folder / "client.crt", folder / "client.key")
    async with ClientSession() as http, asyncio.timeout(PATIENCE):
        while not await _is_ready(http, f"{kubelet.service}/readyz", trusted):  # noqa: ASYNC110 -- no event across processes
            await asyncio.sleep(0.1)
    text = (folder / "kube-scheduler.yaml").read_text("utf-8")
    text = text.replace("/etc/kubernetes/placement-extender", str(folder))
    document = yaml.safe_load(text.replace("/etc/kubernetes/scheduler.conf", str(cluster.plane.kubeconfig)))
    lead_to(document, kubelet.service)
    await asyncio.to_thread(cluster.plane.start_scheduler, document)


async def _is_ready(http: ClientSession, url: str, trusted: ssl.SSLContext) -> bool:
    with suppress(ClientError):
        async with http.get(url, ssl=trusted) as answer:
            return answer.status == 200
    return False


@pytest.mark.parametrize("way", [by_chart, by_make])
@pytest.mark.parametrize("layout", ["service", "schedulers"])
async def test_with_the_printed_commands_a_first_pod_is_placed_and_doctor_finds_nothing(
    cluster: Cluster, assets: Path, tmp_path: Path, layout: str, way: Callable[[str], tuple[str, str]]
) -> None:
    if not controllers.is_there(assets):
        pytest.skip(f"{PROGRAM} is not in {assets}: NOTHING IS KNOWN of installations with the real controllers")
    command, namespace = way(layout)
    for name in ("clone", "pods"):
        (tmp_path / name).mkdir()
    user, since = NewUser(cluster, tmp_path / "clone"), time.monotonic()
    try:
        async with machines(cluster, assets, tmp_path / "pods", namespace) as kubelet:
            said = await user.run(command)
            assert kubelet.failed == []
            printed = "\n".join(re.findall(r"^    (.*)$", said.partition("NOTES:")[2] or said, re.MULTILINE))
            before = FIRST.search(printed)
            assert before is not None, said
            await user.run(printed[: before.start()])
            if layout == "service":
                assert f"namespace={namespace}" in said, "it is named for the commands of the document"
                (files,) = blocks("kube-scheduler of a service")
                await user.run(files.replace("namespace=placement-extender", f"namespace={namespace}"))
                await start_scheduler(cluster, tmp_path / "clone" / "scheduler", kubelet)
            await user.run(printed[before.start() :])
            (node,) = await cluster.board.bound(pod("first"))
            assert node in await user.run("kubectl get pod first -o wide")
            verdict = await user.run(f"kubectl placement doctor --extender-namespace {namespace}")
    finally:
        cluster.plane.scheduler.stop()
    assert "0 errors, 0 warnings" in verdict
    print(f"{layout}: {user.commands} commands, {time.monotonic() - since:.0f} s")  # noqa: T201 -- shown by -s
