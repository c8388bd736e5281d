"""Replicas whose deletion costs a task keeps."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from extender.index.cluster import ClusterIndex
from extender.kube.effects import PodRef
from extender.model.policies import Policy, PolicyObject
from extender.tasks.deletion_costs import DeletionCosts
from tests.builders import Json, index_of, node, pod_json, read_pod, settings, spread
from tests.fakes import FakeClock


def replica(name: str, zone: str, namespace: str = "default", costs: Json | None = None, **more: Any) -> Json:
    body = pod_json(
        name,
        on=f"n{zone}",
        namespace=namespace,
        app="web",
        owner=("ReplicaSet", "web"),
        spreads=[spread("zone", app="web")],
        **more,
    )
    body["metadata"]["annotations"] = costs or {}
    return body


class Scene:
    """Zones a and b, pods of ReplicaSets, and a task whose writes the watch shows at once."""

    def __init__(self, *policies: Policy) -> None:
        self.index: ClusterIndex = index_of(*map(PolicyObject, policies), node("na", zone="a"), node("nb", zone="b"))
        self.clock = FakeClock()
        self.written: list[tuple[str, str | None]] = []
        enabled = settings(policies={"enabled": True})
        self.task = DeletionCosts(self.index, enabled, self.write, self.clock, lambda: True)

    def put(self, *bodies: Json) -> None:
        for body in bodies:
            self.index.upsert(read_pod(body))

    async def write(self, pod: PodRef, cost: str | None) -> None:
        self.written.append((f"{pod.namespace}/{pod.name}", cost))
        found = self.index.pods[pod.uid]
        self.index.upsert(replace(found, deletion_cost=cost or "", has_own_cost=cost is not None))
