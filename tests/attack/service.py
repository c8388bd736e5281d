"""The service as a process of its own, before an embedded control plane, and what can be seen of it from outside."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from extender.settings.connections import Clients
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.json_objects import JsonObject
from tests.attack.attacks import Target
from tests.attack.hostile_api import HostileApi
from tests.attack.pulse import Prober
from tests.cli.serving import OBJECTS, serving
from tests.e2e.programs import free_ports
from tests.fakes import PATIENCE
from tests.pki import SCHEDULER, Pki
from tests.server.raw import head_of

_MEBIBYTE = 2**20


@asynccontextmanager
async def target_of(
    *, tls: bool, objects: Sequence[JsonObject] = OBJECTS, settings: JsonObject | None = None
) -> AsyncIterator[Target]:
    """A running service, ready, with or without TLS, of a cluster of these objects."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with ApiServer() as api:
            api.store.load(objects)
            pki, (port,) = Pki(folder), free_ports(1)
            async with HostileApi(api).listening() as front:
                config = _configuration(folder, front, pki, port, settings or {}, tls=tls)
                async with serving("--config", str(config)) as (process, url), Prober.of(url, process.pid) as prober:
                    draining = asyncio.create_task(_drain(process.stderr))
                    try:
                        contexts = (pki.client(pki.scheduler()), pki.client()) if tls else ()
                        webhook = f"https://127.0.0.1:{port}"
                        yield await _ready(
                            Target(url, process.pid, api, front, prober, webhook, pki.client(), *contexts)
                        )
                    finally:
                        draining.cancel()
                        await asyncio.wait([draining])


async def _ready(target: Target) -> Target:
    async with asyncio.timeout(PATIENCE):
        while not await is_ready(target):  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.05)
    return target


async def is_ready(target: Target) -> bool:
    """Whether it has read the cluster, and goes on to."""
    return await target.status(head_of("GET", "/readyz")) == "200"


def _configuration(folder: Path, front: HostileApi, pki: Pki, port: int, settings: JsonObject, *, tls: bool) -> Path:
    """Reads its cluster through the front, and does not wait long before it reads again."""
    kubeconfig = front.write_kubeconfig(folder / "kubeconfig")
    backoff = {"initial": "100ms", "max": "1s"}
    document: dict[str, object] = {
        "apiVersion": "placement.extender.dev/v1alpha1",
        "kind": "ExtenderConfiguration",
        "kube": {"kubeconfig": str(kubeconfig), "watch": {"backoff": backoff}},
    }
    webhook = {"bindAddress": f"127.0.0.1:{port}", "certificates": "files"}
    webhook |= {"certFile": pki.tls.cert_file, "keyFile": pki.tls.key_file}
    if tls:
        made = pki.giving(Clients(scheduler=(SCHEDULER,)))
        webhook["clientCAFile"] = made.client_ca_file
        files = {"certFile": made.cert_file, "keyFile": made.key_file, "clientCAFile": made.client_ca_file}
        document["server"] = {"tls": {**files, "clients": {"scheduler": [SCHEDULER]}}}
    document["policies"] = {"enabled": True, "webhook": webhook}
    path = folder / "extender.yaml"
    path.write_text(yaml.safe_dump(document | settings), "utf-8")
    return path


async def _drain(log: asyncio.StreamReader | None) -> None:
    """A log pipe that is not read would stop the service."""
    while log is not None and await log.read(2**16):
        continue


def memory_of(process: int) -> float:
    """Resident memory in MiB."""
    pages = Path(f"/proc/{process}/statm").read_text("ascii").split()[1]
    return int(pages) * 4096 / _MEBIBYTE
