"""The service under exactly the roles of deploy/base: everything it does is allowed, and every rule is needed."""

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
import pytest

from extender.kube.credentials import Access
from extender.kube.effects import Lease, ObjectEvent, PodCondition, PodRef
from extender.kube.errors import Conflict, NotFound, Rejected
from extender.kube.session import Session, open_session
from extender.kube.timing import SystemClock
from extender.kube.writer import Writer
from extender.simulator.json_objects import JsonObject
from extender.tasks.preemption.executor import REASON, TARGET
from extender.tasks.rejected_pods import REQUEUE_ANNOTATION
from tests.e2e.cluster import Cluster, eventually_ready
from tests.e2e.control_plane import scheduler_document
from tests.e2e.granting import NAMESPACE, applied, granted, kubeconfig_of_account, without
from tests.e2e.programs import our_command
from tests.e2e.serving import Extender
from tests.fakes import PATIENCE
from tests.simulator.plain import HOSTNAME, anti_affinity, pod, term

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SETTINGS = Path(__file__).parents[2] / "config" / "extender.yaml"
FOREIGN = {"Certificate", "Issuer"}
NOW = datetime(2026, 11, 20, tzinfo=UTC)


async def test_under_the_roles_pods_are_placed_and_preempted_and_no_write_is_rejected(
    cluster: Cluster, tmp_path: Path
) -> None:
    await cluster.add_nodes(zones=1, per_zone=3)
    apart = anti_affinity(term(HOSTNAME, app="web"))
    pods = [pod(f"web-{number}", labels={"app": "web"}, affinity=apart) for number in range(3)]
    async with applied(cluster.api, granted()):
        account = await kubeconfig_of_account(cluster.api, cluster.plane, tmp_path)
        try:
            with Extender(tmp_path, account, {"mode": "offload"}) as extender:
                await eventually_ready(extender)
                await scheduled(cluster, extender, pods)
                await cluster.api.create(
                    urgent := pod(
                        "urgent", labels={"app": "web"}, affinity=apart, priorityClassName="system-cluster-critical"
                    )
                )
                await cluster.board.bound(urgent)
                count = "extender_api_write_duration_seconds_count"
                writes = [await extender.metric(count, result=result) for result in ("ok", "rejected")]
        finally:
            cluster.plane.scheduler.stop()
    assert writes[0] > 0
    assert writes[1] == 0


async def scheduled(cluster: Cluster, extender: Extender, pods: list[JsonObject]) -> None:
    """Start kube-scheduler for this extender and return once the pods are bound."""
    await asyncio.to_thread(cluster.plane.start_scheduler, scheduler_document("offload", extender.url))
    await cluster.api.create(*pods)
    await cluster.board.bound(*pods)


READ = [
    ("", "pods"),
    ("", "nodes"),
    ("", "namespaces"),
    ("", "services"),
    ("", "replicationcontrollers"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("policy", "poddisruptionbudgets"),
]


@pytest.mark.parametrize(("group", "resource"), READ, ids=[resource for _, resource in READ])
async def test_without_leave_to_read_a_resource_the_service_does_not_get_ready_and_says_why(
    cluster: Cluster, tmp_path: Path, group: str, resource: str
) -> None:
    documents = [
        one if one["metadata"]["name"] != "placement-extender-reader-tried" else without([one], group, resource)[0]
        for one in granted()
    ]
    async with applied(cluster.api, documents):
        account = await kubeconfig_of_account(cluster.api, cluster.plane, tmp_path)
        with Extender(tmp_path, account, {"mode": "offload"}) as extender:
            said = await check_of(extender, resource, lambda text: "forbidden" in text.lower() or "403" in text)
            others = await check_of(extender, "nodes" if resource != "nodes" else "namespaces", bool)
        code, document = await doctor(account)
    assert resource in said
    assert others
    assert {found["problem"] for found in document["findings"] if found["check"] == "permissions"} == {
        f"the account may not {verb} {resource}{'.' + group if group else ''}" for verb in ("list", "watch")
    }
    assert code == 2


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


# -- writes ---------------------------------------------------------------------------------------------------------

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


CALLS: dict[str, tuple[tuple[str, str, str], Call]] = {
    "nominate": (("", "pods/status", "patch"), lambda s, p: writer(s).nominate(p, "node-a")),
    "set_condition": (
        ("", "pods/status", "patch"),
        lambda s, p: writer(s).set_condition(p, PodCondition(TARGET, "True", REASON, "", NOW)),
    ),
    "annotate": (("", "pods", "patch"), lambda s, p: writer(s).annotate(p, REQUEUE_ANNOTATION, "1")),
    "uid_of": (("", "pods", "get"), lambda s, p: writer(s).uid_of(p)),
    "create_event": (
        ("events.k8s.io", "events", "create"),
        lambda s, p: writer(s).create_event(ObjectEvent(p, "Normal", "Why", "What", "note", NOW)),
    ),
    "create_lease": (("coordination.k8s.io", "leases", "create"), lambda s, _: create_lease(s)),
    "get_lease": (
        ("coordination.k8s.io", "leases", "get"),
        lambda s, _: writer(s).get_lease(NAMESPACE, "placement-extender"),
    ),
    "update_lease": (("coordination.k8s.io", "leases", "update"), lambda s, _: renew(s)),
    "evict": (("", "pods/eviction", "create"), lambda s, p: writer(s).evict(p, 0)),
    "delete": (("", "pods", "delete"), lambda s, p: writer(s).delete(p, 0)),
}


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


async def test_under_the_roles_every_write_is_allowed(cluster: Cluster, tmp_path: Path) -> None:
    async with as_account(cluster, tmp_path, granted()) as (session, ref):
        await until_effective(session, ref)
        assert [name for name, (_, call) in CALLS.items() if await rejected(call, session, ref)] == []
    await cluster.api.delete(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/placement-extender")


@pytest.mark.parametrize("name", [name for name in CALLS if name != "set_condition"])
async def test_without_its_rule_a_write_is_rejected(cluster: Cluster, tmp_path: Path, name: str) -> None:
    rule, call = CALLS[name]
    if name == "update_lease":
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "placement-extender"}}
        await cluster.api.request("POST", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases", lease)
    async with as_account(cluster, tmp_path, without(granted(), *rule)) as (session, ref):
        await until_effective(session, ref)
        assert await rejected(call, session, ref)
    await cluster.api.delete(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/placement-extender")


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
