"""A tenant writes at random in its namespace, 100 times a second: no quota, share, policy or alert of others is touched.

HOSTILE_SECONDS says for how long, for example 600; HOSTILE_SEED what it writes.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any, Final

import pytest

from extender.simulator.json_objects import JsonObject, namespace_of, node_of
from tests.deploy.policies.examples import policy
from tests.e2e.board import key_of
from tests.e2e.client import pod_path
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import scheduler_document
from tests.e2e.hostile_tenant import HOSTILE, Tenant, tenant
from tests.e2e.policing import Policed, policed
from tests.e2e.test_gangs import LABEL, POLICIES, SIZE, gang, without_placements, zones
from tests.simulator.plain import HOSTNAME, ZONE, anti_affinity, node, pod, spread, term

_SECONDS: Final = float(os.environ.get("HOSTILE_SECONDS", "60"))
_SEED: Final = int(os.environ.get("HOSTILE_SEED", "1"))

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600 + 2 * _SECONDS)]

WITHIN: Final = 90.0
QUOTA, EACH = 6, 3  # pods of the first domain, and of a gang
MOST_TERMS: Final = 4  # in an hour, of the alert ExtenderLeaderChanges; a busy machine misses a renewal
COST: Final = "controller.kubernetes.io/pod-deletion-cost"
WEB: Final = "/apis/apps/v1/namespaces/default/replicasets"
SETTINGS: Final[dict[str, Any]] = {
    "leaderElection": {"enabled": True},
    "preemption": {"mode": "execute"},
    "quota": {"enabled": True, "default": {"action": "Deny"}},
    "release": {"podsPerNamespace": 100, "sharePerNamespace": 0.25},
}
HONEST: Final = {"matchLabels": {"kubernetes.io/metadata.name": "default"}}


def release(name: str, namespaces: JsonObject, **more: Any) -> JsonObject:
    block = {"group": {"label": LABEL}, "size": {"annotation": SIZE}, "topology": [ZONE], **more}
    spec = {"podSelector": {"matchLabels": {"kind": name}}, "namespaceSelector": namespaces, "when": ["Release"]}
    return policy("ClusterPodSchedulingPolicy", name, **spec, release=block)


def policies() -> list[JsonObject]:
    """A quota of the honest namespace, what all share, spread of all, and the honest tenant's own."""
    domains = [{"name": "first", "values": ["z1"], "quota": {"pods": QUOTA}}, {"name": "second", "values": ["z2"]}]
    directive = {"topologyKey": ZONE, "unavailableDomains": "Exclude", "deletionCost": "Fullest"}
    spreading: dict[str, Any] = {"podSelector": {}, "namespaceSelector": {}, "spread": [directive]}
    return [
        release("quota", HONEST, strategy="InOrder", domains=domains),
        release("shared", {}),
        policy("ClusterPodSchedulingPolicy", "spreading", **spreading),
        policy("PodSchedulingPolicy", "own", nodeSelector={ZONE: "z2"}),
    ]


class Honest:
    """What the other tenant runs meanwhile, again and again, and what must hold of it."""

    def __init__(self, found: Policed, owner: JsonObject) -> None:
        self._found = found
        self._owner = owner
        self._web: list[JsonObject] = []

    async def play(self, number: int) -> list[str]:
        """Return what is wrong."""
        api, board = self._found.api, self._found.cluster.board
        gangs = [self._gang("quota", f"q{number}-{at}") for at in range(3)]
        shared = self._gang("shared", f"s{number}")
        own = [pod(f"db-{number}-{at}", cpu="1m", labels={"app": "db"}) for at in range(2)]
        apart = anti_affinity(term(HOSTNAME, app="apart"))
        alone = [pod(f"apart-{number}-{at}", cpu="1m", labels={"app": "apart"}, affinity=apart) for at in range(3)]
        self._web = self._askew(number)
        pods = [*(made for each in gangs for made in each), *shared, *own, *alone, *self._web]
        await api.create(*pods)
        await board.bound(*pods, within=WITHIN)
        at = await zones(api)
        where = [{at[board.node(key_of(made))] for made in each} for each in (*gangs, shared)]
        found = [
            f"gang {place} of round {number} is split: {each}" for place, each in enumerate(where) if len(each) > 1
        ]
        by_zone = Counter(next(iter(each)) for each in where[:3])
        if by_zone != {"z1": QUOTA // EACH, "z2": 1}:
            found.append(f"gangs by zone: {by_zone}")
        if any(board.pods[key_of(made)]["spec"].get("nodeSelector") != {ZONE: "z2"} for made in own):
            found.append("the tenant's own policy was not applied")
        if any(board.pods[key_of(made)]["spec"].get("nodeSelector") for made in alone):
            found.append("a policy was applied that does not select the pod")
        if len({board.node(key_of(made)) for made in alone}) != len(alone):
            found.append("pods are not apart")
        found += await self._until(f"quota used: {QUOTA} and {EACH}", lambda: self._used([QUOTA, EACH]))
        found += await self._until("deletion costs", self._costs)
        found += await self._until("skew of web", self._skew)
        found += [f"{key} reaches others" for key in self._reaching()]
        for made in pods:
            await api.delete(pod_path(made), grace=0)
        await board.until(lambda: not any(key_of(made) in board.pods for made in pods), within=WITHIN)
        return found + await self._until("quota free again", lambda: self._used([0, 0]))

    def _askew(self, number: int) -> list[JsonObject]:
        """Pods of the ReplicaSet web, all in one zone."""
        labels = {"app": "web"}
        constraints = [spread(labels=labels)]
        pods = [
            pod(f"web-{number}-{at}", on="z1-1", cpu="1m", labels=labels, topologySpreadConstraints=constraints)
            for at in range(3)
        ]
        for made in pods:
            made["metadata"]["ownerReferences"] = [self._owner]
        return pods

    def _gang(self, kind: str, name: str) -> list[JsonObject]:
        pods = gang(name, EACH)
        for made in pods:
            made["metadata"]["labels"]["kind"] = kind
        return pods

    async def _used(self, wanted: list[int]) -> bool:
        found = (await self._found.api.request("GET", f"{POLICIES}/quota")).get("status", {}).get("domains", [])
        return [each.get("used", {}).get("pods", 0) for each in found] == wanted

    async def _costs(self) -> bool:
        board = self._found.cluster.board
        return any(COST in board.pods[key_of(made)]["metadata"].get("annotations", {}) for made in self._web)

    async def _skew(self) -> bool:
        series = {"namespace": "default", "workload": "ReplicaSet/web", "topology_key": ZONE}
        return await self._found.extender.metric("extender_spread_skew", **series) == len(self._web)

    def _reaching(self) -> list[str]:
        """Pods of the hostile tenant with affinity across namespaces that have a node, though no quota lets them."""
        pods = self._found.cluster.board.pods
        return [
            key
            for key, made in pods.items()
            if namespace_of(made) == HOSTILE
            and node_of(made)
            and "namespaceSelector" in str(made["spec"].get("affinity"))
        ]

    async def _until(self, what: str, holds: Callable[[], Any]) -> list[str]:
        with suppress(TimeoutError):
            async with asyncio.timeout(WITHIN):
                while not await holds():  # noqa: ASYNC110 -- no event across processes
                    await asyncio.sleep(0.2)
                return []
        return [f"not within {WITHIN:.0f} s: {what}"]


@pytest.fixture
async def running(cluster: Cluster) -> AsyncIterator[tuple[Policed, Honest, JsonObject]]:
    """Two zones, policies, a scheduler, and a ReplicaSet of the honest tenant."""
    api = cluster.api
    await api.create(*(node(f"z{zone}-{number}", f"z{zone}", cpu="16") for zone in (1, 2) for number in range(1, 5)))
    async with policed(cluster, SETTINGS) as found:
        try:
            for each in policies():
                await found.apply(each)
            await asyncio.to_thread(cluster.plane.start_scheduler, scheduler_document("offload", found.extender.url))
            labels = {"app": "web"}
            template = {"metadata": {"labels": labels}, "spec": pod("web")["spec"]}
            spec = {"selector": {"matchLabels": labels}, "replicas": 3, "template": template}
            body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"}, "spec": spec}
            made = await api.request("POST", WEB, body)
            owner: JsonObject = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": True}
            owner["uid"] = made["metadata"]["uid"]
            yield found, Honest(found, owner), owner
        finally:
            cluster.plane.scheduler.stop()
            await api.delete(f"{WEB}/web")
    await without_placements(api)


async def test_a_tenant_that_writes_at_random_touches_nothing_of_others(
    running: tuple[Policed, Honest, JsonObject],
) -> None:
    found, honest, owner = running
    cluster, metric = found.cluster, found.extender.metric
    groups = [{LABEL: name, "kind": kind} for name in ("q0-0", "s0", "mine", "yours") for kind in ("quota", "shared")]
    forged = [*groups, *({"app": app} for app in ("web", "db", "apart", "asking"))]
    wrong: dict[int, list[str]] = {}
    loop = asyncio.get_running_loop()
    assert await honest.play(-1) == [], "without the hostile tenant"
    async with tenant(cluster.api, cluster.plane, cluster.plane.authority) as own:
        writer = Tenant(own, Random(_SEED), forged, owner)
        begun, writing = loop.time(), asyncio.create_task(writer.run())
        for number in count():
            if loop.time() - begun > _SECONDS:
                break
            if problems := await honest.play(number):
                wrong[number] = problems
            if writing.done():
                break
        lasted = loop.time() - begun
        writing.cancel()
        with suppress(asyncio.CancelledError):
            await writing
    failed, asked = [await metric(f"extender_{name}_total") for name in ("request_failures", "requests")]
    print(  # noqa: T201 -- shown by -s
        f"{writer.writes / lasted:.0f} writes a second for {lasted:.0f} s, answers {dict(writer.answers)}; "
        f"{number} rounds of others; {failed:.0f} of {asked:.0f} requests failed"
    )
    assert wrong == {}
    assert number >= 2
    assert failed <= asked * 0.001, "the error budget that alerts are about"
    assert await metric("extender_audit_differences_total") == 0
    assert await metric("extender_leader_terms_total") <= MOST_TERMS
    assert "Traceback" not in found.extender.program.log()
