"""The index: owns the parts, applies a change to each in a fixed order, and is the view that decisions are given.

Only tasks (and the simulation) write, through ``upsert``, ``delete`` and ``replace``; everybody else is handed the
`ClusterView` that this class satisfies. The order in which a change of a node is applied is what keeps counts true:
take the node's pods out of their groups, move the node, put them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from extender.index.domains import KeyDomains, Topology, same_place
from extender.index.groups import Group
from extender.index.namespaces import Namespaces
from extender.index.placements import Placement, Placements
from extender.index.questions import Questions
from extender.index.selections import Selections
from extender.index.spread_counts import SpreadCounts
from extender.index.term_counts import TermCounts
from extender.index.view import ClusterView, Question
from extender.index.workloads import Workloads
from extender.model.labels import Labels
from extender.model.objects import Namespace, Node, Object, Pod, PodShape, Workload
from extender.model.resources import Resources, add
from extender.settings import Rules

_NO_PODS: Mapping[str, Pod] = {}


class ClusterIndex:
    """Pods, nodes, namespaces and workloads with every count that decisions read."""

    def __init__(self, rules: Rules) -> None:
        self.pods: dict[str, Pod] = {}
        self.topology = Topology()
        self.namespaces = Namespaces()
        self.workloads = Workloads()
        self.placements = Placements(self._placement_added, self._placement_gone)
        self.selections = Selections(self.placements, self.namespaces)
        self.terms = TermCounts(self.topology, self.namespaces, self.selections)
        self.spreads = SpreadCounts(self.topology, self.selections)
        self.questions = Questions(rules, self.terms, self.spreads, self.namespaces, self.workloads)
        self._on_node: dict[int, dict[str, Pod]] = {}
        self._requested: dict[int, dict[str, int]] = {}

    @property
    def view(self) -> ClusterView:
        """The read-only face of this index."""
        return self

    def upsert(self, obj: Object) -> bool:
        """Applies an object as it is now; False where nothing that we read has changed."""
        match obj:
            case Pod():
                return self._change_pod(obj.uid, None if obj.finished else obj)
            case Node():
                return self._change_node(obj.name, obj)
            case Namespace():
                return self._change_namespace(obj.name, obj)
            case Workload():
                return self.workloads.change(obj.key, obj)

    def delete(self, obj: Object) -> bool:
        """Applies the disappearance of an object; False where it was not there."""
        match obj:
            case Pod():
                return self._change_pod(obj.uid, None)
            case Node():
                return self._change_node(obj.name, None)
            case Namespace():
                return self._change_namespace(obj.name, None)
            case Workload():
                return self.workloads.change(obj.key, None)

    def replace(self, kind: str, objects: Iterable[Object]) -> int:
        """Applies a complete list of one kind (`Kind.name`): what is not in it is gone. Returns the changes made."""
        changes, kept = 0, set()
        for obj in objects:
            kept.add(_key(obj))
            changes += self.upsert(obj)
        gone = [held for held in self._held(kind) if _key(held) not in kept]
        return changes + sum(self.delete(held) for held in gone)

    def _held(self, kind: str) -> list[Object]:
        match kind:
            case "pods":
                return list(self.pods.values())
            case "nodes":
                return [node for node in self.topology.nodes if node is not None]
            case "namespaces":
                return list(self.namespaces.objects.values())
            case _:
                return [held for held in self.workloads.objects.values() if f"{held.kind.lower()}s" == kind]

    def _change_pod(self, uid: str, new: Pod | None) -> bool:
        old = self.pods.get(uid)
        if old == new:
            return False
        if new is None:
            del self.pods[uid]
        else:
            self.pods[uid] = new
        if old is not None and old.node:
            self._count(old, -1)
        if new is not None and new.node:
            self._count(new, 1)
        return True

    def _count(self, pod: Pod, sign: int) -> None:
        """Places a pod on its node, or takes it away: one path with a sign."""
        number = self.topology.number(pod.node)
        self.placements.put(pod.shape, pod.terminating, number, sign)
        add(self._requested.setdefault(number, {}), pod.requests, sign)
        here = self._on_node.setdefault(number, {})
        if sign > 0:
            here[pod.uid] = pod
            return
        del here[pod.uid]
        if not here:
            del self._on_node[number], self._requested[number]
            if self.topology.nodes[number] is None:
                self.topology.release(number)

    def _change_node(self, name: str, new: Node | None) -> bool:
        if new is None and name not in self.topology.known:
            return False
        number = self.topology.number(name)
        old = self.topology.nodes[number]
        if old == new:
            return False
        moves = not same_place(old, new)
        here = self._counted_on(number) if moves else {}
        for placement, pods in here.items():
            _add(placement.groups, number, -pods)
        self.topology.put(number, new)
        for placement, pods in here.items():
            _add(placement.groups, number, pods)
        if new is None and number not in self._on_node:
            self.topology.release(number)
        return True

    def _counted_on(self, number: int) -> dict[Placement, int]:
        found: dict[Placement, int] = {}
        for pod in self._on_node.get(number, _NO_PODS).values():
            placement = self.placements.find(pod.shape, terminating=pod.terminating)
            if placement is not None:
                found[placement] = found.get(placement, 0) + 1
        return found

    def _change_namespace(self, name: str, new: Namespace | None) -> bool:
        if self.namespaces.objects.get(name) == new:
            return False
        self.selections.namespace_changed(name, self.namespaces.change(name, new))
        return True

    def _placement_added(self, placement: Placement) -> None:
        self.terms.placement_added(placement)
        self.selections.placement_added(placement)

    def _placement_gone(self, placement: Placement) -> None:
        self.terms.placement_gone(placement)
        self.selections.placement_gone(placement)

    @property
    def known(self) -> Mapping[str, int]:
        """Numbers of the nodes that exist, by name."""
        return self.topology.known

    @property
    def topology_version(self) -> int:
        """Grows with every change of nodes."""
        return self.topology.version

    def question(self, shape: PodShape) -> Question:
        """The compiled question of a shape."""
        return self.questions.find(shape)

    def grounds(self, question: Question) -> int:
        """Changes whenever the filter's answer may have changed: versions only grow, so their sum never repeats."""
        return self.topology.version + sum(group.version for group in question.filter_groups())

    def key(self, topology_key: str) -> KeyDomains:
        """The domains of a topology key."""
        return self.topology.key(topology_key)

    def node(self, number: int) -> Node | None:
        """The node of a number."""
        return self.topology.nodes[number]

    @property
    def node_names(self) -> Sequence[str]:
        """Names by node number."""
        return self.topology.names

    def requested(self, number: int) -> Resources:
        """What the pods on the node ask for together."""
        return self._requested.get(number, {})

    def pods_on(self, number: int) -> Mapping[str, Pod]:
        """The pods that stand on the node, by UID."""
        return self._on_node.get(number, _NO_PODS)

    def pod(self, uid: str) -> Pod | None:
        """A pod by UID."""
        return self.pods.get(uid)

    def namespace_labels(self, name: str) -> Labels | None:
        """The labels of a Namespace object."""
        return self.namespaces.labels(name)

    @contextmanager
    def without(self, pods: Sequence[Pod]) -> Iterator[None]:
        """Inside the block the pods do not count. Ask for the question before: a group made inside would count them."""
        touched: list[tuple[Group, int, int]] = []
        for pod in pods:
            held = self.pods.get(pod.uid)
            if held is None or not held.node:
                continue
            placement = self.placements.find(held.shape, terminating=held.terminating)
            number = self.topology.number(held.node)
            for group in placement.groups if placement else ():
                touched.append((group, number, group.version))
                group.add(number, -1)
        try:
            yield
        finally:
            for group, number, version in reversed(touched):
                group.add(number, 1)
                group.version = version

    def statistics(self) -> dict[str, int]:
        """Sizes of everything that is kept, for metrics."""
        parts = (self.topology, self.namespaces, self.terms, self.spreads, self.questions)
        result = {"pods": len(self.pods), "shapes": len(self.placements), "workloads": len(self.workloads.objects)}
        for part in parts:
            result |= part.statistics()
        return result


def _key(obj: Object) -> str:
    match obj:
        case Pod():
            return obj.uid
        case Workload():
            return obj.key
        case _:
            return obj.name


def _add(groups: Iterable[Group], number: int, pods: int) -> None:
    for group in groups:
        group.add(number, pods)
