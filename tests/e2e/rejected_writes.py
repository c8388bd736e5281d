"""Writes that the admission policy of deploy/base allows and rejects, and pods to write to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from extender.kube.effects import PodCondition, PodRef
from extender.kube.session import Session
from extender.kube.writer import Writer
from extender.model.release import RELEASE_GATE
from extender.simulator.json_objects import JsonObject
from extender.tasks.preemption.executor import NOT_PREEMPTED, REASON, TARGET
from extender.tasks.rejected_pods import REQUEUE_ANNOTATION
from tests.e2e.client import Api, ApiFailure, pod_path
from tests.e2e.granting import ACCOUNT, NAMESPACE
from tests.fakes import PATIENCE
from tests.simulator.plain import pod

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


IN_A_OR_B: JsonObject = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]
        }
    }
}


@dataclass
class Held:
    """The account under its policy: `api` for single requests, `session` for the service's own writer."""

    api: Api
    session: Session
    ref: PodRef


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


TOLERATED: list[JsonObject] = [  # what the API server adds to each pod
    {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for taint in ("not-ready", "unreachable")
]


def released_with(*tolerations: JsonObject) -> tuple[str, Any]:
    """A release that brings tolerations."""
    return MERGE, {"spec": RELEASE["spec"] | {"tolerations": [*TOLERATED, *tolerations]}}


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
    "a toleration of every taint beside a release": released_with({"operator": "Exists"}),
    "a toleration of a node that is not ready beside a release": released_with(
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}
    ),
    "a toleration of the control plane beside a release": released_with(
        {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}
    ),
    "seventeen tolerations beside a release": released_with(
        *({"key": f"pool-{number}", "operator": "Exists"} for number in range(17))
    ),
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
