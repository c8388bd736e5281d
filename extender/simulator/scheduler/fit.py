"""The in-tree filters and the score of the scheduling loop, over its cache. Pure.

Small versions of NodeUnschedulable, TaintToleration, NodeAffinity and NodeResourcesFit filter; LeastAllocated scores.
InterPodAffinity and PodTopologySpread are missing, because the extender decides them in offload mode.
"""

from typing import NamedTuple

from extender.model.resources import CPU, MEMORY, PODS
from extender.simulator.json_objects import JsonObject, uid_of
from extender.simulator.oracle.node_matching import matches_node_affinity, required_terms, tolerates, untolerated
from extender.simulator.scheduler.cache import Claim, NodeState, SchedulerCache, claim_of

UNSCHEDULABLE, UNRESOLVABLE = "Unschedulable", "UnschedulableAndUnresolvable"
_UNSCHEDULABLE_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
MIN_FEASIBLE_NODES = 100
_LEAST_PERCENTAGE = 5


class Rejection(NamedTuple):
    """Why a node was rejected: the plugin, its status code and its reason."""

    plugin: str
    code: str
    reason: str


class Fit:
    """The in-tree filters for one pod. What does not depend on the node is computed once."""

    def __init__(self, pod: JsonObject, cache: SchedulerCache) -> None:
        self.pod = pod
        self.cache = cache
        self.claim = claim_of(pod)
        self._wanted = list(self.claim.requests.items())
        spec = pod["spec"]
        self._has_affinity = bool(spec.get("nodeSelector")) or required_terms(pod) is not None
        self._tolerates_cordon = any(
            tolerates(toleration, _UNSCHEDULABLE_TAINT) for toleration in spec.get("tolerations") or []
        )

    def rejection(self, state: NodeState) -> Rejection | None:
        """The rejection of the first filter that rejects the node; None if it passes all."""
        if (state.node.get("spec") or {}).get("unschedulable") and not self._tolerates_cordon:
            return Rejection("NodeUnschedulable", UNRESOLVABLE, "node(s) were unschedulable")
        if state.taints and untolerated(self.pod, state.node) is not None:
            return Rejection("TaintToleration", UNRESOLVABLE, "node(s) had untolerated taint(s)")
        if self._has_affinity and not matches_node_affinity(self.pod, state.node):
            return Rejection("NodeAffinity", UNRESOLVABLE, "node(s) didn't match Pod's node affinity/selector")
        return self._missing_resources(state)

    def score(self, state: NodeState) -> float:
        """The score, 0 to 100: the share of CPU and memory that stays free (NodeResourcesFit, LeastAllocated)."""
        return sum(self._left(state, resource) for resource in (CPU, MEMORY)) / 2

    def _left(self, state: NodeState, resource: str) -> float:
        allocatable = state.allocatable.get(resource, 0)
        taken = state.requested.get(resource, 0) + self.claim.requests.get(resource, 0)
        return 0.0 if allocatable <= 0 or taken > allocatable else (allocatable - taken) * 100 // allocatable

    def _missing_resources(self, state: NodeState) -> Rejection | None:
        nominated = self._nominated_claims(state)
        if len(state.claims) + len(nominated) + 1 > state.allocatable.get(PODS, 0):
            return Rejection("NodeResourcesFit", UNSCHEDULABLE, "Too many pods")
        for resource, amount in self._wanted:
            taken = state.requested.get(resource, 0) + sum(claim.requests.get(resource, 0) for claim in nominated)
            if taken + amount > state.allocatable.get(resource, 0):
                return Rejection("NodeResourcesFit", UNSCHEDULABLE, f"Insufficient {resource}")
        return None

    def _nominated_claims(self, state: NodeState) -> list[Claim]:
        """The claims of pods nominated to the node whose priority is at least that of this pod."""
        nominated = self.cache.nominated.get(state.name)
        if not nominated:
            return []
        own = uid_of(self.pod)
        return [claim for uid, claim in nominated.items() if uid != own and claim.priority >= self.claim.priority]


def nodes_to_find(percentage: int, total: int) -> int:
    """How many passing nodes end the search (percentageOfNodesToScore); 0 percent depends on the size of the cluster."""
    if total < MIN_FEASIBLE_NODES:
        return total
    if percentage == 0:
        percentage = max(_LEAST_PERCENTAGE, 50 - total // 125)
    if percentage >= 100:  # noqa: PLR2004 (all)
        return total
    return max(MIN_FEASIBLE_NODES, total * percentage // 100)


def summary(total: int, rejections: dict[str, Rejection]) -> str:
    """The message of a pod that no node fits, in the form of kube-scheduler's FitError."""
    counts: dict[str, int] = {}
    for rejection in rejections.values():
        counts[rejection.reason] = counts.get(rejection.reason, 0) + 1
    parts = sorted(f"{count} {reason}" for reason, count in counts.items())
    text = f"0/{total} nodes are available"
    return f"{text}: {', '.join(parts)}." if parts else f"{text}."
