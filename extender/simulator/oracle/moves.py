"""Judges the moves of a run from the objects alone, by brute force: each eviction, what it has mended, and what is broken at the end.

1. A pod is broken if it runs, a policy with `when: [Execution]` and `mode: Evict` selects it, and filter would reject its node today,
   as if the pod came anew.
2. An eviction is in vain if nothing of its pod was broken for which it may be moved (3), if no node takes the replacement, or if as
   much is broken with the replacement as would be with the old pod on its old node. The last is judged only if no node, namespace or
   other pod has changed meanwhile.
3. A broken pod can be mended if another node takes it so that less is broken, and no pod that held is broken then. A pod that only
   the anti-affinity of pods of other namespaces excludes must not be moved, and no pod whose replacement waits at a gate for its group.

Written from config/policies/README.md. Must not import the index, the rules or the feature.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from extender.simulator.apiserver.kinds import NAMESPACES, NODES, PODS
from extender.simulator.apiserver.store import ADDED, DELETED, ServedChange, Stored
from extender.simulator.json_objects import (
    JsonObject,
    condition_of,
    is_finished,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
    node_of,
    selects,
    uid_of,
)
from extender.simulator.oracle.brute_force import (
    AFFINITY_REJECTED,
    ANTI_AFFINITY,
    EXISTING_REJECTED,
    SUCCESS,
    ClusterState,
    Filters,
    OracleInterPodAffinity,
    OracleTopologySpread,
    RequiredTerm,
    effective_selector,
    matches_node_affinity,
    required_pod_terms,
    tolerates_taints,
)
from extender.simulator.oracle.journal import Journal, StoreChange
from extender.simulator.oracle.policies import selected_at
from extender.simulator.oracle.room import room_on

_RELEASED: Final = "placement.extender.dev/released"  # with a group
_REPLACED: Final = {"ReplicaSet", "StatefulSet", "ReplicationController"}
_FORBIDDING: Final = {
    # Each annotation, and the value with which it allows a move.
    "placement.extender.dev/do-not-move": "false",
    "karpenter.sh/do-not-disrupt": "false",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
}


class MovesOfNamespace(NamedTuple):
    """The moves of the pods of a namespace.

    - ``in_vain``: why, for each eviction in vain
    - ``broken``: pods that are broken at the end, ``mendable``: broken pods that a move could mend
    - ``worst``: the most pods that were evicted and had no replacement that is ready
    """

    evictions: int
    in_vain: tuple[str, ...]
    broken: tuple[str, ...]
    mendable: tuple[str, ...]
    worst: int


NO_MOVES: Final = MovesOfNamespace(0, (), (), (), 0)


class _Placed(NamedTuple):
    pod: JsonObject
    node: str


class RunningPods:
    """The pods that have a node, and what is broken of them. ``is_watched``: whether a pod is judged."""

    def __init__(self, is_watched: Callable[[JsonObject, ClusterState], bool]) -> None:
        self.state = ClusterState()
        self.placed: dict[str, _Placed] = {}
        self._is_watched = is_watched

    def show_pod(self, pod: JsonObject) -> None:
        """Counts a pod as it is now."""
        if node_of(pod) and not is_finished(pod):
            self._place(uid_of(pod), _Placed(pod, node_of(pod)))
        else:
            self.hide(uid_of(pod))

    def hide(self, uid: str) -> None:
        """The pod is gone."""
        self.placed.pop(uid, None)
        self.state.remove(uid)

    def _place(self, uid: str, placed: _Placed) -> None:
        self.placed[uid] = placed
        self.state.place(uid, placed.pod, placed.node)

    @contextmanager
    def elsewhere(self, uid: str, placed: _Placed | None) -> Iterator[None]:
        """Within the block the pod is in this place, or nowhere."""
        before = self.placed.get(uid)
        self.hide(uid)
        if placed is not None:
            self._place(uid, placed)
        try:
            yield
        finally:
            self.hide(uid)
            if before is not None:
                self._place(uid, before)

    def watched(self) -> list[str]:
        """The UIDs of the pods that are judged: they do not terminate, and their node exists."""
        return [
            uid
            for uid, (pod, node) in self.placed.items()
            if node in self.state.nodes and not is_terminating(pod) and self._is_watched(pod, self.state)
        ]

    def is_broken(self, uid: str) -> bool:
        """Whether a required constraint of a pod is broken on its node. O(pods)."""
        pod, node = self.placed[uid]
        with self.elsewhere(uid, None):
            return not self.takes(pod, node)

    def is_to_move(self, uid: str) -> bool:
        """Whether anything is broken of a pod for which it may be moved: not only what pods of other namespaces exclude. O(pods)."""
        pod, node = self.placed[uid]
        with self.elsewhere(uid, None):
            if not matches_node_affinity(pod, self.state.nodes[node]):
                return True
            # The last check: before it everything else held.
            status = Filters(pod, self.state).check(node)
        return status != SUCCESS if status != EXISTING_REJECTED else self._pairs(uid, namespace_of(pod)) > 0

    def takes(self, pod: JsonObject, node: str) -> bool:
        """Whether a node meets the constraints of a pod that is nowhere; room and taints are not asked."""
        return matches_node_affinity(pod, self.state.nodes[node]) and Filters(pod, self.state).check(node) == SUCCESS

    def measure(self) -> int:
        """What is broken: unsatisfied pods, pairs, and pods above the limits of domains. O(pods²)."""
        above: dict[tuple[str, str, str], int] = {}
        return sum(self._broken_of(uid, above) for uid in self.watched()) + sum(above.values())

    def _broken_of(self, uid: str, above: dict[tuple[str, str, str], int]) -> int:
        """What is broken of one pod. Adds to ``above`` what it shares with other pods."""
        (pod, node), state = self.placed[uid], self.state
        found = int(not matches_node_affinity(pod, state.nodes[node])) + self._pairs(uid)
        for constraint, domain, excess, counts_itself in _SpreadExcess(pod, state).excesses(node):
            if counts_itself:
                above[namespace_of(pod), constraint, domain] = excess
            else:
                found += 1
        with self.elsewhere(uid, None):
            return found + (OracleInterPodAffinity(pod, state).check(node) == AFFINITY_REJECTED)

    def _pairs(self, uid: str, namespace: str = "") -> int:
        """The other pods, or the other pods of a namespace, that anti-affinity excludes beside this one, in both directions."""
        (pod, node), state, found = self.placed[uid], self.state, 0
        own = [RequiredTerm(raw, namespace_of(pod)) for raw in required_pod_terms(pod, ANTI_AFFINITY)]
        for other_uid, (other, there) in self.placed.items():
            if other_uid == uid or there not in state.nodes or namespace not in ("", namespace_of(other)):
                continue
            theirs = [RequiredTerm(raw, namespace_of(other)) for raw in required_pod_terms(other, ANTI_AFFINITY)]
            excluding = [term for term in own if term.selects_for_incoming(other, state.namespaces)]
            excluding += [term for term in theirs if term.selects_for_existing(pod, state.namespaces)]
            domains = [(state.domain(node, term.key), state.domain(there, term.key)) for term in excluding]
            found += sum(here is not None and here == one for here, one in domains)
        return found


class _SpreadExcess(OracleTopologySpread):
    """Hard spread constraints of a pod that is counted on its node."""

    def excesses(self, node: str) -> Iterator[tuple[str, str, int, bool]]:
        """Of each constraint whose limit the node's domain is above: its text, the domain, by how much, and whether the pod counts itself."""
        for constraint, counts, most in zip(self.constraints, self.counts, self._most, strict=True):
            selector = effective_selector(constraint, self.pod)
            counts_itself = selects(selector, labels_of(self.pod))
            domain = self.state.domain(node, constraint["topologyKey"])
            excess = counts.get(domain or "", 0) - most - counts_itself
            if domain is not None and excess > 0:
                yield f"{constraint} {selector}", domain, excess, counts_itself


# -- what could still be mended


def mendable(running: RunningPods, may_evict: Callable[[JsonObject], bool]) -> Iterator[str]:
    """The UIDs of broken pods that one move would mend. O(broken pods × nodes × pods²)."""
    watched = running.watched()
    held = [uid for uid in running.placed if uid in watched or not is_terminating(running.placed[uid].pod)]
    held = [uid for uid in held if running.placed[uid].node in running.state.nodes and not running.is_broken(uid)]
    before = running.measure()
    for uid in watched:
        pod = running.placed[uid].pod
        if (
            uid not in held
            and running.is_to_move(uid)
            and is_movable(pod)
            and may_evict(pod)
            and _can_move(running, uid, held, before)
        ):
            yield uid


def _can_move(running: RunningPods, uid: str, held: Sequence[str], before: int) -> bool:
    pod, source = running.placed[uid]
    for node in [name for name in running.state.nodes if name != source]:
        with running.elsewhere(uid, None):
            if not (_accepts(pod, node, running.state) and running.takes(pod, node)):
                continue
        with running.elsewhere(uid, _Placed(pod, node)):
            if running.measure() < before and not any(map(running.is_broken, held)):
                return True
    return False


def _accepts(pod: JsonObject, name: str, state: ClusterState) -> bool:
    node = state.nodes[name]
    is_cordoned = bool((node.get("spec") or {}).get("unschedulable"))
    return not is_cordoned and tolerates_taints(pod, node) and room_on(pod, name, state) == SUCCESS


def is_movable(pod: JsonObject) -> bool:
    """Whether a controller replaces the pod, and neither its group, an annotation nor a volume keeps it."""
    annotations, volumes = pod["metadata"].get("annotations") or {}, pod["spec"].get("volumes") or []
    return (
        _controller(pod)[0] in _REPLACED
        and not any("persistentVolumeClaim" in volume for volume in volumes)
        and _RELEASED not in annotations
        and all(annotations.get(key, allows) == allows for key, allows in _FORBIDDING.items())
    )


def _controller(pod: JsonObject) -> tuple[str, str, str]:
    """Kind, namespace and name of the controller of a pod; empty texts without one."""
    owners = pod["metadata"].get("ownerReferences") or []
    controllers = [owner for owner in owners if owner.get("controller")]
    return (controllers[0]["kind"], namespace_of(pod), controllers[0]["name"]) if controllers else ("", "", "")


# -- the evictions of a run


@dataclass(slots=True)
class _Eviction:
    """An eviction until the replacement is ready. ``others``: how many changes by others there had been."""

    pod: JsonObject
    node: str
    others: int
    replacement: str = ""
    is_bound: bool = False


@dataclass(slots=True)
class _Tally:
    evictions: int = 0
    in_vain: list[str] = field(default_factory=list)
    worst: int = 0


class _Replay:
    """Plays the changes of a journal, and judges each eviction."""

    def __init__(self, journal: Journal, lag: float) -> None:
        def is_watched(pod: JsonObject, state: ClusterState) -> bool:
            return selected_at("Execution", evicting, pod, state.namespaces)

        evicting = [
            policy
            for policy in journal.policies
            if (policy["spec"].get("execution") or {}).get("mode") == "Evict"
            and policy["spec"].get("mode", "Enforce") == "Enforce"
        ]
        self._releasing = [policy for policy in journal.policies if policy["spec"].get("mode", "Enforce") == "Enforce"]
        self.running = RunningPods(is_watched)
        self.tallies: defaultdict[str, _Tally] = defaultdict(_Tally)
        self.open: list[_Eviction] = []
        self._lag = lag
        self._recent: list[StoreChange] = []
        self._others = 0
        for kind in (NAMESPACES, NODES, PODS):
            for stored in journal.start[kind]:
                self._show(StoreChange(kind, ServedChange(ADDED, stored, None, b"", 0.0)), stored)

    def apply(self, entry: StoreChange) -> None:
        """Applies a change, after what it says about evictions is judged."""
        kind, change = entry
        self._recent = [recent for recent in self._recent if recent.change.at >= change.at - self._lag]
        pod = change.stored.read()
        if kind is PODS and _begins_eviction(change):
            self._evicted(pod)
        elif kind in (NODES, NAMESPACES) or (kind is PODS and self._is_of_others(change, pod)):
            self._others += 1
        self._show(entry, None if change.type == DELETED else change.stored)
        self._recent.append(entry)
        if kind is PODS and change.type != DELETED:
            self._follow(change, pod)

    def is_gated(self, pod: JsonObject) -> bool:
        """Whether a policy would hold the replacement of a pod at a gate. O(policies)."""
        return selected_at("Release", self._releasing, pod, self.running.state.namespaces)

    def _is_of_others(self, change: ServedChange, pod: JsonObject) -> bool:
        """Whether a pod is deleted without an eviction, or created although no eviction waits for it."""
        if change.type == ADDED:
            return not any(self._is_replacement(eviction, pod) for eviction in self.open)
        begins = change.previous is not None and is_terminating(pod) and not is_terminating(change.previous.read())
        return begins or (change.type == DELETED and not is_terminating(pod))

    def _show(self, entry: StoreChange, stored: Stored | None) -> None:
        """Makes the object of a change what it is in ``stored``."""
        kind, key, state = entry.kind, entry.change.stored.key, self.running.state
        obj = None if stored is None else stored.read()
        if kind is PODS:
            if obj is not None:
                self.running.show_pod(obj)
            else:
                self.running.hide(uid_of(entry.change.stored.read()))
        elif kind is NODES:
            state.remove_node(key) if obj is None else state.set_node(obj)
        elif kind is NAMESPACES:
            state.set_namespace(key, None if obj is None else labels_of(obj))

    def _evicted(self, pod: JsonObject) -> None:
        tally = self.tallies[namespace_of(pod)]
        tally.evictions += 1
        if not self._was_broken(uid_of(pod)):
            tally.in_vain.append(f"{name_of(pod)}: nothing was broken")
        if self.is_gated(pod):
            tally.in_vain.append(f"{name_of(pod)}: its replacement waits at a gate")
        self.open.append(_Eviction(pod, node_of(pod), self._others))
        waiting = sum(namespace_of(eviction.pod) == namespace_of(pod) for eviction in self.open)
        tally.worst = max(tally.worst, waiting)

    def _was_broken(self, uid: str) -> bool:
        """Whether the pod is broken now, or was in a state that the extender could still have had."""
        reverted: list[StoreChange] = []
        is_broken = self._is_broken_now(uid)
        for entry in reversed(self._recent):
            if is_broken:
                break
            self._show(entry, entry.change.previous)
            reverted.append(entry)
            is_broken = self._is_broken_now(uid)
        for entry in reversed(reverted):
            self._show(entry, None if entry.change.type == DELETED else entry.change.stored)
        return is_broken

    def _is_broken_now(self, uid: str) -> bool:
        placed = self.running.placed.get(uid)
        return placed is not None and placed.node in self.running.state.nodes and self.running.is_to_move(uid)

    @staticmethod
    def _is_replacement(eviction: _Eviction, pod: JsonObject) -> bool:
        return not eviction.replacement and _controller(eviction.pod) == _controller(pod)

    def _follow(self, change: ServedChange, pod: JsonObject) -> None:
        """Finds the eviction that a new pod replaces, and judges it once the pod has a node."""
        uid = uid_of(pod)
        if change.type == ADDED:
            waiting = next((eviction for eviction in self.open if self._is_replacement(eviction, pod)), None)
            if waiting is not None:
                waiting.replacement = uid
        eviction = next((eviction for eviction in self.open if eviction.replacement == uid), None)
        if eviction is None:
            return
        if node_of(pod) and not eviction.is_bound:
            eviction.is_bound = True
            if eviction.others == self._others and not self._has_mended(eviction, pod):
                text = f"{name_of(eviction.pod)}: {node_of(pod)} is no better than {eviction.node}"
                self.tallies[namespace_of(pod)].in_vain.append(text)
        if (condition_of(pod, "Ready") or {}).get("status") == "True" or is_terminating(pod):
            self.open.remove(eviction)

    def _has_mended(self, eviction: _Eviction, replacement: JsonObject) -> bool:
        """Whether less is broken than if the old pod had stayed."""
        running = self.running
        if eviction.node not in running.state.nodes:
            return True
        now, old = running.measure(), uid_of(eviction.pod)
        stayed = {**eviction.pod, "metadata": {**eviction.pod["metadata"], "deletionTimestamp": None}}
        with (
            running.elsewhere(uid_of(replacement), None),
            running.elsewhere(old, _Placed(stayed, eviction.node)),
        ):
            return now < running.measure()


def _begins_eviction(change: ServedChange) -> bool:
    pod = change.stored.read()
    if not is_terminating(pod) or change.previous is None or is_terminating(change.previous.read()):
        return False
    return (condition_of(pod, "DisruptionTarget") or {}).get("reason") == "EvictionByEvictionAPI"


def judge_moves(
    journal: Journal, may_evict: Callable[[JsonObject], bool], lag: float = 0.25
) -> dict[str, MovesOfNamespace]:
    """The moves of a run by namespace; empty without evictions and broken pods.

    ``may_evict``: whether the budgets allow the eviction of a pod at the end. O(evictions × pods² + broken pods × nodes × pods²).
    """
    replay = _Replay(journal, lag)
    for entry in journal.entries:
        if isinstance(entry, StoreChange):
            replay.apply(entry)
    running, tallies = replay.running, replay.tallies
    for eviction in replay.open:
        if eviction.replacement and not eviction.is_bound:
            tallies[namespace_of(eviction.pod)].in_vain.append(f"{name_of(eviction.pod)}: its replacement is pending")
    names = defaultdict[str, list[str]](list)
    for uid in running.watched():
        if running.is_broken(uid):
            pod = running.placed[uid].pod
            names[namespace_of(pod)].append(name_of(pod))
    may_move = mendable(running, lambda pod: may_evict(pod) and not replay.is_gated(pod))
    could = [running.placed[uid].pod for uid in may_move] if names else []
    return {
        namespace: MovesOfNamespace(
            tallies[namespace].evictions,
            tuple(tallies[namespace].in_vain),
            tuple(sorted(names[namespace])),
            tuple(sorted(name_of(pod) for pod in could if namespace_of(pod) == namespace)),
            tallies[namespace].worst,
        )
        for namespace in sorted(tallies.keys() | names.keys())
    }
