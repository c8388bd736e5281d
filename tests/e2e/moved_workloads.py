"""The cases of `config/scenarios/moves.yaml` on a real control plane: workloads whose constraints are broken, and what is moved.

Each namespace is a case with nodes of its own. Pods are created on their nodes, and real controllers adopt them.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import yaml

from extender.cli.simulate import read_scenario
from extender.simulator.json_objects import (
    JsonObject,
    condition_of,
    is_finished,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
    node_of,
    uid_of,
)
from extender.simulator.oracle.moves import RunningPods, mendable
from extender.simulator.scenario.language import ChangeNodes, Expect, ExpectMoves, NodeGroup, RelabelNamespace
from extender.simulator.scenario.synthetic import ZONE, chosen, make_cluster, make_nodes
from tests.e2e import controllers
from tests.e2e.client import NAMESPACES, NODES, Api, pod_path
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import CONFIG
from tests.e2e.growing_group import Started

SCENARIO: Final = CONFIG / "scenarios" / "moves.yaml"
CASES: Final = (
    *("zone", "added", "labels", "tenants", "pool522", "tainted", "replicas", "budget", "stateful", "volumes"),
    *("gang", "rude"),
)
_OBJECTS: Final = CONFIG / "scenarios" / "moves" / "policy.yaml"
_ANY: Final = ("tenants-other", "rude-tenant", *CASES)
_CALM: Final = 2.0  # seconds without an event of a pod
_CORDONED: Final = "node.kubernetes.io/unschedulable"


def policy_and_budget() -> tuple[JsonObject, JsonObject]:
    """The objects of the scenario: what moves pods, and the budget that never allows."""
    policy, budget, *_ = yaml.safe_load_all(_OBJECTS.read_text("utf-8"))
    return policy, budget


def expected() -> dict[str, ExpectMoves]:
    """What the scenario promises of each case."""
    last = read_scenario(str(SCENARIO)).steps[-1].action
    assert isinstance(last, Expect)
    return {case: found for case, found in (last.moves or {}).items() if case in CASES}


async def built(cluster: Cluster, stack: AsyncExitStack, assets: Path) -> int:
    """Namespaces, nodes, pods on their nodes, and controllers that adopt them; returns the number of pods."""
    play, api = read_scenario(str(SCENARIO)), cluster.api
    objects = make_cluster(play.scenario.cluster, play.templates, [], Random(1))
    of = {kind: [each for each in objects if each["kind"] == kind] for kind in ("Namespace", "Node", "Pod")}
    pods = [each for each in of["Pod"] if namespace_of(each) in _ANY]
    namespaces = [each for each in of["Namespace"] if name_of(each) in _ANY]
    await api.create(*(_plain(each) for each in namespaces))
    await api.create(*of["Node"], policy_and_budget()[1], *_volume())
    owned = defaultdict[str, list[JsonObject]](list)
    for each in pods:
        (owner,) = each["metadata"].pop("ownerReferences")
        labels = {key: value for key, value in labels_of(each).items() if not key.startswith("topology.")}
        each["metadata"]["labels"] = labels
        del each["status"]
        each["spec"]["terminationGracePeriodSeconds"] = 1
        owned[f"{namespace_of(each)}/{owner['kind']}/{owner['name']}"].append(each)
    Started(api, cluster.board)
    await api.create(*pods)
    await cluster.board.until(lambda: ready(cluster) == len(pods))
    await api.create(*(_controller(key, members) for key, members in owned.items()))
    cluster.board.ends_after = lambda: 0.2
    await stack.enter_async_context(controllers.controlled(cluster, assets))
    return len(pods)


def _plain(found: JsonObject) -> JsonObject:
    return {**found, "metadata": {"name": name_of(found), "labels": labels_of(found)}, "spec": {}, "status": {}}


def _controller(key: str, pods: list[JsonObject]) -> JsonObject:
    """A ReplicaSet or StatefulSet whose selector matches these pods."""
    namespace, kind, name = key.split("/")
    labels = labels_of(pods[0])
    spec = {name: value for name, value in pods[0]["spec"].items() if name != "nodeName"}
    more: dict[str, Any] = {}
    if kind == "StatefulSet":
        # The pods have no label of a revision, so by another strategy they would be replaced.
        more = {"serviceName": name, "podManagementPolicy": "Parallel", "updateStrategy": {"type": "OnDelete"}}
    return {
        "kind": kind,
        "apiVersion": "apps/v1",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": len(pods),
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
            **more,
        },
    }


def _volume() -> list[JsonObject]:
    """The volume of the case `volumes`, which exists in zone a only, and its claim, which is bound to it."""
    shared = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    zone = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["zone-a"]}]}
    claim = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "volumes", "name": "data"}
    return [
        {
            "kind": "PersistentVolume",
            "apiVersion": "v1",
            "metadata": {"name": "placement-moves"},
            "spec": {
                **shared,
                "capacity": {"storage": "1Gi"},
                "hostPath": {"path": "/data"},
                "claimRef": claim,
                "nodeAffinity": {"required": {"nodeSelectorTerms": [zone]}},
            },
        },
        {
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
            "metadata": {
                "name": "data",
                "namespace": "volumes",
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {**shared, "volumeName": "placement-moves", "resources": {"requests": {"storage": "1Gi"}}},
        },
    ]


def ready(cluster: Cluster) -> int:
    """How many pods are ready."""
    return sum(map(is_ready, cluster.board.pods.values()))


def is_ready(pod: JsonObject) -> bool:
    """Whether a pod is ready and is not being deleted."""
    return (condition_of(pod, "Ready") or {}).get("status") == "True" and not is_terminating(pod)


async def upset(cluster: Cluster, pods: int) -> None:
    """What breaks the constraints: a zone is lost and returns, another case gets a new zone, nodes and a namespace get other labels."""
    api, board = cluster.api, cluster.board
    await _cordon(api, "zone-c*", is_cordoned=True)
    lost = [pod for pod in board.pods.values() if node_of(pod).startswith("zone-c")]
    for pod in lost:
        await api.delete(pod_path(pod))
    gone = set(map(uid_of, lost))
    await board.until(lambda: ready(cluster) == pods and not gone & set(map(uid_of, board.pods.values())))
    for step in read_scenario(str(SCENARIO)).steps:
        match step.action:
            case NodeGroup() as group:
                await api.create(*make_nodes(group, int(str(group.count))))
            case ChangeNodes(action="relabel") as change:
                for name in await _names(api, NODES, change.nodes):
                    await api.patch(f"{NODES}/{name}", {"metadata": {"labels": change.labels}})
            case ChangeNodes(action="uncordon") as change:
                await _cordon(api, change.nodes, is_cordoned=False)
            case RelabelNamespace() as change:
                for name in await _names(api, NAMESPACES, change.namespaces):
                    await api.patch(f"{NAMESPACES}/{name}", {"metadata": {"labels": change.labels}})
            case _:
                pass


async def _names(api: Api, path: str, pattern: str) -> list[str]:
    return chosen(pattern, [name_of(found) for found in (await api.list(path))[0]])


async def _cordon(api: Api, pattern: str, *, is_cordoned: bool) -> None:
    taints = [{"key": _CORDONED, "effect": "NoSchedule"}] if is_cordoned else []
    for name in await _names(api, NODES, pattern):
        await api.patch(f"{NODES}/{name}", {"spec": {"unschedulable": is_cordoned, "taints": taints}})


class Found(NamedTuple):
    """The end of a case. ``evictions`` by round; ``worst``: the most pods that were not ready."""

    evictions: list[int]
    broken: int
    mendable: int
    pending: int
    worst: int


@dataclass
class Watching:
    """Counts evictions, and pods that are not ready, from now on."""

    cluster: Cluster
    replicas: Counter[str] = field(default_factory=Counter)
    worst: Counter[str] = field(default_factory=Counter)
    evicted: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    rounds: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    last_event: float = 0.0
    last_eviction: float = 0.0

    def __post_init__(self) -> None:
        pods = self.cluster.board.pods.values()
        self.replicas.update(namespace_of(pod) for pod in pods if not is_terminating(pod))
        self.last_event = self.last_eviction = time.monotonic()
        self.cluster.board.listeners.append(self._look)

    def _look(self, pod: JsonObject) -> None:
        self.last_event = time.monotonic()
        namespace, uid = namespace_of(pod), uid_of(pod)
        reason = (condition_of(pod, "DisruptionTarget") or {}).get("reason")
        if is_terminating(pod) and reason == "EvictionByEvictionAPI" and uid not in self.evicted[namespace]:
            self.evicted[namespace].add(uid)
            self.last_eviction = time.monotonic()
        alive = Counter(namespace_of(each) for each in self.cluster.board.pods.values() if is_ready(each))
        self.worst[namespace] = max(self.worst[namespace], self.replicas[namespace] - alive[namespace])

    def end_round(self) -> int:
        """Notes the evictions of each case since the last round; returns their sum."""
        for case in CASES:
            self.rounds[case].append(len(self.evicted[case]) - sum(self.rounds[case]))
        return sum(self.rounds[case][-1] for case in CASES)

    async def calm(self, within: float = 60.0) -> None:
        """Return once nothing has happened to a pod for some seconds."""
        async with asyncio.timeout(within):
            while time.monotonic() - self.last_event < _CALM:  # noqa: ASYNC110 -- the end of events is no event
                await asyncio.sleep(0.1)

    async def quiet(self, seconds: float, within: float) -> None:
        """Return once no pod was evicted for so many seconds."""
        async with asyncio.timeout(within):
            while time.monotonic() - self.last_eviction < seconds:  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0.1)

    async def found(self) -> dict[str, Found]:
        """The end of each case, judged by brute force."""
        api, running = self.cluster.api, RunningPods(lambda pod, _: namespace_of(pod) in CASES)
        for node in (await api.list(NODES))[0]:
            running.state.set_node(node)
        for namespace in (await api.list(NAMESPACES))[0]:
            running.state.set_namespace(name_of(namespace), labels_of(namespace))
        for pod in self.cluster.board.pods.values():
            running.show_pod(pod)
        broken = Counter(namespace_of(running.placed[uid].pod) for uid in running.watched() if running.is_broken(uid))
        could = Counter(
            namespace_of(running.placed[uid].pod)
            for uid in mendable(running, lambda pod: namespace_of(pod) != "budget")
        )
        pending = Counter(
            namespace_of(pod)
            for pod in self.cluster.board.pods.values()
            if not node_of(pod) and not is_finished(pod) and not is_terminating(pod)
        )
        return {
            case: Found(self.rounds[case], broken[case], could[case], pending[case], self.worst[case]) for case in CASES
        }


def lines(found: dict[str, Found]) -> list[str]:
    """The rows of a table in Markdown."""
    head = ["| case | evictions | broken at the end | a move could mend | pending at the end | not ready at worst |"]
    head.append("|---|---|---|---|---|---|")
    rows = [
        f"| {case} | {_evictions(end.evictions)} | {end.broken} | {end.mendable} | {end.pending} | {end.worst} |"
        for case, end in found.items()
    ]
    return [*head, *rows]


def _evictions(rounds: list[int]) -> str:
    return (
        f"{sum(rounds)}, does not end after {len(rounds)} rounds"
        if len(rounds) > 1 and rounds[-1]
        else f"{sum(rounds)}"
    )
