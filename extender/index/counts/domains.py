"""Nodes and domains by number: topology key to domain to nodes, and which of them are eligible for an incoming pod.

Every node name that a pod or the API mentions has a small number, and every domain of a key has one, so that a group
counts with ``counts[domain_of[node]]`` and nothing is compared as text. Number 0 stands for "lacks the key" (or, in a
scope, "does not count"). Facts this rests on:

1. A pod may claim a node that does not exist (yet, or any more). Its name has a number, but every key gives 0 there.
2. Domain numbers of a key are shared by all scopes of that key; a scope only leaves nodes out.
3. Columns that are lists all grow together, in `Topology.number`, and some numbers ahead.
4. A node is in the column of a key or scope only if it carries the key's label, so a change of a node touches the
   columns of its own labels. Scopes that count nodes without the key, too, are few: those of default constraints.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import NamedTuple

from extender.index.counts.columns import NodeColumn
from extender.model.bounded import shrink
from extender.model.labels import NO_LABELS, Labels
from extender.model.node_affinity import NodeAffinity
from extender.model.objects import Node
from extender.model.taints import Toleration, first_untolerated

_LEAST_SPARE = 16  # node numbers that columns have room for beyond those in use

_NO_NUMBERS: dict[str, int] = {}
_NO_NODES: dict[int, set[int]] = {}
_NO_VALUES: list[str] = []
_NO_FREE: list[int] = []


class KeyDomains(NodeColumn):
    """The domains of one topology key over all nodes. ``users`` counts the groups and scopes over it.

    A key that no node carries has no tables of its own.
    """

    __slots__ = ("_free", "_known", "_values", "key", "nodes_in", "number_of", "users")

    def __init__(self, key: str, known: Mapping[str, int], zeros: list[int]) -> None:
        super().__init__(zeros)
        self.key = key
        self._known = known
        self.users = 0
        self._forget_values()

    def _forget_values(self) -> None:
        self.number_of = _NO_NUMBERS
        self.nodes_in = _NO_NODES
        self._values = _NO_VALUES
        self._free = _NO_FREE

    @property
    def lacking(self) -> int:
        """How many nodes do not have the key."""
        return len(self._known) - self.filled

    def value(self, domain: int) -> str:
        """The label's value of a domain."""
        return self._values[domain]

    def value_on(self, node: Node) -> str | None:
        """The node's value for this key, None where it lacks the key."""
        return node.labels.get(self.key)

    def number(self, value: str) -> int:
        """The number of a domain, made where the value is new."""
        found = self.number_of.get(value)
        if found is None:
            if not self._values:
                self.number_of, self.nodes_in, self._values, self._free = {}, {}, [""], []
            if self._free:
                found = self._free.pop()
                self._values[found] = value
            else:
                found = len(self._values)
                self._values.append(value)
            self.number_of[value] = found
        return found

    def put(self, number: int, node: Node | None) -> None:
        """Sets the node's domain (None: the node is gone); a domain without nodes is forgotten."""
        value = None if node is None else self.value_on(node)
        new = 0 if value is None else self.number(value)
        old = self.fill(number, new)
        if old == new:
            return
        if new:
            self.nodes_in.setdefault(new, set()).add(number)
        if old:
            self._leave(old, number)

    def _leave(self, domain: int, number: int) -> None:
        rest = self.nodes_in[domain]
        rest.discard(number)
        if not rest:
            del self.nodes_in[domain]
            if self._values[domain]:  # the number of "" is kept: a scope may count nodes without the key under it
                del self.number_of[self._values[domain]]
                self._free.append(domain)
            if not self.number_of:
                self._forget_values()


class NodeItself(KeyDomains):
    """Every node as a domain of its own: soft spread over hostname counts the node's own pods, whatever its label."""

    __slots__ = ()

    def value_on(self, node: Node) -> str | None:
        """The node's name."""
        return node.name


@dataclass(frozen=True, slots=True)
class Inclusion:
    """Which nodes count for a spread constraint of an incoming pod: a property of that pod, not of the domain.

    ``affinity`` and ``tolerations`` are None where the policy is Ignore. ``missing_as_empty``: under System defaulting
    a node without the key counts as having the value "".
    """

    keys: frozenset[str] = frozenset()
    affinity: NodeAffinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    missing_as_empty: bool = False

    def admits(self, node: Node) -> bool:
        """Whether the node has all the keys and passes the policies."""
        if not self.keys <= node.labels.keys():
            return False
        if self.affinity is not None and not self.affinity.matches(node.name, node.labels):
            return False
        return self.tolerations is None or first_untolerated(node.taints, self.tolerations) is None


class Scope(NodeColumn):
    """The eligible nodes and domains of one topology key under one inclusion rule.

    ``charge`` is how many entries its column had when it was made.
    """

    __slots__ = ("charge", "domains", "inclusion", "key", "users")

    def __init__(self, key: KeyDomains, inclusion: Inclusion, zeros: list[int]) -> None:
        super().__init__(zeros)
        self.key = key
        self.inclusion = inclusion
        self.domains: dict[int, int] = {}
        self.users = self.charge = 0

    @property
    def label(self) -> str:
        """The label key that a node must carry to be in it; empty where nodes without the key may be in it too."""
        return "" if self.inclusion.missing_as_empty else self.key.key

    def put(self, number: int, node: Node | None) -> None:
        """Sets the node's eligible domain; to be called after the key itself knows the node."""
        new = self._domain(number, node)
        old = self.fill(number, new)
        if new:
            self.domains[new] = self.domains.get(new, 0) + 1
        if old:
            self.domains[old] -= 1
            if not self.domains[old]:
                del self.domains[old]

    def _domain(self, number: int, node: Node | None) -> int:
        if node is None or not self.inclusion.admits(node):
            return 0
        domain = self.key.of_node[number]
        return self.key.number("") if not domain and self.inclusion.missing_as_empty else domain


class Turned(NamedTuple):
    """What a change of a node has filled first or emptied: columns in use, and label keys that no node carried before."""

    columns: Sequence[NodeColumn]
    keys: Collection[str]


_NOT_TURNED = Turned((), ())


class Topology:
    """All nodes by number, with the keys and scopes that are in use.

    ``scope_cells`` is what the columns of all scopes take up, in entries. ``version`` grows with every change of a node.
    """

    def __init__(self) -> None:
        self.version = 0
        self.scope_cells = 0
        self.known: dict[str, int] = {}
        self.nodes: list[Node | None] = []
        self._zeros: list[int] = []
        self.itself = NodeItself("", self.known, self._zeros)
        self.keys: dict[str, KeyDomains] = {}
        self._scopes: dict[tuple[str, Inclusion], Scope] = {}
        self._scopes_over: dict[str, dict[Scope, None]] = {}
        self._carriers: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self.names: list[str] = []
        self._free: list[int] = []

    def number(self, name: str) -> int:
        """The number of a node name, made where the name is new: the lowest that is free."""
        found = self._numbers.get(name)
        if found is None:
            found = heappop(self._free) if self._free else self._grow()
            self._numbers[name] = found
            self.names[found] = name
        return found

    def _grow(self) -> int:
        self.names.append("")
        self.nodes.append(None)
        if len(self.names) > len(self._zeros):
            self._resize(len(self.names) + max(_LEAST_SPARE, len(self.names) // 8))
        return len(self.names) - 1

    def _resize(self, size: int) -> None:
        """Makes all columns so long. O(keys + scopes), so it is done for many numbers at once."""
        del self._zeros[size:]
        self._zeros.extend([0] * (size - len(self._zeros)))
        for column in (self.itself, *self.keys.values(), *self._scopes.values()):
            column.resize()

    def find(self, name: str) -> int | None:
        """The number of a node name that a node or a pod uses."""
        return self._numbers.get(name)

    def node(self, number: int) -> Node | None:
        """The node of a number, None where pods are on a node that does not exist. O(1)."""
        return self.nodes[number]

    def key(self, topology_key: str) -> KeyDomains:
        """The domains of a key; on first use O(nodes), O(1) where no node carries it."""
        found = self.keys.get(topology_key)
        if found is None:
            found = self.keys[topology_key] = KeyDomains(topology_key, self.known, self._zeros)
            if topology_key in self._carriers:
                for number, node in enumerate(self.nodes):
                    if node is not None:
                        found.put(number, node)
        return found

    def is_carried(self, topology_key: str) -> bool:
        """Whether any node carries the label key. O(1)."""
        return topology_key in self._carriers

    def carried(self) -> AbstractSet[str]:
        """The label keys that nodes carry: for the audit."""
        return self._carriers.keys()

    def acquire_key(self, topology_key: str) -> KeyDomains:
        """The domains of a key, kept until `release_key`."""
        found = self.key(topology_key)
        found.users += 1
        return found

    def release_key(self, key: KeyDomains) -> None:
        """Ends an `acquire_key`; a key is dropped with its last user, as each one costs every change of a node."""
        key.users -= 1
        if not key.users and self.keys.get(key.key) is key:
            del self.keys[key.key]
            shrink(self.keys)

    def acquire_scope(self, key: KeyDomains, inclusion: Inclusion) -> Scope:
        """The eligible nodes of a key under an inclusion rule; on first use O(nodes that can be eligible)."""
        found = self._scopes.get((key.key, inclusion))
        if found is None:
            found = self._scopes[key.key, inclusion] = Scope(key, inclusion, self._zeros)
            self._scopes_over.setdefault(found.label, {})[found] = None
            key.users += 1
            candidates = self.known.values() if not found.label else chain.from_iterable(key.nodes_in.values())
            for number in candidates:
                found.put(number, self.nodes[number])
            found.charge = found.cells
            self.scope_cells += found.charge
        found.users += 1
        return found

    def release_scope(self, scope: Scope) -> None:
        """Ends an `acquire_scope`; a scope is dropped with its last user."""
        scope.users -= 1
        if not scope.users:
            self.scope_cells -= scope.charge
            del self._scopes[scope.key.key, scope.inclusion]
            shrink(self._scopes)
            over = self._scopes_over[scope.label]
            del over[scope]
            if not over:
                del self._scopes_over[scope.label]
            self.release_key(scope.key)

    def release_all(self) -> None:
        """Drops every key and scope, whatever their users: for a recount."""
        self.keys.clear()
        self._scopes.clear()
        self._scopes_over.clear()
        self.scope_cells = 0

    def put(self, number: int, node: Node | None) -> Turned:
        """Sets or removes a node. Counts of pods on it must have been taken out before.

        O(labels + scopes over these labels); O(1), and nothing turns, where labels and taints stay as they are.
        """
        self.version += 1
        old = self.nodes[number]
        self.nodes[number] = node
        if node is None:
            self.known.pop(self.names[number], None)
        else:
            self.known[node.name] = number
        return _NOT_TURNED if same_place(old, node) else self._move(number, old, node)

    def _move(self, number: int, old: Node | None, new: Node | None) -> Turned:
        """Brings the columns up to date that the node is in, or is to be in."""
        before, after = (NO_LABELS if node is None else node.labels for node in (old, new))
        first_carried = self._count_carriers(before, after)
        labels = before.keys() | after.keys()
        columns: list[KeyDomains | Scope] = [self.itself]
        columns += [key for label in labels if (key := self.keys.get(label)) is not None]
        for label in ("", *labels):
            columns += self._scopes_over.get(label, ())  # after the keys, which they read
        turned: list[NodeColumn] = []
        for column in columns:
            was_empty = not column.filled
            column.put(number, new)
            if was_empty is bool(column.filled):
                turned.append(column)
        return Turned(turned, first_carried)

    def _count_carriers(self, before: Labels, after: Labels) -> Collection[str]:
        """Counts how many nodes carry each label key; returns the keys that none carried before."""
        first = [label for label in after.keys() - before.keys() if label not in self._carriers]
        for label in before.keys() - after.keys():
            self._carriers[label] -= 1
            if not self._carriers[label]:
                del self._carriers[label]
        for label in after.keys() - before.keys():
            self._carriers[label] = self._carriers.get(label, 0) + 1
        return first

    def release_number(self, number: int) -> None:
        """Frees the number of a name that neither a node nor a pod uses any more; columns get shorter with the last."""
        del self._numbers[self.names[number]]
        self.names[number] = ""
        heappush(self._free, number)
        if number != len(self.names) - 1:
            return
        while self.names and not self.names[-1]:
            self.names.pop()
            self.nodes.pop()
        self._free = [free for free in self._free if free < len(self.names)]
        heapify(self._free)
        if len(self.names) * 2 + _LEAST_SPARE < len(self._zeros):
            self._resize(len(self.names) + _LEAST_SPARE)

    def statistics(self) -> dict[str, int]:
        """How many nodes, keys and scopes are held."""
        return {"nodes": len(self.known), "topology_keys": len(self.keys), "scopes": len(self._scopes)}


def same_place(old: Node | None, new: Node | None) -> bool:
    """Whether nothing changed that decides where the node's pods count: its existence, labels and taints."""
    if old is None or new is None:
        return old is new
    return (old.labels or NO_LABELS) == (new.labels or NO_LABELS) and old.taints == new.taints
