"""Several kube-schedulers that die or fail to bind while they place pods."""

from __future__ import annotations

import asyncio
import signal
from http import HTTPStatus
from typing import Any

from extender.simulator.json_objects import JsonObject
from tests.e2e.cluster import Cluster, eventually_ready
from tests.e2e.sharding import NODES_A_ZONE, ON_A_NODE, ZONES, Schedulers, backlog, scheduling
from tests.e2e.two_replicas import Front
from tests.fakes import PATIENCE

PODS, BEFORE = 900, 150  # of 960 for which there is room


async def place(cluster: Cluster, configuration: dict[str, Any]) -> None:
    """All pods wait when the schedulers begin."""
    await cluster.add_nodes(ZONES, NODES_A_ZONE, cpu=str(ON_A_NODE))
    pods = list(backlog(PODS))
    with cluster.extender(configuration) as extender:
        await eventually_ready(extender)
        async with scheduling(cluster.plane, extender.url) as schedulers:
            schedulers.send(signal.SIGSTOP)
            await cluster.api.create(*pods)
            schedulers.send(signal.SIGCONT)
            await cluster.board.bound(*pods, within=240)


async def die_in_turn(cluster: Cluster, schedulers: Schedulers, front: Front, pods: list[JsonObject]) -> None:
    leader, bound = await front.leader(), cluster.board.bound_at
    schedulers.send(signal.SIGSTOP)
    await cluster.api.create(*pods)
    schedulers.send(signal.SIGCONT)
    await cluster.board.until(lambda: len(bound) >= BEFORE)
    schedulers.programs["s1"].kill()
    await cluster.board.until(lambda: len(bound) >= 2 * BEFORE)
    leader.program.kill()
    assert len(bound) < PODS, "the backlog was placed before the leader was killed"
    await schedulers.start("s1")


def refusing_bindings_of(name: str) -> list[JsonObject]:
    """A policy of the API server by which it binds no pod of that name."""
    named = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "refusing-bindings"}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": f'request.name != "{name}"', "message": "not this one"}],
    }
    binding = {"policyName": "refusing-bindings", "validationActions": ["Deny"]}
    return [
        {"kind": "ValidatingAdmissionPolicy", **named, "spec": spec},
        {"kind": "ValidatingAdmissionPolicyBinding", **named, "spec": binding},
    ]


async def until_refusing(cluster: Cluster, name: str) -> None:
    """Return once the policy acts: without it the answer is that there is no such pod."""
    meta = {"name": name, "namespace": "default"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": {"kind": "Node", "name": "none"}}
    path = f"/api/v1/namespaces/default/pods/{name}/binding"
    async with asyncio.timeout(PATIENCE):
        while await _code(cluster, path, body) == HTTPStatus.NOT_FOUND:  # noqa: ASYNC110 -- there is no event across processes
            await asyncio.sleep(0.05)


async def _code(cluster: Cluster, path: str, body: JsonObject) -> int:
    return int((await cluster.api.request("POST", path, body, allow=[403, 404, 422]))["code"])
