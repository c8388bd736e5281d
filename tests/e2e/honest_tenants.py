"""The honest tenants beside a hostile one: their pods, quotas, budgets and alerts, checked each second."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from extender.simulator.json_objects import JsonObject, namespace_of, node_of
from tests.deploy.policies.examples import policy
from tests.e2e.board import key_of
from tests.e2e.client import pod_path
from tests.e2e.hostile_tenant import HOSTILE
from tests.e2e.pod_groups import LABEL, POLICIES, SIZE, gang, zones
from tests.e2e.policing import Policed
from tests.simulator.plain import HOSTNAME, ZONE, anti_affinity, pod, spread, term

WITHIN: Final = 90.0
QUOTA, EACH = 6, 3  # pods of the first domain, and of a gang
COST: Final = "controller.kubernetes.io/pod-deletion-cost"
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
        series = {"pod_namespace": "default", "workload": "ReplicaSet/web", "topology_key": ZONE}
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
