"""The scheduler cache: nodes, requested resources, assumed and nominated pods; and the in-tree filters for one pod.

The loop applies the store's changes to it, after a delay if configured; an assumed pod counts at once, as in
kube-scheduler. No await, no HTTP. Called by `scheduler/loop.py`.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import zip_longest
from typing import NamedTuple

from extender.model.resources import CPU, MEMORY, PODS, add, largest, parse_resources, total
from extender.simulator.apiserver.store import DELETED, ServedChange
from extender.simulator.json_objects import JsonObject, condition_of, is_finished, labels_of, name_of, node_of, uid_of
from extender.simulator.oracle.brute_force import (
    matches_node_affinity,
    matches_term,
    required_terms,
    tolerates,
    untolerated,
)

_PREFER_NO_SCHEDULE = ("PreferNoSchedule",)
ZONE = "topology.kubernetes.io/zone"


class ClusterEvent(Enum):
    """A change that can make a rejected pod schedulable."""

    POD_BOUND = "assigned pod added"
    POD_CHANGED = "assigned pod changed"
    POD_DELETED = "assigned pod deleted"
    NOMINATION_CHANGED = "nomination changed or cleared"
    NODE_ADDED = "node added"
    NODE_DELETED = "node deleted"
    NODE_LABELS = "node labels changed"
    NODE_TAINTS = "node taints or unschedulable changed"
    NODE_RESOURCES = "node allocatable changed"
    NODE_OTHER = "node annotations or conditions changed"


class Claim(NamedTuple):
    """The requests and the priority of a pod that counts on a node."""

    requests: dict[str, int]
    priority: int


class CachedNode:
    """A node and the resources requested on it, in milli-CPU and units."""

    __slots__ = ("allocatable", "claims", "name", "node", "requested", "taints")

    def __init__(self, node: JsonObject) -> None:
        self.name = name_of(node)
        self.claims: dict[str, Claim] = {}
        self.requested: dict[str, int] = {}
        self.set_node(node)

    def set_node(self, node: JsonObject) -> None:
        """Replaces the node object."""
        self.node = node
        self.taints = bool((node.get("spec") or {}).get("taints"))
        status = node.get("status") or {}
        self.allocatable = parse_resources(status.get("allocatable") or status.get("capacity") or {})

    def claim(self, uid: str, claim: Claim) -> None:
        """Counts a pod on the node, in place of its earlier claim."""
        self.release(uid)
        self.claims[uid] = claim
        add(self.requested, claim.requests)

    def release(self, uid: str) -> None:
        """Stops counting a pod."""
        earlier = self.claims.pop(uid, None)
        if earlier is not None:
            add(self.requested, earlier.requests, -1)


class SchedulerCache:
    """All nodes, and the node on which each pod counts (``where``, by UID)."""

    def __init__(self) -> None:
        self.nodes: dict[str, CachedNode] = {}
        self.where: dict[str, str] = {}
        self.assumed: set[str] = set()
        self.nominated: dict[str, dict[str, Claim]] = {}
        self._on_unknown_nodes: dict[str, dict[str, Claim]] = {}
        self._order: list[CachedNode] | None = None

    def ordered(self) -> list[CachedNode]:
        """The nodes, interleaved by zone as in the node tree of kube-scheduler."""
        if self._order is None:
            zones: dict[str, list[CachedNode]] = {}
            for state in self.nodes.values():
                zones.setdefault(labels_of(state.node).get(ZONE, ""), []).append(state)
            # Zones a and b with the nodes a1, a2, b1 give the order a1, b1, a2. So a sample has nodes of all zones.
            rounds = zip_longest(*zones.values())
            self._order = [state for round_ in rounds for state in round_ if state is not None]
        return self._order

    def assume(self, pod: JsonObject, node: str) -> None:
        """Counts a pod on the node selected for it, before it is bound."""
        uid = uid_of(pod)
        self.assumed.add(uid)
        # The pod counts on its node now. As a nominated pod it would count there twice.
        self.nominate(uid, "", Claim({}, 0))
        self._put(uid, node, claim_of(pod))

    def forget(self, uid: str) -> None:
        """Stops counting an assumed pod."""
        self.assumed.discard(uid)
        self._drop(uid)

    def nominate(self, uid: str, node: str, claim: Claim) -> bool:
        """Nominates a pending pod to a node, or to none if empty. Returns whether an earlier nomination changed."""
        had = [name for name, pods in self.nominated.items() if uid in pods]
        if had == ([node] if node else []):
            return False
        for name in had:
            del self.nominated[name][uid]
        if node:
            self.nominated.setdefault(node, {})[uid] = claim
        return bool(had)

    def apply_pod(self, change: ServedChange, pod: JsonObject) -> list[ClusterEvent]:
        """Applies a change of a pod. Returns the event for the queue."""
        uid, node = uid_of(pod), node_of(pod)
        # kube-scheduler does not watch finished pods, so the end of a pod looks like its deletion.
        if change.type == DELETED or is_finished(pod):
            self.assumed.discard(uid)
            held = self.nominate(uid, "", Claim({}, 0))
            return [ClusterEvent.POD_DELETED] if self._drop(uid) else [ClusterEvent.NOMINATION_CHANGED] if held else []
        if not node:
            changed = self.nominate(uid, (pod.get("status") or {}).get("nominatedNodeName") or "", claim_of(pod))
            return [ClusterEvent.NOMINATION_CHANGED] if changed else []
        # The event of a binding confirms the assumption of this pod. For other pods it is an addition all the same.
        was_known = uid in self.where and uid not in self.assumed
        self.assumed.discard(uid)
        self.nominate(uid, "", Claim({}, 0))
        self._put(uid, node, claim_of(pod))
        return [ClusterEvent.POD_CHANGED] if was_known else [ClusterEvent.POD_BOUND]

    def apply_node(self, change: ServedChange, node: JsonObject) -> list[ClusterEvent]:
        """Applies a change of a node. Returns the events for the queue."""
        name = name_of(node)
        state = self.nodes.get(name)
        if change.type == DELETED:
            self._order = None
            if state is not None:  # its pods count again if a node of this name returns
                self._on_unknown_nodes[name] = self.nodes.pop(name).claims
            return [ClusterEvent.NODE_DELETED]
        if state is None:
            self._order = None
            state = self.nodes[name] = CachedNode(node)
            for uid, claim in self._on_unknown_nodes.pop(name, {}).items():
                state.claim(uid, claim)
            return [ClusterEvent.NODE_ADDED]
        old = state.node
        if labels_of(old).get(ZONE) != labels_of(node).get(ZONE):
            self._order = None
        state.set_node(node)
        return list(_differences(old, node))

    def _put(self, uid: str, node: str, claim: Claim) -> None:
        self._drop(uid)
        self.where[uid] = node
        if node in self.nodes:
            self.nodes[node].claim(uid, claim)
        else:  # the node's event has not come yet
            self._on_unknown_nodes.setdefault(node, {})[uid] = claim

    def _drop(self, uid: str) -> bool:
        node = self.where.pop(uid, None)
        if node is None:
            return False
        if node in self.nodes:
            self.nodes[node].release(uid)
        self._on_unknown_nodes.get(node, {}).pop(uid, None)
        return True


def _differences(old: JsonObject, new: JsonObject) -> Iterable[ClusterEvent]:
    old_spec, new_spec = old.get("spec") or {}, new.get("spec") or {}
    old_status, new_status = old.get("status") or {}, new.get("status") or {}
    if labels_of(old) != labels_of(new):
        yield ClusterEvent.NODE_LABELS
    if any(old_spec.get(field) != new_spec.get(field) for field in ("taints", "unschedulable")):
        yield ClusterEvent.NODE_TAINTS
    if old_status.get("allocatable") != new_status.get("allocatable"):
        yield ClusterEvent.NODE_RESOURCES
    annotations = [obj["metadata"].get("annotations") for obj in (old, new)]
    ready = [(condition_of(obj, "Ready") or {}).get("status") for obj in (old, new)]
    if annotations[0] != annotations[1] or ready[0] != ready[1]:
        yield ClusterEvent.NODE_OTHER


def claim_of(pod: JsonObject) -> Claim:
    """The pod's priority and its requests: the sum of the containers, or the largest init container if that is more."""
    spec = pod["spec"]
    main = total(_requests(container) for container in spec.get("containers") or [])
    first = largest(_requests(container) for container in spec.get("initContainers") or [])
    requests = largest([main, first])
    add(requests, parse_resources(spec.get("overhead") or {}))
    return Claim(requests, int(spec.get("priority") or 0))


def _requests(container: JsonObject) -> dict[str, int]:
    return parse_resources((container.get("resources") or {}).get("requests") or {})


UNSCHEDULABLE, UNRESOLVABLE = "Unschedulable", "UnschedulableAndUnresolvable"
_UNSCHEDULABLE_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
MIN_FEASIBLE_NODES = 100
_LEAST_PERCENTAGE = 5


class NodeRejection(NamedTuple):
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

    def rejection(self, state: CachedNode) -> NodeRejection | None:
        """The rejection of the first filter that rejects the node; None if it passes all."""
        if (state.node.get("spec") or {}).get("unschedulable") and not self._tolerates_cordon:
            return NodeRejection("NodeUnschedulable", UNRESOLVABLE, "node(s) were unschedulable")
        if state.taints and untolerated(self.pod, state.node) is not None:
            return NodeRejection("TaintToleration", UNRESOLVABLE, "node(s) had untolerated taint(s)")
        if self._has_affinity and not matches_node_affinity(self.pod, state.node):
            return NodeRejection("NodeAffinity", UNRESOLVABLE, "node(s) didn't match Pod's node affinity/selector")
        return self._missing_resources(state)

    def score(self, state: CachedNode) -> float:
        """The score, 0 to 100: the share of CPU and memory that stays free (NodeResourcesFit, LeastAllocated)."""
        return sum(self._left(state, resource) for resource in (CPU, MEMORY)) / 2

    def preferences(self, states: Sequence[CachedNode]) -> dict[str, float]:
        """What NodeAffinity (weight 2) and TaintToleration (weight 3) add to the score of each node, relative to the others."""
        affinity = (self.pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
        terms = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        tainted = {state.name for state in states if untolerated(self.pod, state.node, _PREFER_NO_SCHEDULE) is not None}
        if not terms and not tainted:
            return {}
        weights = {
            state.name: sum(term["weight"] for term in terms if matches_term(term["preference"], state.node))
            for state in states
        }
        # Relative to the best node, which gets 100 points times the weight of the plugin.
        most = max(weights.values(), default=0) or 1
        return {name: 200 * weight / most + 300 * (name not in tainted) for name, weight in weights.items()}

    def _left(self, state: CachedNode, resource: str) -> float:
        allocatable = state.allocatable.get(resource, 0)
        taken = state.requested.get(resource, 0) + self.claim.requests.get(resource, 0)
        # Whole points, as in leastRequestedScore of kube-scheduler.
        return 0.0 if allocatable <= 0 or taken > allocatable else (allocatable - taken) * 100 // allocatable

    def _missing_resources(self, state: CachedNode) -> NodeRejection | None:
        # kube-scheduler runs the filters with and without nominated pods. For resources the run with them is the
        # stricter one, and implies the other.
        nominated = self._nominated_claims(state)
        if len(state.claims) + len(nominated) + 1 > state.allocatable.get(PODS, 0):
            return NodeRejection("NodeResourcesFit", UNSCHEDULABLE, "Too many pods")
        for resource, amount in self._wanted:
            taken = state.requested.get(resource, 0) + sum(claim.requests.get(resource, 0) for claim in nominated)
            if taken + amount > state.allocatable.get(resource, 0):
                return NodeRejection("NodeResourcesFit", UNSCHEDULABLE, f"Insufficient {resource}")
        return None

    def _nominated_claims(self, state: CachedNode) -> list[Claim]:
        """The claims of pods that are nominated to the node and have this pod's priority or a higher one."""
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
        # 5,000 nodes: 10 percent. From 5,625 nodes on: 5 percent.
        percentage = max(_LEAST_PERCENTAGE, 50 - total // 125)
    if percentage >= 100:  # noqa: PLR2004 (all)
        return total
    return max(MIN_FEASIBLE_NODES, total * percentage // 100)


def summary(total: int, rejections: dict[str, NodeRejection]) -> str:
    """The message of a pod that no node fits, in the form of kube-scheduler's FitError."""
    counts: dict[str, int] = {}
    for rejection in rejections.values():
        counts[rejection.reason] = counts.get(rejection.reason, 0) + 1
    # FitError sorts them too. So the same rejections have the same message, and the pod's condition does not change.
    parts = sorted(f"{count} {reason}" for reason, count in counts.items())
    text = f"0/{total} nodes are available"
    return f"{text}: {', '.join(parts)}." if parts else f"{text}."
