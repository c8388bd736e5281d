"""Deployments under the directive spread, zones that are lost and return, and what the operator is told."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from extender.model.objects import DELETION_COST, DELETION_COST_MARK
from extender.model.units import rfc3339
from extender.simulator.json_objects import JsonObject, is_terminating, labels_of, name_of, node_of
from tests.deploy.policies.examples import API_VERSION, to_copy
from tests.e2e import controllers
from tests.e2e.client import NODES, pod_path
from tests.e2e.control_plane import scheduler_document
from tests.e2e.growing_group import Started
from tests.e2e.overlays import kubectl
from tests.e2e.policing import Policed
from tests.e2e.programs import our_command
from tests.fakes import PATIENCE
from tests.simulator.plain import ZONE, node, pod, spread

WEB = "/apis/apps/v1/namespaces/default/deployments/web"
DOMAINS = f"/apis/{API_VERSION}/topologydomains"
POLICY = f"/apis/{API_VERSION}/clusterpodschedulingpolicies/spread-on-a-bad-day"
LABELS = {"app": "web"}
_SMP = "application/strategic-merge-patch+json"


# Unlike numbers of nodes: a ReplicaSet deletes first where several of its pods share a node, which is z3.
NODES_OF = {"z1": 6, "z2": 6, "z3": 1}


def need_controllers(assets: Path) -> None:
    if not controllers.is_there(assets):
        pytest.skip(f"{controllers.PROGRAM} is not in {assets}: NOTHING IS KNOWN of spread of a Deployment")


@asynccontextmanager
async def deployed(found: Policed, assets: Path, url: str) -> AsyncIterator[None]:
    """Nodes, controllers, the policy, a scheduler that asks this URL, and the Deployment with its six pods on nodes."""
    cluster = found.cluster
    for zone, count in NODES_OF.items():
        await cluster.api.create(*(node(f"{zone}-{number}", zone, cpu="16") for number in range(1, count + 1)))
    body = controllers.deployment(
        "web", 6, pod("web", labels=LABELS, topologySpreadConstraints=[spread(labels=LABELS)])
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(without_domains, found)
        await stack.enter_async_context(controllers.controlled(cluster, assets))
        await found.apply(to_copy("spread-on-a-bad-day.yaml"))
        stack.callback(cluster.plane.scheduler.stop)
        await asyncio.to_thread(cluster.plane.start_scheduler, scheduler_document("offload", url))
        Started(cluster.api, cluster.board)
        await kubectl(cluster, "apply", documents=[body])
        await until_placed(found, {"z1": 2, "z2": 2, "z3": 2})
        yield


async def without_domains(found: Policed) -> None:
    for each in (await found.api.list(DOMAINS))[0]:
        await found.api.delete(f"{DOMAINS}/{name_of(each)}")


def pods_of(found: Policed) -> list[JsonObject]:
    """The pods of the Deployment that are not being deleted."""
    return [
        each
        for each in found.cluster.board.pods.values()
        if labels_of(each).get("app") == "web" and not is_terminating(each)
    ]


def placed(found: Policed) -> Counter[str]:
    """How many pods each zone has."""
    return Counter(node_of(each).partition("-")[0] for each in pods_of(found) if node_of(each))


async def until_placed(found: Policed, wanted: dict[str, int], within: float = PATIENCE) -> None:
    """Return once the zones have so many pods each and none waits."""
    try:
        await found.cluster.board.until(
            lambda: placed(found) == wanted and len(pods_of(found)) == sum(wanted.values()), within
        )
    except TimeoutError:
        waiting = {name_of(each): found.cluster.board.message(f"default/{name_of(each)}") for each in pods_of(found)}
        raise AssertionError(
            f"{placed(found)}, and { ({name: why for name, why in waiting.items() if why}) }"
        ) from None


async def scale(found: Policed, replicas: int) -> None:
    await found.api.patch(WEB, {"spec": {"replicas": replicas}})


async def until_excluded(found: Policed, count: int, reason: str) -> None:
    """Return once the extender excludes so many zones."""
    async with asyncio.timeout(PATIENCE):
        while await found.extender.metric("extender_excluded_topology_domains", reason=reason) != count:  # noqa: ASYNC110 -- no event across processes
            await asyncio.sleep(0.05)


async def until_skewed(found: Policed, skew: int, *, above: int) -> None:
    """Return once the metrics have this skew of the Deployment, and so many workloads above maxSkew."""
    series = {"pod_namespace": "default", "workload": "Deployment/web", "topology_key": ZONE}
    metric = found.extender.metric
    async with asyncio.timeout(PATIENCE):
        while (  # noqa: ASYNC110 -- no event across processes
            await metric("extender_spread_skew", **series) != skew
            or await metric("extender_spread_workloads", state="above") != above
        ):
            await asyncio.sleep(0.2)
    assert await metric("extender_spread_max_skew", **series) == 1


async def change_policy(found: Policed, **fields: str) -> None:
    """Change fields of the directive; returns once the leader has told of the policy as it is then."""
    (directive,) = (await found.api.request("GET", POLICY))["spec"]["spread"]
    changed = await found.api.patch(POLICY, {"spec": {"spread": [directive | fields]}})
    generation = changed["metadata"]["generation"]
    async with asyncio.timeout(PATIENCE):
        while (await found.api.request("GET", POLICY)).get("status", {}).get("observedGeneration") != generation:  # noqa: ASYNC110 -- no event across processes
            await asyncio.sleep(0.1)


async def lose(found: Policed, zone: str) -> None:
    """What the node lifecycle controller writes when the kubelets of a zone are silent."""
    now = rfc3339(datetime.now(UTC))
    taints = [
        {"key": "node.kubernetes.io/unreachable", "effect": effect, "timeAdded": now}
        for effect in ("NoSchedule", "NoExecute")
    ]
    await _report(found, zone, taints, {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}, now)


async def bring_back(found: Policed, zone: str) -> None:
    now = rfc3339(datetime.now(UTC))
    await _report(found, zone, [], {"type": "Ready", "status": "True", "reason": "KubeletReady"}, now)


async def _report(found: Policed, zone: str, taints: list[JsonObject], condition: JsonObject, now: str) -> None:
    status = {"conditions": [{**condition, "lastTransitionTime": now, "lastHeartbeatTime": now}]}
    for each in (await found.api.list(NODES))[0]:
        if labels_of(each)[ZONE] == zone:
            path = f"{NODES}/{name_of(each)}"
            await found.api.request("PATCH", f"{path}/status", {"status": status}, content_type=_SMP)
            await found.api.patch(path, {"spec": {"taints": taints}})
    ready = [{"type": name, "status": str(condition["status"] == "True")} for name in ("Ready", "ContainersReady")]
    for each in pods_of(found):
        if node_of(each).startswith(f"{zone}-"):
            await found.api.request(
                "PATCH", f"{pod_path(each)}/status", {"status": {"conditions": ready}}, content_type=_SMP
            )


async def command(*arguments: str) -> str:
    """What a command of the extender prints."""
    done = await asyncio.to_thread(
        subprocess.run, our_command(*arguments), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def explained(found: Policed, name: str) -> str:
    return await command("explain", f"default/{name}", "--url", found.extender.url)


async def operator_exclusions(found: Policed) -> set[str]:
    """What explain says of z2 about a pod that no node has room for: since when it is excluded, until when, and why."""
    await found.api.create(big("big"))
    await found.cluster.board.rejected(big("big"))
    said = await explained(found, "big")
    await found.api.delete("/api/v1/namespaces/default/pods/big", grace=0)
    return set(re.findall(r"z2: excluded since [^ ]+ until [^ ]+: new switches", said))


async def domain(found: Policed, *arguments: str) -> str:
    return await command("domain", *arguments, "--kubeconfig", str(found.cluster.plane.kubeconfig))


def costs(found: JsonObject) -> dict[str, str]:
    """The annotations of a pod about its cost of deletion."""
    annotations = found["metadata"].get("annotations", {})
    return {name: annotations[name] for name in (DELETION_COST, DELETION_COST_MARK) if name in annotations}


def big(name: str) -> JsonObject:
    """A pod with the same constraint that no node has room for."""
    return pod(name, labels=LABELS, cpu="100", topologySpreadConstraints=[spread(labels=LABELS)])


def declared(*names: str) -> JsonObject:
    """TopologyDomains of these zones."""
    spec = {"topologyKey": ZONE, "domains": list(names)}
    return {"apiVersion": API_VERSION, "kind": "TopologyDomains", "metadata": {"name": "zones"}, "spec": spec}
