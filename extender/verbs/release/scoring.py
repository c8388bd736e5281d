"""Slots for the pods of a pod group by filter's own score, one pod after the other.

1. The pods are known to fit: `verbs/slots/placing.py` has placed them on as few nodes as possible.
2. Each pod gets the node that decisive placement would answer, with the pods before it counted on their nodes. Of equal nodes it
   gets the tightest. Where the last pods find no room that way, all slots stay as they were.
3. Equal pods without constraints and preferences are placed by resources alone, on any node of the domain.
4. Other pods are placed on the `_MOST_NODES` nodes that are the best before any pod is placed. kube-scheduler scores fewer nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace, nsmallest
from operator import itemgetter
from typing import Final, NamedTuple

from msgspec import structs

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.nodes.columns import NodeNumber
from extender.index.trial import Trial, TrialSteps
from extender.index.view import ClusterView
from extender.model.constraints.labels import Operator
from extender.model.constraints.node_affinity import NodeRequirement, NodeSelectorTerm, PreferredNodeTerm
from extender.model.objects import Pod
from extender.model.release import Level, Slot
from extender.model.resources import scored_requests
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.settings.configuration import Settings
from extender.verbs.request import RequestedNodes, RequestSearch
from extender.verbs.select_host import (
    TAINT_POINTS,
    affinity_points,
    node_preferences,
    select_host,
    untolerated_preferences,
)
from extender.verbs.slots.placing import (
    Capacity,
    NodeRoom,
    RoomLeft,
    RuleChecks,
    tolerations_of,
    with_tolerations,
)

_MOST_PODS: Final = 500  # pods of a group that are placed by score: 0.3 ms each
_MOST_NODES: Final = 500
_NODES_A_STEP: Final = 2_000
# The nodes are ordered again after so many pods, because only a window of them is read for each pod.
_PODS_AN_ORDER: Final = 32
_WEIGHT_OF_DOMAIN: Final = 100  # of `Level.preferred`, as released pods have it


class Rank(NamedTuple):
    """The order of nodes before any pod of the group is placed, the best first: the criteria of `select_host`, then the tightest."""

    taints: int
    less_preferred: int
    used: float
    holds: int
    name: str

    @property
    def preferred(self) -> int:
        """The weights of the preferred terms that match."""
        return -self.less_preferred


class SharesOnTrial:
    """The requested shares of some nodes, with the reserved room of other pods and the pods of the trial."""

    def __init__(self, view: ClusterView, own: Collection[str]) -> None:
        """``own``: the UIDs of the group's pods. Their slots do not count."""
        self._view = view
        self._own = own
        self.cpu: dict[int, int] = {}
        self.memory: dict[int, int] = {}
        self.larger: dict[int, float] = {}
        self.per_cpu, self.per_memory = view.shares.per_cpu, view.shares.per_memory

    def add_node(self, number: NodeNumber, name: str) -> None:
        """A node that pods may be placed on. O(slots there)."""
        if number in self.cpu:
            return
        shares, slots = self._view.shares, self._view.reserved.by_node.get(name)
        self.cpu[number], self.memory[number] = shares.cpu[number], shares.memory[number]
        self.larger[number] = shares.larger[number]
        if slots is not None:
            here = self._view.pods_on(number)
            for uid, pod in slots.items():
                if uid not in self._own and uid not in here:
                    self.count(pod, number, 1)

    def count(self, pod: Pod, number: NodeNumber, sign: int) -> None:
        """A pod is placed on a node (``sign`` 1), or no longer is (-1). O(1)."""
        cpu, memory = scored_requests(pod.requests)
        self.cpu[number] = cpu = self.cpu[number] + sign * cpu
        self.memory[number] = memory = self.memory[number] + sign * memory
        self.larger[number] = max(cpu * self.per_cpu[number], memory * self.per_memory[number])

    def used(self, number: NodeNumber, more: tuple[int, int], strategy: str) -> float:
        """The rank of a node by resources after this much more CPU and memory; less is better."""
        if strategy == "Ignored":
            return 0.0
        cpu = (self.cpu[number] + more[0]) * self.per_cpu[number]
        memory = (self.memory[number] + more[1]) * self.per_memory[number]
        # LeastAllocated and balanced allocation together are decided by the larger share: see
        # `index/nodes/requested_shares.py`.
        return max(cpu, memory) if strategy == "LeastAllocated" else -(min(cpu, memory) or max(cpu, memory))


def with_preferred(pod: Pod, path: Sequence[Level]) -> Pod:
    """The pod as it will be released: with the preferences and the tolerations of its domain."""
    pod = with_tolerations(pod, tolerations_of(path))
    clauses = [NodeRequirement(level.key, Operator.IN, level.preferred) for level in path if level.preferred]
    if not clauses:
        return pod
    term = PreferredNodeTerm(_WEIGHT_OF_DOMAIN, NodeSelectorTerm(tuple(clauses)))
    return structs.replace(
        pod, signature=replace(pod.signature, preferred_nodes=(*pod.signature.preferred_nodes, term))
    )


def _ranked(
    pod: Pod,
    rooms: Sequence[NodeRoom],
    more: tuple[int, int],
    shares: SharesOnTrial,
    view: ClusterView,
    settings: Settings,
) -> list[tuple[Rank, NodeRoom]]:
    """The nodes that hold such a pod, with their ranks after this much more CPU and memory. O(nodes × (terms + taints))."""
    rooms = [room for room in rooms if room.holds]
    nodes = [view.node(room.number) for room in rooms]
    strategy, ranked = settings.answers.scoring_strategy, []
    for room, node, weight in zip(rooms, nodes, node_preferences(nodes, pod.signature), strict=True):
        shares.add_node(room.number, room.name)
        taints = untolerated_preferences(node.taints, pod) if node is not None and node.taints else 0
        ranked.append((Rank(taints, -weight, shares.used(room.number, more, strategy), room.holds, room.name), room))
    return ranked


def _first(
    pod: Pod,
    rooms: Sequence[NodeRoom],
    more: tuple[int, int],
    shares: SharesOnTrial,
    view: ClusterView,
    settings: Settings,
) -> TrialSteps[list[tuple[Rank, NodeRoom]]]:
    """As `_ranked`, in order, and only the best `_MOST_NODES`."""
    best: list[tuple[Rank, NodeRoom]] = []
    for start in range(0, len(rooms), _NODES_A_STEP):
        piece = _ranked(pod, rooms[start : start + _NODES_A_STEP], more, shares, view, settings)
        best = nsmallest(_MOST_NODES, [*best, *piece], key=itemgetter(0))
        yield True
    return best


@dataclass(slots=True)
class _Kinds:
    """Kinds of pods with equal preferences.

    ``wanted``: a pod of one kind, with the domain's preferences. ``rooms``: the best nodes; ``names``: their names in order.
    """

    wanted: Pod
    rooms: dict[NodeNumber, NodeRoom]
    names: list[str]


class Scoring:
    """Places the pods of one group by score. Valid until anything changes."""

    def __init__(
        self,
        view: ClusterView,
        settings: Settings,
        pods: Sequence[Pod],
        kinds: Mapping[str, Hashable],
        capacity: Capacity,
        checks: RuleChecks | None,
    ) -> None:
        """``checks``: the rules, None for pods that no rule rejects."""
        self._view = view
        self._settings = settings
        self._pods = pods
        self._kinds = kinds
        self._checks = checks
        self._left = RoomLeft(capacity)
        self._shares = SharesOnTrial(view, {pod.uid for pod in pods})
        self._orders: dict[Hashable, _Kinds] = {}
        self._order_of: dict[Hashable, _Kinds] = {}
        self._full: dict[Hashable, set[NodeNumber]] = {}
        self._chosen: list[NodeRoom] = []

    def run(self, rooms: Mapping[Hashable, Sequence[NodeRoom]], path: Sequence[Level]) -> TrialSteps[Sequence[Slot]]:
        """A slot for each pod on the nodes of a domain. Empty where the last pods find no room.

        O(nodes + pods log nodes) by resources alone, else O(kinds × nodes + pods × (terms + `_MOST_NODES`)) at worst.
        """
        # 1. One kind without constraints and preferences: by resources alone. 2. Without rules that count: live counts stay untouched.
        # 3. With rules: in a trial, so that each pod counts for the next ones.
        examples = {self._kinds[pod.uid]: pod for pod in self._pods}
        is_counted = any(self._is_scored(pod) for pod in examples.values())
        if self._checks is None and len(examples) == 1 and not (is_counted or self._prefers(path)):
            (only,) = rooms.values()
            return (yield from self._by_resources(only))
        # Empty: the slots that are known to fit are used.
        if len(self._pods) > _MOST_PODS:
            return ()
        for kind, pod in examples.items():
            yield from self._add(kind, with_preferred(pod, path), rooms.get(kind, ()))
        if self._checks is None and not is_counted:
            return (yield from self._place(None))
        with self._view.trial() as trial:
            return (yield from self._place(trial))

    def _is_scored(self, pod: Pod) -> bool:
        """Whether a rule may score nodes for such a pod, by existing pods or by pods of the group. O(terms)."""
        return next(iter(self._compiled(pod).score_groups()), None) is not None

    def _prefers(self, path: Sequence[Level]) -> bool:
        """Whether nodes differ by their labels or taints."""
        has_terms = any(pod.signature.preferred_nodes for pod in self._pods)
        return has_terms or bool(self._view.soft_taints) or any(level.preferred for level in path)

    def _as_released(self, pod: Pod) -> Pod:
        return pod if self._checks is None else self._checks.as_released(pod)

    def _compiled(self, pod: Pod) -> CompiledConstraints:
        return self._view.compiled(self._as_released(pod).signature)

    def _by_resources(self, rooms: Sequence[NodeRoom]) -> TrialSteps[Sequence[Slot]]:
        """Slots for equal pods without constraints and preferences: each pod on the node that is the best with it."""
        strategy, shares = self._settings.answers.scoring_strategy, self._shares
        if strategy == "Ignored":
            return ()
        # Each node is in the heap with the score of one more pod on it. Placing a pod changes only the entry of its node.
        cpu, memory = scored_requests(self._pods[0].requests)
        heap: list[tuple[float, int, str, NodeNumber, int]] = []
        for at, room in enumerate(rooms, start=1):
            if not at % _NODES_A_STEP:
                yield True
            if room.holds:
                shares.add_node(room.number, room.name)
                used = shares.used(room.number, (cpu, memory), strategy)
                heap.append((used, room.holds, room.name, room.number, 1))
        heapify(heap)
        yield True
        slots: list[Slot] = []
        for pod in self._pods:
            _, holds, name, number, count = heap[0]
            if not count:
                return ()
            slots.append(Slot(pod.uid, name))
            if count < holds:
                more = ((count + 1) * cpu, (count + 1) * memory)
                heapreplace(heap, (shares.used(number, more, strategy), holds, name, number, count + 1))
            else:
                # A full node goes to the end. If it is the first one again, no node has room.
                heapreplace(heap, (float("inf"), 0, "", number, 0))
        return slots

    def _add(self, kind: Hashable, wanted: Pod, rooms: Sequence[NodeRoom]) -> TrialSteps[None]:
        """Finds the best nodes for a kind of pods. Kinds with equal preferences share one search."""
        signature = wanted.signature
        key = signature.preferred_nodes, signature.tolerations
        order = self._orders.get(key)
        if order is None:
            more = scored_requests(wanted.requests)
            best = yield from _first(wanted, rooms, more, self._shares, self._view, self._settings)
            order = self._orders[key] = _Kinds(wanted, {room.number: room for _, room in best}, [])
        self._order_of[kind] = order
        held = {room.number for room in rooms if room.holds}
        self._full[kind] = set(order.rooms.keys() - held)
        yield True

    def _place(self, trial: Trial | None) -> TrialSteps[Sequence[Slot]]:
        """The slots. Empty where a pod finds no room."""
        while len(self._chosen) < len(self._pods):
            if not len(self._chosen) % _PODS_AN_ORDER:
                for order in self._orders.values():
                    self._sort(order)
            pod = self._pods[len(self._chosen)]
            room = self._pick(pod)
            if room is None:
                return ()
            self._chosen.append(room)
            self._left.count(pod, room.number, 1)
            self._shares.count(pod, room.number, 1)
            if trial is not None:
                trial.place(self._as_released(pod), room.number)
            if (yield trial is None) and trial is not None:
                with trial.suspended():
                    yield True
        return [Slot(pod.uid, room.name) for pod, room in zip(self._pods, self._chosen, strict=True)]

    def _sort(self, order: _Kinds) -> None:
        """Orders the nodes anew, with all pods that are placed. O(`_MOST_NODES`)."""
        more, rooms = scored_requests(order.wanted.requests), list(order.rooms.values())
        ranked = _ranked(order.wanted, rooms, more, self._shares, self._view, self._settings)
        order.names = [room.name for _, room in sorted(ranked, key=itemgetter(0))]

    def _pick(self, pod: Pod) -> NodeRoom | None:
        """The node that decisive placement would answer for a pod. None where no node holds it.

        O(a window of nodes), or O(`_MOST_NODES`) with preferred node terms. Repeated for each node that turns out to be full.
        """
        kind, view = self._kinds[pod.uid], self._view
        order, full = self._order_of[kind], self._full[kind]
        filters = None if self._checks is None else self._checks.filters(pod)
        search = RequestSearch(
            self._compiled(pod),
            filters or catalog.NO_FILTERS,
            RequestedNodes(order.names, IndexFrame(), view),
            view,
            self._settings,
            excluded=full,
            shares=self._shares,
        )
        # The chosen node may be full for this kind, because the scores know only requested resources: then it is excluded for good.
        wanted = structs.replace(pod, signature=order.wanted.signature)
        while positions := select_host(search, wanted, 0, ""):
            room = order.rooms[positions[0]]
            if self._left.fits(pod, kind, room):
                return room
            full.add(room.number)
        return None


# -- domains -----------------------------------------------------------------------------------------------------------


def best_nodes(
    pods: Sequence[Pod], rooms: Sequence[NodeRoom], view: ClusterView, settings: Settings
) -> TrialSteps[list[str]]:
    """The names of the best nodes for all of these pods on one node, at most `_MOST_NODES`, in order.

    Points and preferences are the first pod's; the requested resources are all pods' together. O(nodes × (terms + taints)).
    """
    first, shares = pods[0], SharesOnTrial(view, {pod.uid for pod in pods})
    cpu, memory = zip(*(scored_requests(pod.requests) for pod in pods), strict=True)
    best = yield from _first(first, rooms, (sum(cpu), sum(memory)), shares, view, settings)
    # Points of rules depend on the nodes among which they are compared, so they are added for the best nodes only.
    compiled, rules = view.compiled(first.signature), settings.rules
    if catalog.scoring_rules(compiled, rules):
        most = max((rank.preferred for rank, _ in best), default=0) or 1
        points = catalog.points(compiled, view, IndexFrame(), [room.number for _, room in best], rules).of

        def key(entry: tuple[Rank, NodeRoom]) -> tuple[int, int]:
            rank, room = entry
            return rank.taints, -points.get(room.number, 0) - affinity_points(rank.preferred, most)

        best.sort(key=key)
        yield True
    return [room.name for _, room in best]


def preference_of(pod: Pod, count: int, rooms: Sequence[NodeRoom], view: ClusterView) -> TrialSteps[float]:
    """How much ``count`` equal pods prefer a domain: the mean points of the nodes that they would get. O(nodes × (terms + taints)).

    Only preferred node affinity and PreferNoSchedule taints count.
    """
    most = sum(preference.weight for preference in pod.signature.preferred_nodes) or 1
    holds: dict[int, int] = {}
    for start in range(0, len(rooms), _NODES_A_STEP):
        piece = [room for room in rooms[start : start + _NODES_A_STEP] if room.holds]
        nodes = [view.node(room.number) for room in piece]
        for room, node, weight in zip(piece, nodes, node_preferences(nodes, pod.signature), strict=True):
            is_tainted = node is not None and bool(node.taints) and untolerated_preferences(node.taints, pod) > 0
            points = affinity_points(weight, most) - is_tainted * TAINT_POINTS
            holds[points] = holds.get(points, 0) + room.holds
        yield True
    unplaced, total = count, 0
    for points in sorted(holds, reverse=True):
        # The pods would take the best nodes first. Nodes that they do not need say nothing about the domain.
        here = min(holds[points], unplaced)
        total, unplaced = total + here * points, unplaced - here
    return total / count
