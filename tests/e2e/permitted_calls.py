"""Each API call of the service, and the account that may make it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

from extender.kube.credentials import Access
from extender.kube.effects import Lease, PodRef
from extender.kube.errors import Conflict, NotFound, Rejected
from extender.kube.session import Session, open_session
from extender.kube.timing import SystemClock
from extender.kube.writer import Writer
from extender.simulator.json_objects import JsonObject
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import scheduler_document
from tests.e2e.granting import NAMESPACE, applied, kubeconfig_of_account
from tests.e2e.programs import our_command
from tests.e2e.serving import Extender
from tests.fakes import PATIENCE
from tests.simulator.plain import pod

SETTINGS = Path(__file__).parents[2] / "config" / "extender.yaml"
NOW = datetime(2026, 11, 20, tzinfo=UTC)


async def scheduled(cluster: Cluster, extender: Extender, pods: list[JsonObject]) -> None:
    """Start kube-scheduler for this extender and return once the pods are bound."""
    await asyncio.to_thread(cluster.plane.start_scheduler, scheduler_document("offload", extender.url))
    await cluster.api.create(*pods)
    await cluster.board.bound(*pods)


async def check_of(extender: Extender, name: str, holds: Callable[[str], bool]) -> str:
    """What a readiness check says, once that holds."""
    async with asyncio.timeout(PATIENCE * 3), aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"{extender.url}/readyz/{name}") as answer:
                text = await answer.text()
            if holds(text):
                return text
            await asyncio.sleep(0.05)


async def doctor(kubeconfig: Path) -> tuple[int, dict[str, Any]]:
    """What the doctor finds as that account, by the settings in a file; there is no service for it to visit."""
    place = ("--url", "http://127.0.0.1:9", "--kubeconfig", str(kubeconfig), "--config", str(SETTINGS))
    command = our_command("doctor", "-o", "json", *place)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return process.returncode or 0, json.loads(out)


Call = Callable[[Session, PodRef], Awaitable[object]]
LEASE = Lease(NAMESPACE, "placement-extender", holder="one", acquire_time=NOW, renew_time=NOW)


def writer(session: Session) -> Writer:
    """The service's own."""
    return Writer(session.writes, "placement-extender", "one")


async def renew(session: Session) -> None:
    """Take the Lease as it is and write it back."""
    await writer(session).update_lease(await writer(session).get_lease(NAMESPACE, "placement-extender"))


async def create_lease(session: Session) -> None:
    """Make it; one that is there already was allowed as well."""
    await writer(session).create_lease(LEASE)


@asynccontextmanager
async def as_account(
    cluster: Cluster, folder: Path, documents: list[JsonObject]
) -> AsyncIterator[tuple[Session, PodRef]]:
    """A session of the account under these roles, and a pod to write to."""
    async with applied(cluster.api, documents):
        account = await kubeconfig_of_account(cluster.api, cluster.plane, folder)
        await cluster.api.create(pod("web"))
        found = await cluster.api.request("GET", "/api/v1/namespaces/default/pods/web")
        async with open_session(Access(kubeconfig=str(account)), SystemClock()) as session:
            yield session, PodRef("default", "web", found["metadata"]["uid"])


async def rejected(call: Call, session: Session, ref: PodRef) -> bool:
    """Whether the apiserver forbids the call."""
    try:
        await call(session, ref)
    except (Conflict, NotFound):
        return False
    except Rejected as error:
        return error.status == HTTPStatus.FORBIDDEN
    return False


async def until_effective(session: Session, ref: PodRef) -> None:
    """Return once the apiserver has heard of the roles: its own watch needs a moment."""
    del ref
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await session.reads.call("GET", "/api/v1/namespaces", query={"limit": "1"})
            except Rejected:
                await asyncio.sleep(0.02)
            else:
                return
