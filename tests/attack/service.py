"""The service as a process of its own, before an embedded control plane, and what can be seen of it from outside."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from extender.settings.connections import Clients
from extender.simulator.apiserver.server import ApiServer
from tests.attack.attacks import Target
from tests.attack.hostile_api import HostileApi
from tests.attack.pulse import Prober
from tests.cli.test_serve import OBJECTS, serving
from tests.fakes import PATIENCE
from tests.server.pki import SCHEDULER, Pki
from tests.server.raw import head_of

_MEBIBYTE = 2**20


@asynccontextmanager
async def target_of(*, tls: bool) -> AsyncIterator[Target]:
    """A running service, ready, with or without TLS."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with ApiServer() as api:
            api.store.load(OBJECTS)
            pki = Pki(folder) if tls else None
            async with HostileApi(api).listening() as front:
                config = _configuration(folder, front, pki)
                async with serving("--config", str(config)) as (process, url), Prober.of(url, process.pid) as prober:
                    draining = asyncio.create_task(_drain(process.stderr))
                    try:
                        yield await _ready(Target(url, process.pid, api, front, prober, *_contexts(pki)))
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


def _contexts(pki: Pki | None) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """Of the scheduler, and of a client without a certificate."""
    return (pki.client(pki.scheduler()), pki.client()) if pki else (None, None)


def _configuration(folder: Path, front: HostileApi, pki: Pki | None) -> Path:
    """Reads its cluster through the front, and does not wait long before it reads again."""
    kubeconfig = front.write_kubeconfig(folder / "kubeconfig")
    backoff = {"initial": "100ms", "max": "1s"}
    document: dict[str, object] = {
        "apiVersion": "placement.extender.dev/v1alpha1",
        "kind": "ExtenderConfiguration",
        "kube": {"kubeconfig": str(kubeconfig), "watch": {"backoff": backoff}},
    }
    if pki is not None:
        made = pki.giving(Clients(scheduler=(SCHEDULER,)))
        tls = {"certFile": made.cert_file, "keyFile": made.key_file, "clientCAFile": made.client_ca_file}
        document["server"] = {"tls": {**tls, "clients": {"scheduler": [SCHEDULER]}}}
    path = folder / "extender.yaml"
    path.write_text(yaml.safe_dump(document), "utf-8")
    return path


async def _drain(log: asyncio.StreamReader | None) -> None:
    """A log pipe that is not read would stop the service."""
    while log is not None and await log.read(2**16):
        continue


def memory_of(process: int) -> float:
    """Resident memory in MiB."""
    pages = Path(f"/proc/{process}/statm").read_text("ascii").split()[1]
    return int(pages) * 4096 / _MEBIBYTE
