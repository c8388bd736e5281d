"""Small clusters whose pods a policy watches."""

from __future__ import annotations

from typing import Any, Final

from extender.features.execution.broken import BrokenConstraints
from extender.index.cluster import ClusterIndex
from extender.model.bounded import at_once
from extender.model.objects import Node, Object, Pod
from extender.model.policies import PolicyObject
from tests.builders import index_of, node, pod, settings, spread
from tests.policies import policy

SETTINGS: Final = settings(policies={"enabled": True})
SPREAD: Final = [spread("zone", app="web")]
ZONES: Final = ("a", "b", "c")
ROOM: Final = {"cpu": "8", "pods": "20"}


def watch(namespace: str = "", **execution: Any) -> PolicyObject:
    """A policy that watches every pod."""
    return PolicyObject(policy("watch", namespace, when=["Execution"], execution=execution))


def zoned(*counts: int) -> list[Node]:
    """So many nodes in zone a, in zone b, and so on: a0, a1, b0."""
    named = [(zone, f"{zone}{number}") for zone, nodes in zip(ZONES, counts, strict=False) for number in range(nodes)]
    return [node(name, zone=zone, allocatable=ROOM) for zone, name in named]


def web(name: str, on: str, **fields: Any) -> Pod:
    """A pod of a ReplicaSet with a spread constraint over zones."""
    return pod(name, on=on, **{"app": "web", "owner": ("ReplicaSet", "web"), "spreads": SPREAD, **fields})


def webs(*counts: int, **fields: Any) -> list[Pod]:
    """So many such pods on node a0, on b0, and so on: web-a0, web-a1, web-b0."""
    named = [(zone, number) for zone, pods in zip(ZONES, counts, strict=False) for number in range(pods)]
    return [web(f"web-{zone}{number}", f"{zone}0", **fields) for zone, number in named]


def watched(*objects: Object, policy: PolicyObject | None = None) -> tuple[ClusterIndex, BrokenConstraints]:
    """An index with these objects, and what is broken after a round at the time 0."""
    index = index_of(policy or watch(), *objects)
    broken = BrokenConstraints(index.view, SETTINGS)
    at_once(broken.round(0.0))
    return index, broken


def texts(broken: BrokenConstraints) -> list[str]:
    return sorted(finding.text for pods in broken.found.values() for finding in pods.found)
