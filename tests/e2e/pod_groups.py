"""Groups of gated pods on a real cluster: their placements, their machines, and writes that fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from extender.model.release import RELEASE_GATE
from extender.simulator.json_objects import JsonObject, condition_of, labels_of, name_of, namespace_of, node_of
from tests.deploy.policies.examples import policy
from tests.e2e.client import NODES, Api
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import scheduler_document
from tests.e2e.two_replicas import Front, two_replicas
from tests.simulator.plain import ZONE, node, pod

PLACEMENTS: Final = "/apis/placement.extender.dev/v1alpha1/groupplacements"
LABEL, SIZE = "example.com/gang", "example.com/gang-size"
SETTINGS: Final[dict[str, Any]] = {
    "mode": "offload",
    "leaderElection": {"enabled": True},
    "preemption": {"mode": "off"},
    "policies": {"enabled": True, "webhook": {"bindAddress": "127.0.0.1:0", "serviceNamespace": "kube-system"}},
}


def gang(name: str, size: int, **spec: Any) -> list[JsonObject]:
    """Pods of one processor each, with the gate that admission would inject."""
    found = []
    for number in range(size):
        gates = [{"name": RELEASE_GATE}]
        each = pod(f"{name}-{number}", cpu="1", labels={LABEL: name}, schedulingGates=gates, **spec)
        each["metadata"]["annotations"] = {SIZE: str(size)}
        found.append(each)
    return found


async def without_placements(api: Api) -> None:
    """Remove what was decided."""
    for each in (await api.list(PLACEMENTS))[0]:
        place = f"/apis/placement.extender.dev/v1alpha1/namespaces/{namespace_of(each)}/groupplacements"
        await api.delete(f"{place}/{name_of(each)}")


async def releasing(api: Api, **release: Any) -> None:
    block = {"group": {"label": LABEL}, "size": {"annotation": SIZE}, "topology": [ZONE], **release}
    selector = {"matchExpressions": [{"key": LABEL, "operator": "Exists"}]}
    spec = {"podSelector": selector, "namespaceSelector": {}, "when": ["Release"], "release": block}
    await api.create(policy("ClusterPodSchedulingPolicy", "gangs", **spec))


async def refused(api: Api) -> float:
    """How many patches of pods the apiserver has answered with 422."""
    families = text_string_to_metric_families(await api.text("/metrics"))
    samples = [each for family in families for each in family.samples if each.name == "apiserver_request_total"]
    wanted = {"code": "422", "resource": "pods", "verb": "PATCH"}
    return sum(each.value for each in samples if wanted.items() <= each.labels.items())


@asynccontextmanager
async def two_extenders(cluster: Cluster) -> AsyncIterator[Front]:
    """Two replicas, and the scheduler that asks the one that leads."""
    with two_replicas(cluster, SETTINGS) as both:
        front = Front(both)
        async with front.listening():
            await front.leader()
            try:
                await asyncio.to_thread(cluster.plane.start_scheduler, scheduler_document("offload", front.url))
                yield front
            finally:
                cluster.plane.scheduler.stop()


def gangs_of(cluster: Cluster) -> dict[str, list[JsonObject]]:
    found: dict[str, list[JsonObject]] = {}
    for each in cluster.board.pods.values():
        if LABEL in labels_of(each):
            found.setdefault(labels_of(each)[LABEL], []).append(each)
    return found


async def zones(api: Api) -> dict[str, str]:
    return {name_of(each): labels_of(each)[ZONE] for each in (await api.list(NODES))[0]}


def is_whole(pods: list[JsonObject]) -> bool:
    """Whether all are bound, or all gated."""
    bound, gated = (sum(map(bool, each)) for each in zip(*map(_state, pods), strict=True))
    return (bound, gated) in {(len(pods), 0), (0, len(pods))}


def _state(found: JsonObject) -> tuple[bool, bool]:
    return bool(node_of(found)), bool(found["spec"].get("schedulingGates"))


NOT_NOW: Final[JsonObject] = {
    "metadata": {"name": "not-now"},
    "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}
            ]
        },
        "matchConditions": [{"name": "one", "expression": "object.metadata.name == 'x-1'"}],
        "validations": [{"expression": "false", "message": "not now", "reason": "Invalid"}],
    },
}
MACHINE: Final = "example.com/machine"
POLICIES: Final = "/apis/placement.extender.dev/v1alpha1/clusterpodschedulingpolicies"


def machine(name: str, kind: str, cpu: str = "2") -> JsonObject:
    return node(name, "z1", cpu=cpu, labels={MACHINE: kind})


def machines_of(cluster: Cluster, name: str, kinds: dict[str, str]) -> set[str]:
    """The kinds of the machines that the pods of a gang run on."""
    return {kinds[node_of(each)] for each in gangs_of(cluster)[name]}


def is_visible(found: JsonObject) -> bool:
    """Whether autoscalers look at a pod."""
    return (condition_of(found, "PodScheduled") or {}).get("reason") == "Unschedulable"


async def domains_of(api: Api) -> list[JsonObject]:
    """The domains in the status of the policy."""
    found: list[JsonObject] = (await api.request("GET", f"{POLICIES}/gangs")).get("status", {}).get("domains", [])
    return found
