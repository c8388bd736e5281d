"""Nodes by number, with the topology keys and scopes over them, and the pods on each node.

Every node name that a pod or the API mentions has a small number. Facts that this relies on:

1. A pod may be on a node that does not exist yet, or any more. Its name has a number, and every key gives 0 there.
2. Columns that are lists all grow together, in `Topology.number`, some numbers ahead.
3. A node is in the column of a key or scope only if it has the key's label. So a change of a node changes only columns
   of its own labels. Few scopes also count nodes without the key: the scopes of default constraints.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Final, NamedTuple, TypeVar

from extender.index.nodes.columns import NodeColumn
from extender.index.nodes.domains import DomainScope, Inclusion, KeyDomains, NodeItself, NodeMatches
from extender.model.bounded import shrink
from extender.model.constraints.labels import HOSTNAME, NO_LABELS, Labels
from extender.model.constraints.node_affinity import NodeAffinity
from extender.model.constraints.taints import PREFER_NO_SCHEDULE, Taint
from extender.model.host_ports import UsedPorts
from extender.model.objects import Node, Pod
from extender.model.resources import Resources, add

T = TypeVar("T")

_LEAST_SPARE = 16  # node numbers for which columns have room beyond those in use
_NO_PODS: Mapping[str, Pod] = {}
_NO_RESOURCES: Resources = {}
_NO_PORTS: Final = UsedPorts()


class OccupancyChanges(NamedTuple):
    """Columns that a change of a node filled first or emptied, and the label keys that no node had before."""

    columns: Sequence[NodeColumn]
    keys: AbstractSet[str]


_NO_CHANGES = OccupancyChanges((), frozenset())


class Topology:
    """All nodes by number, with the keys and scopes that are in use."""

    def __init__(self) -> None:
        # Grows with every change of a node.
        self.version = 0
        # Entries in the columns of all scopes.
        self.scope_cells = 0
        # The sum of what all nodes offer.
        self.offered: dict[str, int] = {}
        self.known: dict[str, int] = {}
        self.nodes: list[Node | None] = []
        self._zeros: list[int] = []
        self.itself = NodeItself("", self.known, self._zeros)
        self.keys: dict[str, KeyDomains] = {}
        self._scopes: dict[tuple[str, Inclusion], DomainScope] = {}
        self._scopes_over: dict[str, dict[DomainScope, None]] = {}
        self._scopes_by_taints = 0
        self._matches: dict[NodeAffinity, NodeMatches] = {}
        self._carriers: dict[str, int] = {}
        # Nodes with taints PreferNoSchedule, by these taints.
        self.soft_taints: dict[tuple[Taint, ...], set[int]] = {}
        self._numbers: dict[str, int] = {}
        self.names: list[str] = []
        self._free: list[int] = []

    def number(self, name: str) -> int:
        """The number of a node name. A new name gets the lowest free number."""
        number = self._numbers.get(name)
        if number is None:
            if self._free and self._free[0] >= len(self.names):
                self._free.clear()  # the lowest is beyond the end, which was cut off, so all are
            number = heappop(self._free) if self._free else self._grow()
            self._numbers[name] = number
            self.names[number] = name
        return number

    def _grow(self) -> int:
        self.names.append("")
        self.nodes.append(None)
        if len(self.names) > len(self._zeros):
            self._resize(len(self.names) + max(_LEAST_SPARE, len(self.names) // 8))
        return len(self.names) - 1

    def _resize(self, size: int) -> None:
        """Makes all columns this long. O(keys + scopes), so it is done for many numbers at a time."""
        del self._zeros[size:]
        self._zeros.extend([0] * (size - len(self._zeros)))
        for column in (self.itself, *self.keys.values(), *self._scopes.values()):
            column.resize()

    def find(self, name: str) -> int | None:
        """The number of a node name that a node or a pod uses, else None."""
        return self._numbers.get(name)

    def node(self, number: int) -> Node | None:
        """The node of a number. None: only pods are there, or it was deleted after the number was read. O(1)."""
        try:
            return self.nodes[number]
        except IndexError:
            return None

    def key(self, topology_key: str) -> KeyDomains:
        """The domains of a key. On first use O(nodes), or O(1) if no node has it."""
        key = self.keys.get(topology_key)
        if key is None:
            key = self.keys[topology_key] = KeyDomains(topology_key, self.known, self._zeros)
            # Host names are the most frequent topology key, and the request that names it first waits until its column
            # is filled.
            if topology_key == HOSTNAME and self._are_named_by_hostname():
                key.put_copy(self.itself)
            elif topology_key in self._carriers:
                key.put_all(self.nodes)
        return key

    def _are_named_by_hostname(self) -> bool:
        """Whether the hostname of each node is its name, as usual. Then its domains are known already. O(nodes)."""
        for node in self.nodes:  # noqa: SIM110 - a generator would take twice as long
            if node is not None and node.labels.get(HOSTNAME) != node.name:
                return False
        return True

    def is_carried(self, topology_key: str) -> bool:
        """Whether any node carries the label key. O(1)."""
        return topology_key in self._carriers

    def carried(self) -> AbstractSet[str]:
        """The label keys that nodes have; for the audit."""
        return self._carriers.keys()

    def acquire_key(self, topology_key: str) -> KeyDomains:
        """The domains of a key; kept until `release_key`."""
        key = self.key(topology_key)
        key.users += 1
        return key

    def release_key(self, key: KeyDomains) -> None:
        """Ends an `acquire_key`. A key is dropped with its last user, because each key costs every change of a node."""
        key.users -= 1
        if not key.users and self.keys.get(key.key) is key:
            del self.keys[key.key]
            shrink(self.keys)

    def acquire_scope(self, key: KeyDomains, inclusion: Inclusion) -> DomainScope:
        """The eligible nodes of a key under an inclusion rule. On first use O(nodes that can be eligible)."""
        scope = self._scopes.get((key.key, inclusion))
        if scope is None:
            scope = self._scopes[key.key, inclusion] = DomainScope(key, inclusion, self._zeros)
            self._scopes_by_taints += inclusion.tolerations is not None
            self._scopes_over.setdefault(scope.label, {})[scope] = None
            key.users += 1
            self._fill_scope(scope)
            scope.charge = scope.cells
            self.scope_cells += scope.charge
        scope.users += 1
        return scope

    def _fill_scope(self, scope: DomainScope) -> None:
        key, inclusion = scope.key, scope.inclusion
        if scope.label in inclusion.keys:
            # Another constraint of the same pod, as a rule: its scope has the same nodes.
            for other in inclusion.keys - {scope.label}:
                filled = self._scopes.get((other, inclusion))
                if filled is not None:
                    scope.put_same(filled)
                    return
        candidates = self.known.values() if not scope.label else chain.from_iterable(key.nodes_in.values())
        scope.put_all(candidates, self.nodes)

    def acquire_matches(self, affinity: NodeAffinity) -> NodeMatches:
        """The nodes that a node affinity admits; kept until `release_matches`. O(1)."""
        matches = self._matches.get(affinity)
        if matches is None:
            matches = self._matches[affinity] = NodeMatches(affinity, self.nodes)
        matches.users += 1
        return matches

    def matches(self) -> Collection[NodeMatches]:
        """What policies require of nodes; for the audit."""
        return self._matches.values()

    def release_matches(self, matches: NodeMatches) -> None:
        """Ends an `acquire_matches`. They are dropped with the last user."""
        matches.users -= 1
        if not matches.users:
            del self._matches[matches.affinity]
            shrink(self._matches)

    def release_scope(self, scope: DomainScope) -> None:
        """Ends an `acquire_scope`. A scope is dropped with its last user."""
        scope.users -= 1
        if not scope.users:
            self.scope_cells -= scope.charge
            self._scopes_by_taints -= scope.inclusion.tolerations is not None
            del self._scopes[scope.key.key, scope.inclusion]
            shrink(self._scopes)
            over = self._scopes_over[scope.label]
            del over[scope]
            if not over:
                del self._scopes_over[scope.label]
            self.release_key(scope.key)

    def release_all(self) -> None:
        """Drops every key and scope, even with users; for a recount."""
        self.keys.clear()
        self._scopes.clear()
        self._scopes_over.clear()
        self._scopes_by_taints = 0
        self._matches.clear()
        self.scope_cells = 0

    def put(self, number: int, node: Node | None) -> OccupancyChanges:
        """Sets or removes a node. Its pods must not be counted meanwhile.

        O(labels + scopes over these labels + requirements that policies add). O(1), without changes of occupancy, if
        labels stay the same, and taints too if scopes read them.
        """
        self.version += 1
        old = self.nodes[number]
        self.nodes[number] = node
        if old is None or node is None or old.allocatable != node.allocatable:
            add(self.offered, {} if node is None else node.allocatable)
            add(self.offered, {} if old is None else old.allocatable, -1)
        if node is None:
            self.known.pop(self.names[number], None)
        else:
            self.known[node.name] = number
        self._file_soft_taints(number, soft_taints(old), soft_taints(node))
        return _NO_CHANGES if self.is_same_place(old, node) else self._move(number, old, node)

    def is_same_place(self, old: Node | None, new: Node | None) -> bool:
        """Whether the node's pods count where they did: same existence and labels, same taints if a scope reads them.

        Losing a zone changes the taints of all its nodes, and by default no spread constraint reads taints.
        """
        if old is None or new is None:
            return old is new
        if (old.labels or NO_LABELS) != (new.labels or NO_LABELS):
            return False
        return not self._scopes_by_taints or old.taints == new.taints

    def _move(self, number: int, old: Node | None, new: Node | None) -> OccupancyChanges:
        """Updates the columns that the node is in, or is to be in."""
        before, after = (NO_LABELS if node is None else node.labels for node in (old, new))
        first_carried = self._count_carriers(before, after)
        for matches in self._matches.values():
            matches.forget(number)
        # Only columns of labels that the node has or had: a node cannot be in others.
        columns: list[KeyDomains | DomainScope] = [self.itself, *_among(self.keys, before, after)]
        columns += self._scopes_over.get("", ())  # scopes after keys, because they read them
        columns += chain.from_iterable(_among(self._scopes_over, before, after))
        changed: list[NodeColumn] = []
        for column in columns:
            was_empty = not column.filled
            column.put(number, new)
            if was_empty is bool(column.filled):
                changed.append(column)
        return OccupancyChanges(changed, first_carried)

    def _count_carriers(self, before: Labels, after: Labels) -> AbstractSet[str]:
        """Counts how many nodes have each label key. Returns the keys that no node had before."""
        carriers, first = self._carriers, dict[str, int]()
        for label in before.keys() - after.keys():
            if carriers[label] == 1:
                del carriers[label]
            else:
                carriers[label] -= 1
        for label in after.keys() - before.keys() if before else after:
            if label in carriers:
                carriers[label] += 1
            else:
                first[label] = 1
        carriers.update(first)
        return first.keys()

    def _file_soft_taints(self, number: int, before: tuple[Taint, ...], after: tuple[Taint, ...]) -> None:
        """Files a node under its taints PreferNoSchedule. Most nodes have none. O(taints)."""
        if before == after:
            return
        if before:
            self.soft_taints[before].discard(number)
            if not self.soft_taints[before]:
                # No entry is empty: readers take the keys as the soft taints that exist.
                del self.soft_taints[before]
        if after:
            self.soft_taints.setdefault(after, set()).add(number)

    def wrong_soft_taints(self, numbers: Iterable[int]) -> list[int]:
        """The node numbers that are not filed under their taints PreferNoSchedule; for the audit.

        O(distinct taints).
        """
        return [
            number
            for number in numbers
            if number < len(self.nodes)
            and [taints for taints, nodes in self.soft_taints.items() if number in nodes]
            != [taints for taints in (soft_taints(self.nodes[number]),) if taints]
        ]

    def release_number(self, number: int) -> None:
        """Frees the number of a name that no node and no pod uses now.

        While half of the numbers are in use they stay, because work in steps (an explanation, a page) keeps numbers
        between steps. Below that, numbers at the end are cut off. Amortised O(log nodes).
        """
        # The number may be reused, the lowest first, so that high numbers become free and can be cut off.
        del self._numbers[self.names[number]]
        self.names[number] = ""
        heappush(self._free, number)
        # Example: numbers 0 to 99 with 60 in use stay. With 30 in use, the free ones at the end are cut off.
        if self._numbers and (self.names[-1] or len(self._numbers) * 2 + _LEAST_SPARE >= len(self.names)):
            return
        while self.names and not self.names[-1]:
            self.names.pop()
            self.nodes.pop()
        # Most free numbers were cut off with the end.
        if len(self._free) > 2 * (len(self.names) - len(self._numbers)) + _LEAST_SPARE:
            self._free = [free for free in self._free if free < len(self.names)]
            heapify(self._free)
        if len(self.names) * 2 + _LEAST_SPARE < len(self._zeros):
            self._resize(len(self.names) + _LEAST_SPARE)

    def statistics(self) -> dict[str, int]:
        """How many nodes, keys, scopes and node affinities of policies are held."""
        kept = {"topology_keys": len(self.keys), "scopes": len(self._scopes), "node_matches": len(self._matches)}
        return {"nodes": len(self.known)} | kept


def _among(table: Mapping[str, T], before: Labels, after: Labels) -> list[T]:
    """The entries of the label keys that a node has, or had. O(the smaller of both)."""
    if len(table) < len(before) + len(after):
        return [entry for label, entry in table.items() if label in before or label in after]
    return [entry for label in before.keys() | after.keys() if (entry := table.get(label)) is not None]


def soft_taints(node: Node | None) -> tuple[Taint, ...]:
    """The node's taints PreferNoSchedule."""
    if node is None or not node.taints:
        return ()
    return tuple([taint for taint in node.taints if taint.effect == PREFER_NO_SCHEDULE])


class NodePods:
    """Pods, requested resources and host ports by node number, and how many placed pods have each priority.

    A pod is on a node if the watch shows it there, or if it is assumed there. A node without pods has no entry.
    ``version`` grows with every pod that is added or removed.
    """

    def __init__(self) -> None:
        self.version = 0
        self._pods: dict[int, dict[str, Pod]] = {}
        self._requested: dict[int, dict[str, int]] = {}
        self._priorities: dict[int, int] = {}
        self._ports: dict[int, UsedPorts] = {}

    def count(self, pod: Pod, number: int, sign: int) -> bool:
        """Adds a pod to a node (``sign`` 1) or removes it (-1). Returns whether the node has pods now. O(resources)."""
        self.version += 1
        here = self._pods.get(number)
        if here is None:
            here = self._pods[number] = {}
            self._requested[number] = {}
        requested = self._requested[number]
        for name, amount in pod.requests.items():
            # An entry of 0 is dropped: an extended resource that no pod requests any more would stay while the node has
            # pods.
            if rest := requested.get(name, 0) + sign * amount:
                requested[name] = rest
            else:
                requested.pop(name, None)
        if pod.host_ports:
            self._count_ports(pod, number, sign)
        remaining = self._priorities.get(pod.priority, 0) + sign
        if remaining:
            self._priorities[pod.priority] = remaining
        else:
            del self._priorities[pod.priority]
        if sign > 0:
            here[pod.uid] = pod
            return True
        del here[pod.uid]
        if not here:
            del self._pods[number], self._requested[number]
        return bool(here)

    def _count_ports(self, pod: Pod, number: int, sign: int) -> None:
        used = self._ports.setdefault(number, UsedPorts())
        used.count(pod.host_ports, sign)
        if not used:
            del self._ports[number]

    def replace(self, pod: Pod, number: int) -> None:
        """Replaces a pod of a node by its new version, with equal requests and priority. O(1)."""
        self.version += 1
        self._pods[number][pod.uid] = pod

    def clear(self) -> None:
        """Removes all pods: for a recount."""
        self._pods.clear()
        self._requested.clear()
        self._priorities.clear()
        self._ports.clear()

    def pods_on(self, number: int) -> Mapping[str, Pod]:
        """The pods on the node, by UID. O(1)."""
        return self._pods.get(number, _NO_PODS)

    def requested(self, number: int) -> Resources:
        """The sum of the requests of the pods on the node. O(1)."""
        return self._requested.get(number, _NO_RESOURCES)

    def ports_on(self, number: int) -> UsedPorts:
        """The host ports in use on the node. Must not be changed. O(1)."""
        return self._ports.get(number, _NO_PORTS)

    def has_below(self, priority: int) -> bool:
        """Whether any placed pod has a lower priority. O(distinct priorities)."""
        return any(held < priority for held in self._priorities)
