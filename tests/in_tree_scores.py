"""The score plugins of kube-scheduler 1.36, written from their documentation, for tests that compare choices by their points.

https://kubernetes.io/docs/reference/scheduling/config/#scheduling-plugins
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor

from extender.model.objects import Node, Pod
from extender.settings.rules import Answers

DEFAULT_CPU, DEFAULT_MEMORY = 100, 200 * 2**20
Pair = tuple[float, float]


@dataclass(slots=True)
class UsedNode:
    """A node, and the CPU and memory that its pods request: as they say, and with defaults for pods that do not say."""

    node: Node
    cpu: int = 0
    memory: int = 0
    cpu_with_defaults: int = 0
    memory_with_defaults: int = 0

    def add(self, pod: Pod) -> None:
        cpu, memory = _requests(pod)
        self.cpu += cpu
        self.memory += memory
        self.cpu_with_defaults += cpu or DEFAULT_CPU
        self.memory_with_defaults += memory or DEFAULT_MEMORY

    def has_room_for(self, pod: Pod) -> bool:
        offered = self.node.allocatable
        cpu, memory = _requests(pod)
        return self.cpu + cpu <= offered["cpu"] and self.memory + memory <= offered["memory"]


def _requests(pod: Pod) -> tuple[int, int]:
    return pod.requests.get("cpu", 0), pod.requests.get("memory", 0)


@dataclass(frozen=True, slots=True)
class Scores:
    """The points of each node by plugin, before the weights."""

    fit: list[float]
    balance: list[float]
    preference: list[float]
    taints: list[float]

    def sums(self, answers: Answers) -> list[float]:
        """The weighted sum of each node."""
        weights = answers.scores
        parts = zip(self.fit, self.balance, self.preference, self.taints, strict=True)
        return [
            weights.node_resources_fit * fit
            + weights.node_resources_balanced_allocation * balance
            + weights.node_affinity * preference
            + weights.taint_toleration * taints
            for fit, balance, preference, taints in parts
        ]


def scores(pod: Pod, nodes: Sequence[UsedNode], answers: Answers, *, rounds: bool = True) -> Scores:
    """The points of the pod on each of these nodes. ``rounds``: down to integers at each step, as kube-scheduler."""
    down: Callable[[float], float] = floor if rounds else float
    terms, tolerations = pod.signature.preferred_nodes, pod.signature.tolerations
    weights = [
        sum(each.weight for each in terms if each.term.matches(used.node.name, used.node.labels)) for used in nodes
    ]
    soft = [[each for each in used.node.taints if each.effect == "PreferNoSchedule"] for used in nodes]
    counts = [sum(not any(one.tolerates(each) for one in tolerations) for each in taints) for taints in soft]
    most, worst = max(weights) or 1, max(counts) or 1
    return Scores(
        [_fit(pod, used, answers, down) for used in nodes],
        [_balance(pod, used, down) for used in nodes],
        [floor(100 * weight / most) for weight in weights],
        [100 - floor(100 * count / worst) for count in counts],
    )


def _fit(pod: Pod, used: UsedNode, answers: Answers, down: Callable[[float], float]) -> float:
    cpu, memory = _requests(pod)
    requested = (
        used.cpu_with_defaults + (cpu or DEFAULT_CPU),
        used.memory_with_defaults + (memory or DEFAULT_MEMORY),
    )
    offered = used.node.allocatable["cpu"], used.node.allocatable["memory"]
    if answers.scoring_strategy == "MostAllocated":
        points = [down(100 * amount / of) for amount, of in zip(requested, offered, strict=True)]
    else:
        points = [down(100 * (of - amount) / of) for amount, of in zip(requested, offered, strict=True)]
    return down(sum(points) / 2)


def _balance(pod: Pod, used: UsedNode, down: Callable[[float], float]) -> float:
    cpu, memory = _requests(pod)
    if not (cpu or memory):
        return 0
    offered = used.node.allocatable["cpu"], used.node.allocatable["memory"]
    before = _evenness((used.cpu, used.memory), offered, down)
    after = _evenness((used.cpu + cpu, used.memory + memory), offered, down)
    return 50 + down((50 + after - before) / 2)


def _evenness(requested: Pair, offered: Pair, down: Callable[[float], float]) -> float:
    cpu, memory = (min(amount / of, 1) for amount, of in zip(requested, offered, strict=True))
    return down(100 * (1 - abs(cpu - memory) / 2))
