"""The admission policy of deploy/base on a real apiserver: what the extender writes passes, everything else is refused.

The account is a cluster administrator here, so that a refusal is the policy's and not that of its roles.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.kube.credentials import Access
from extender.kube.effects import PodCondition, PodRef
from extender.kube.errors import KubeError, Rejected
from extender.kube.session import Session, open_session
from extender.kube.timing import SystemClock
from extender.kube.writer import Writer
from extender.model.objects import DELETION_COST
from extender.model.release import RELEASE_GATE, RELEASED_ANNOTATION
from extender.simulator.json_objects import JsonObject
from extender.tasks.preemption.executor import NOT_PREEMPTED, REASON, TARGET
from extender.tasks.rejected_pods import REQUEUE_ANNOTATION
from tests.e2e.client import Api, ApiFailure, connect, pod_path
from tests.e2e.cluster import Cluster
from tests.e2e.granting import ACCOUNT, NAMESPACE, applied, granted, kubeconfig_of_account
from tests.fakes import PATIENCE
from tests.simulator.plain import pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

MERGE, STRATEGIC, JSON_PATCH, JSON = (
    *(f"application/{kind}-patch+json" for kind in ("merge", "strategic-merge", "json")),
    "application/json",
)
SINCE = "2026-11-20T00:00:00Z"
ALL_POWERFUL = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "placement-extender-all-tried"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
}
WEB = pod("web", labels={"app": "web"})  # unbound: the apiserver itself refuses a nomination of any other
WEB["spec"] |= {
    "schedulingGates": [{"name": RELEASE_GATE}, {"name": "example.com/quota"}],
    "nodeSelector": {"pool": "a"},
}
WEB["metadata"]["annotations"] = {"example.com/owner": "team-a", REQUEUE_ANNOTATION: "0"}
IN_A_OR_B: JsonObject = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]
        }
    }
}
STATUS = {
    "podIP": "10.1.2.3",
    "conditions": [{"type": kind, "status": "True", "lastTransitionTime": SINCE} for kind in ("PodScheduled", "Ready")],
}


@dataclass
class Held:
    """The account under its policy: `api` for single requests, `session` for the service's own writer."""

    api: Api
    session: Session
    ref: PodRef


@pytest.fixture
async def held(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Held]:
    """A pod with annotations and a status, and the account, which already is refused what the policy refuses."""
    await cluster.api.create(WEB)
    await cluster.api.request("PATCH", f"{pod_path(WEB)}/status", {"status": STATUS}, content_type=STRATEGIC)
    found = await cluster.api.request("GET", pod_path(WEB))
    async with applied(cluster.api, [*granted(), ALL_POWERFUL]):
        path = await kubeconfig_of_account(cluster.api, cluster.plane, tmp_path)
        token = yaml.safe_load(path.read_text("utf-8"))["users"][0]["user"]["token"]
        async with (
            connect(cluster.plane.url, token, cluster.plane.authority) as api,
            open_session(Access(kubeconfig=str(path)), SystemClock()) as session,
        ):
            await until_held(api)
            yield Held(api, session, PodRef("default", "web", found["metadata"]["uid"]))


async def until_held(api: Api) -> None:
    """Return once both the policy and the permissions are known to the apiserver, which hears of them by watches."""
    label = {"metadata": {"labels": {"app": "db"}}}
    async with asyncio.timeout(PATIENCE):
        while "ValidatingAdmissionPolicy" not in await rejection(api, "PATCH", pod_path(WEB), label, MERGE):  # noqa: ASYNC110 -- no event across processes
            await asyncio.sleep(0.05)


async def rejection(api: Api, method: str, path: str, body: Any, kind: str = JSON) -> str:
    """What the apiserver says when it forbids a request, tried without effect; nothing when it lets it pass."""
    try:
        await api.request(method, path, body, content_type=kind, params={"dryRun": "All"})
    except ApiFailure as failure:
        said = str(failure)
    else:
        said = ""
    assert not said or ": 403 " in said, said
    return said


# -- what the extender writes -------------------------------------------------------------------------------------

Write = Callable[[Writer, PodRef], Awaitable[None]]
MARK = PodCondition(TARGET, "True", REASON, "a message", datetime(2026, 11, 20, tzinfo=UTC))
WRITES: dict[str, Write] = {
    "nominate": lambda w, p: w.nominate(p, "node-a"),
    "nominate another node": lambda w, p: w.nominate(p, "node-b"),
    "take the nomination back": lambda w, p: w.nominate(p, ""),
    "take back what is not there": lambda w, p: w.nominate(p, ""),
    "mark a victim": lambda w, p: w.set_condition(p, MARK),
    "take the mark back": lambda w, p: w.set_condition(p, replace(MARK, status="False", reason=NOT_PREEMPTED)),
    "mark it again": lambda w, p: w.set_condition(p, MARK),
    "annotate": lambda w, p: w.annotate(p, REQUEUE_ANNOTATION, "1"),
    "remove our annotation": lambda w, p: w.annotate(p, REQUEUE_ANNOTATION, None),
    "annotate what has none of ours": lambda w, p: w.annotate(p, REQUEUE_ANNOTATION, "2"),
    "evict": lambda w, p: w.evict(p, 30),
}


async def test_what_the_extender_writes_passes_one_after_the_other_on_one_pod(cluster: Cluster, held: Held) -> None:
    writer = Writer(held.session.writes, "placement-extender", "one")
    rejected: dict[str, KubeError] = {}
    for name, write in WRITES.items():
        try:
            await write(writer, held.ref)
        except Rejected as error:
            rejected[name] = error
    assert rejected == {}
    await cluster.api.create(pod("another"))
    found = await cluster.api.request("GET", pod_path(pod("another")))
    await writer.delete(PodRef("default", "another", found["metadata"]["uid"]), 0)


async def test_a_cost_of_deletion_is_written_where_there_is_none_or_ours_and_nowhere_else(
    cluster: Cluster, held: Held
) -> None:
    writer = Writer(held.session.writes, "placement-extender", "one")
    for cost in ("-1", "-2", None, "-3"):
        await writer.set_deletion_cost(held.ref, cost)
    theirs = {"metadata": {"annotations": {DELETION_COST: "7"}}}
    await cluster.api.request("PATCH", pod_path(WEB), theirs, content_type=MERGE)
    for cost in ("-4", None):
        with pytest.raises(Rejected, match="pod-deletion-cost that no other client"):
            await writer.set_deletion_cost(held.ref, cost)


async def test_a_release_passes_and_keeps_the_gate_of_another_controller(held: Held) -> None:
    body = {
        "metadata": {"uid": held.ref.uid, "annotations": {RELEASED_ANNOTATION: "team-7@2026-11-20T12:00:00Z"}},
        "spec": {"schedulingGates": [{"$patch": "delete", "name": RELEASE_GATE}], "nodeSelector": {"zone": "a"}},
    }
    found = await held.api.request("PATCH", pod_path(WEB), body, content_type=STRATEGIC)
    assert found["spec"]["schedulingGates"] == [{"name": "example.com/quota"}]
    assert found["spec"]["nodeSelector"] == {"pool": "a", "zone": "a"}


async def test_a_release_into_a_set_of_domains_passes(held: Held) -> None:
    body = {
        "metadata": {"uid": held.ref.uid},
        "spec": {"schedulingGates": [{"$patch": "delete", "name": RELEASE_GATE}], "affinity": IN_A_OR_B},
    }
    found = await held.api.request("PATCH", pod_path(WEB), body, content_type=STRATEGIC)
    assert found["spec"]["affinity"] == IN_A_OR_B


# -- what it does not ---------------------------------------------------------------------------------------------


def condition(kind: str, **more: str) -> JsonObject:
    return {"status": {"conditions": [{"type": kind, "status": "True", "lastTransitionTime": SINCE, **more}]}}


STATUS_WRITES: dict[str, tuple[str, Any]] = {
    "the phase": (MERGE, {"status": {"phase": "Succeeded"}}),
    "an address": (MERGE, {"status": {"podIP": "10.9.9.9", "podIPs": [{"ip": "10.9.9.9"}]}}),
    "no address any more": (MERGE, {"status": {"podIP": None, "podIPs": None}}),
    "a message beside a nomination": (MERGE, {"status": {"nominatedNodeName": "node-b", "message": "no"}}),
    "a condition of the kubelet": (STRATEGIC, condition("Ready", reason="Odd")),
    "a condition of the scheduler": (STRATEGIC, condition("PodScheduled", reason="Odd")),
    "a condition of another controller": (STRATEGIC, condition("example.com/gate")),
    "a disruption by another component": (STRATEGIC, condition(TARGET, reason="EvictionByEvictionAPI")),
    "a disruption that is none": (STRATEGIC, condition(TARGET, reason=REASON, status="False")),
    "no conditions at all": (MERGE, {"status": {"conditions": []}}),
    "a label by way of the status": (MERGE, {"metadata": {"labels": {"app": "db"}}}),
    "an annotation of ours by way of the status": (MERGE, {"metadata": {"annotations": {REQUEUE_ANNOTATION: "9"}}}),
}
RELEASE: JsonObject = {"spec": {"schedulingGates": [{"name": "example.com/quota"}], "nodeSelector": {"zone": "a"}}}
POD_WRITES: dict[str, tuple[str, Any]] = {
    "a label": (MERGE, {"metadata": {"labels": {"tier": "front"}}}),
    "a label removed": (MERGE, {"metadata": {"labels": None}}),
    "an annotation of another controller": (MERGE, {"metadata": {"annotations": {"example.com/owner": "team-b"}}}),
    "an annotation of another controller beside ours": (
        MERGE,
        {"metadata": {"annotations": {REQUEUE_ANNOTATION: "1", "a.example/b": "c"}}},
    ),
    "an annotation of another controller removed": (MERGE, {"metadata": {"annotations": {"example.com/owner": None}}}),
    "all annotations removed": (JSON_PATCH, [{"op": "remove", "path": "/metadata/annotations"}]),
    "an annotation that begins nearly as ours": (
        MERGE,
        {"metadata": {"annotations": {"placement.extender.devil/x": ""}}},
    ),
    "a finalizer": (MERGE, {"metadata": {"finalizers": ["example.com/stay"]}}),
    "an owner": (
        MERGE,
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "1"}]}},
    ),
    "a narrower node selector of a pod that stays gated": (MERGE, {"spec": {"nodeSelector": {"zone": "a"}}}),
    "a narrower affinity of a pod that stays gated": (MERGE, {"spec": {"affinity": IN_A_OR_B}}),
    "a gate of another controller removed": (MERGE, {"spec": {"schedulingGates": [{"name": RELEASE_GATE}]}}),
    "all gates removed": (MERGE, {"spec": {"schedulingGates": None}}),
    "a label beside a release": (MERGE, RELEASE | {"metadata": {"labels": {"tier": "front"}}}),
    "an image": (STRATEGIC, {"spec": {"containers": [{"name": "main", "image": "other"}]}}),
    "a deadline": (MERGE, {"spec": {"activeDeadlineSeconds": 1}}),
    "a toleration": (
        JSON_PATCH,
        [{"op": "add", "path": "/spec/tolerations/-", "value": {"key": "a", "operator": "Exists"}}],
    ),
}
BINDING = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web"}, "target": {"kind": "Node", "name": "b"}}
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web", "namespace": "default"}}
EPHEMERAL = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "shell"}]}}
RESIZE = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1m"}}}]}}
PODS = "/api/v1/namespaces/default/pods"
CALLS: dict[str, tuple[str, str, Any, str]] = {
    "delete without a UID": ("DELETE", f"{PODS}/web", {"kind": "DeleteOptions", "apiVersion": "v1"}, JSON),
    "delete a namespace's pods": ("DELETE", PODS, {"kind": "DeleteOptions", "apiVersion": "v1"}, JSON),
    "evict without a UID": ("POST", f"{PODS}/web/eviction", EVICTION, JSON),
    "create a pod": ("POST", PODS, pod("another"), JSON),
    "bind": ("POST", f"{PODS}/web/binding", BINDING, JSON),
    "add a container": ("PATCH", f"{PODS}/web/ephemeralcontainers", EPHEMERAL, STRATEGIC),
    "resize": ("PATCH", f"{PODS}/web/resize", RESIZE, STRATEGIC),
    **{f"write {name}": ("PATCH", f"{PODS}/web/status", body, kind) for name, (kind, body) in STATUS_WRITES.items()},
    **{f"write {name}": ("PATCH", f"{PODS}/web", body, kind) for name, (kind, body) in POD_WRITES.items()},
}


async def test_every_other_write_to_a_pod_is_rejected_by_the_policy(held: Held) -> None:
    said = {name: await rejection(held.api, *call) for name, call in CALLS.items()}
    assert {name: text for name, text in said.items() if "ValidatingAdmissionPolicy" not in text} == {}
    assert {name: text for name, text in said.items() if "expression" in text} == {}, (
        "refused for an error, not a reason"
    )


async def test_a_pod_that_nothing_can_preempt_is_not_deleted_even_with_its_uid(cluster: Cluster, held: Held) -> None:
    critical = pod("critical", on="node-a", priorityClassName="system-node-critical")
    mirror = pod("mirror", on="node-a")
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    important = pod("important", on="node-a", priorityClassName="system-cluster-critical")
    await cluster.api.create(critical, mirror, important)
    for victim, is_refused in ((critical, True), (mirror, True), (important, False)):
        found = await cluster.api.request("GET", pod_path(victim))
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": found["metadata"]["uid"]}}
        said = await rejection(held.api, "DELETE", pod_path(victim), options)
        assert ("no pod can be preempted" in said) == is_refused, said


async def test_no_other_account_is_held_and_the_account_is_held_on_pods_only(cluster: Cluster, held: Held) -> None:
    as_before = {name: call for name, call in CALLS.items() if name.startswith("write a label")}
    assert {name: await rejection(cluster.api, *call) for name, call in as_before.items()} == dict.fromkeys(
        as_before, ""
    )
    event = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}}
    assert await rejection(held.api, "POST", "/api/v1/namespaces/default/configmaps", event) == ""
