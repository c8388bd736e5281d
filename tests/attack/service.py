"""The service as a process of its own, before an embedded control plane, and what can be seen of it from outside."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from extender.settings import Clients
from extender.simulator.apiserver.server import ApiServer
from tests.attack.attacks import Target
from tests.cli.test_serve import OBJECTS, serving
from tests.fakes import PATIENCE
from tests.server.pki import SCHEDULER, Pki
from tests.server.raw import head_of

_PROBE_SECONDS = 0.01
_MEBIBYTE = 2**20


@asynccontextmanager
async def target_of(*, tls: bool) -> AsyncIterator[Target]:
    """A running service, ready, with or without TLS."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with ApiServer() as api:
            api.store.load(OBJECTS)
            pki = Pki(folder) if tls else None
            config = _configuration(folder, api, pki)
            async with serving("--config", str(config)) as (process, url):
                draining = asyncio.create_task(_drain(process.stderr))
                try:
                    yield await _ready(Target(url, process.pid, api, *_contexts(pki)))
                finally:
                    draining.cancel()
                    await asyncio.wait([draining])


async def _ready(target: Target) -> Target:
    """Once it has read the cluster."""
    async with asyncio.timeout(PATIENCE):
        while await target.status(head_of("GET", "/readyz")) != "200":  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.05)
    return target


def _contexts(pki: Pki | None) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """Of the scheduler, and of a client without a certificate."""
    return (pki.client(pki.scheduler()), pki.client()) if pki else (None, None)


def _configuration(folder: Path, api: ApiServer, pki: Pki | None) -> Path:
    document: dict[str, object] = {
        "apiVersion": "placement.extender.dev/v1alpha1",
        "kind": "ExtenderConfiguration",
        "kube": {"kubeconfig": str(api.write_kubeconfig(folder / "kubeconfig"))},
    }
    if pki is not None:
        made = pki.giving(Clients(scheduler=(SCHEDULER,)))
        tls = {"certFile": made.cert_file, "keyFile": made.key_file, "clientCAFile": made.client_ca_file}
        document["server"] = {"tls": {**tls, "clients": {"scheduler": [SCHEDULER]}}}
    path = folder / "extender.yaml"
    path.write_text(yaml.safe_dump(document), "utf-8")
    return path


async def _drain(log: asyncio.StreamReader | None) -> None:
    """A log that nobody reads would stop the service."""
    while log is not None and await log.read(2**16):
        continue


def memory_of(process: int) -> float:
    """Resident memory in MiB."""
    pages = Path(f"/proc/{process}/statm").read_text("ascii").split()[1]
    return int(pages) * 4096 / _MEBIBYTE


@dataclass
class Pulse:
    """The longest time in seconds in which the service did not answer a probe."""

    longest: float = 0.0
    probes: int = field(default=0)


@asynccontextmanager
async def pulse_of(target: Target) -> AsyncIterator[Pulse]:
    """Probes one after another until the block is left. A probe whose connection gives way to others is made anew."""
    pulse = Pulse()
    probing = asyncio.create_task(_probe(target, pulse))
    try:
        yield pulse
    finally:
        probing.cancel()
        with suppress(asyncio.CancelledError):
            await probing


async def _probe(target: Target, pulse: Pulse) -> None:
    now = asyncio.get_running_loop().time
    while True:
        with suppress(ConnectionError, OSError):
            async with target.wire() as connection:
                while True:
                    begun = now()
                    await connection.send(head_of("GET", "/livez"))
                    if not await connection.status():
                        break
                    pulse.longest = max(pulse.longest, now() - begun)
                    pulse.probes += 1
                    await asyncio.sleep(_PROBE_SECONDS)
