"""The service under exactly the roles of deploy/base: everything it does is allowed, and every rule is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from extender.kube.effects import ObjectEvent, PodCondition
from extender.tasks.preemption.executor import REASON, TARGET
from extender.tasks.rejected_pods import REQUEUE_ANNOTATION
from tests.e2e.cluster import Cluster, eventually_ready
from tests.e2e.granting import NAMESPACE, applied, granted, kubeconfig_of_account, without
from tests.e2e.permitted_calls import (
    NOW,
    Call,
    as_account,
    check_of,
    create_lease,
    doctor,
    rejected,
    renew,
    scheduled,
    until_effective,
    writer,
)
from tests.e2e.serving import Extender
from tests.simulator.plain import HOSTNAME, anti_affinity, pod, term

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

FOREIGN = {"Certificate", "Issuer"}


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
    assert code == 4


# -- writes ---------------------------------------------------------------------------------------------------------


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
