"""Where the pods of each shape stand, and how to find the shapes that a selector can reach.

Pods are counted by shape: the replicas of a workload on a thousand nodes are one `Placement`. A placement knows every
group it counts in, so a pod that comes or goes costs one addition per group and no selector is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from extender.index.groups import Group
from extender.model.objects import PodShape
from extender.model.selectors import Requirement


class Placement:
    """Pods of one shape, terminating or not: how many on which node, and the groups that count them.

    ``pending`` is how many more of them stand on a node that is not known yet; ``pins`` keep it although it is empty.
    """

    __slots__ = ("groups", "nodes", "pending", "pins", "shape", "terminating")

    def __init__(self, shape: PodShape, *, terminating: bool) -> None:
        self.shape = shape
        self.terminating = terminating
        self.nodes: dict[int, int] = {}
        self.groups: list[Group] = []
        self.pending = 0
        self.pins = 0

    def count_in(self, group: Group, sign: int) -> None:
        """Adds all these pods to a group, or with ``sign`` -1 takes them out. O(nodes they stand on)."""
        for node, pods in self.nodes.items():
            group.add(node, sign * pods)

    def join(self, group: Group) -> None:
        """From now on the group counts these pods."""
        self.groups.append(group)
        group.pending += self.pending
        self.count_in(group, 1)

    def leave(self, group: Group) -> None:
        """The group counts these pods no more."""
        self.groups.remove(group)
        group.pending -= self.pending
        self.count_in(group, -1)


class Placements:
    """All placements: by shape, by namespace, and by the label keys that selectors anchor on."""

    def __init__(self, on_new: Callable[[Placement], None], on_gone: Callable[[Placement], None]) -> None:
        self._on_new = on_new
        self._on_gone = on_gone
        self._all: dict[tuple[PodShape, bool], Placement] = {}
        self._by_namespace: dict[str, set[Placement]] = {}
        self._by_label: dict[str, dict[tuple[str, str], set[Placement]]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def standing(self) -> int:
        """How many shapes have pods on a node or on their way to one. O(shapes): for metrics."""
        return sum(1 for placement in self._all.values() if placement.nodes or placement.pending)

    def __iter__(self) -> Iterator[Placement]:
        return iter(self._all.values())

    def find(self, shape: PodShape, *, terminating: bool) -> Placement | None:
        """The placement of a shape, None where no such pod stands anywhere."""
        return self._all.get((shape, terminating))

    def put(self, shape: PodShape, terminating: bool, node: int, pods: int) -> None:  # noqa: FBT001 (hot path)
        """Counts so many pods of a shape more (or fewer) on a node, in every group that is concerned. O(groups)."""
        placement = self._all.get((shape, terminating))
        if placement is None:
            placement = self._add(shape, terminating=terminating)
        nodes = placement.nodes
        left = nodes.get(node, 0) + pods
        if left:
            nodes[node] = left
        else:
            del nodes[node]
        for group in placement.groups:
            group.add(node, pods)
        if not nodes:
            self._remove_unused(placement)

    def pin(self, shape: PodShape, pins: int) -> None:
        """Keeps (or with -1 no longer keeps) the placement of a shape that asks.

        Its pods come and go one at a time, assumed and then bound with one more label; without the pin its groups would
        be looked up each time.
        """
        placement = self._all.get((shape, False)) or self._add(shape, terminating=False)
        placement.pins += pins
        self._remove_unused(placement)

    def expect(self, shape: PodShape, pods: int) -> None:
        """So many pods more (or fewer) of a shape stand on a node that is not known yet. O(groups)."""
        placement = self._all.get((shape, False)) or self._add(shape, terminating=False)
        placement.pending += pods
        for group in placement.groups:
            group.pending += pods
        self._remove_unused(placement)

    def _add(self, shape: PodShape, *, terminating: bool) -> Placement:
        placement = self._all[shape, terminating] = Placement(shape, terminating=terminating)
        self._by_namespace.setdefault(shape.namespace, set()).add(placement)
        for key, postings in self._by_label.items():
            if key in shape.labels:
                postings.setdefault((shape.namespace, shape.labels[key]), set()).add(placement)
        self._on_new(placement)
        return placement

    def _remove_unused(self, placement: Placement) -> None:
        if placement.nodes or placement.pending or placement.pins:
            return
        shape = placement.shape
        del self._all[shape, placement.terminating]
        _discard(self._by_namespace, shape.namespace, placement)
        for key, postings in self._by_label.items():
            if key in shape.labels:
                _discard(postings, (shape.namespace, shape.labels[key]), placement)
        self._on_gone(placement)

    def reachable(self, anchor: Requirement | None, namespaces: Iterable[str] | None) -> Iterator[Placement]:
        """A superset of the placements that a selector with this anchor can match in these namespaces (None: all).

        Without an anchor it is every placement there. O(namespaces × values + results).
        """
        names = tuple(self._by_namespace) if namespaces is None else namespaces
        if anchor is None:
            for name in names:
                yield from tuple(self._by_namespace.get(name, ()))
            return
        postings = self._postings(anchor.key)
        for name in names:
            for value in anchor.values:
                yield from tuple(postings.get((name, value), ()))

    def is_filed(self, placement: Placement) -> bool:
        """Whether `reachable` can find the placement by its namespace and by each label that somebody anchors on."""
        shape = placement.shape
        return placement in self._by_namespace.get(shape.namespace, ()) and all(
            placement in postings.get((shape.namespace, shape.labels[key]), ())
            for key, postings in self._by_label.items()
            if key in shape.labels
        )

    def _postings(self, key: str) -> dict[tuple[str, str], set[Placement]]:
        """Placements by namespace and value of one label key; made when a selector first anchors on it. O(shapes)."""
        found = self._by_label.get(key)
        if found is None:
            found = self._by_label[key] = {}
            for placement in self._all.values():
                value = placement.shape.labels.get(key)
                if value is not None:
                    found.setdefault((placement.shape.namespace, value), set()).add(placement)
        return found


def _discard(
    index: dict[str, set[Placement]] | dict[tuple[str, str], set[Placement]], key: object, item: Placement
) -> None:
    """Takes an item out of its bucket, and the bucket away with its last item."""
    buckets: dict[object, set[Placement]] = index  # type: ignore[assignment]  # either kind of key
    bucket = buckets[key]
    bucket.discard(item)
    if not bucket:
        del buckets[key]
