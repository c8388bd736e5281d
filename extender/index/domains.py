"""Nodes and domains by number: topology key to domain to nodes, and which of them are eligible for an asking pod.

Every node name that a pod or the API mentions has a small number, and every domain of a key has one, so that a group
counts with ``counts[domain_of[node]]`` and nothing is compared as text. Number 0 stands for "lacks the key" (or, in a
scope, "does not count"). Facts this rests on:

1. A pod may claim a node that does not exist (yet, or any more). Its name has a number, but every key gives 0 there.
2. Domain numbers of a key are shared by all scopes of that key; a scope only leaves nodes out.
3. Lists indexed by node number all grow together, in `Topology.number`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from extender.model.labels import NO_LABELS
from extender.model.node_affinity import NodeAffinity
from extender.model.objects import Node
from extender.model.taints import Toleration, first_untolerated


class KeyDomains:
    """The domains of one topology key over all nodes. ``users`` counts the groups and scopes over it."""

    __slots__ = ("_free", "_known", "_labelled", "_values", "key", "nodes_in", "number_of", "of_node", "users")

    def __init__(self, key: str, known: Mapping[str, int]) -> None:
        self.key = key
        self._known = known
        self._labelled = 0
        self.users = 0
        self.of_node: list[int] = []
        self.number_of: dict[str, int] = {}
        self.nodes_in: dict[int, set[int]] = {}
        self._values: list[str] = [""]
        self._free: list[int] = []

    @property
    def lacking(self) -> int:
        """How many nodes do not have the key."""
        return len(self._known) - self._labelled

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
        old = self.of_node[number]
        if old == new:
            return
        self.of_node[number] = new
        self._labelled += bool(new) - bool(old)
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


class NodeItself(KeyDomains):
    """Every node as a domain of its own: soft spread over hostname counts the node's own pods, whatever its label."""

    __slots__ = ()

    def value_on(self, node: Node) -> str | None:
        """The node's name."""
        return node.name


@dataclass(frozen=True, slots=True)
class Inclusion:
    """Which nodes count for a spread constraint of an asking pod (trap: this belongs to the asker, not the domain).

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


class Scope:
    """The eligible nodes and domains of one topology key under one inclusion rule."""

    __slots__ = ("domains", "inclusion", "key", "of_node", "users")

    def __init__(self, key: KeyDomains, inclusion: Inclusion) -> None:
        self.key = key
        self.inclusion = inclusion
        self.of_node: list[int] = [0] * len(key.of_node)
        self.domains: dict[int, int] = {}
        self.users = 0

    def put(self, number: int, node: Node | None) -> None:
        """Sets the node's eligible domain; to be called after the key itself knows the node."""
        old, new = self.of_node[number], self._domain(number, node)
        self.of_node[number] = new
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


class Topology:
    """All nodes by number, with the keys and scopes that are in use."""

    def __init__(self) -> None:
        self.version = 0
        self.known: dict[str, int] = {}
        self.nodes: list[Node | None] = []
        self.itself = NodeItself("", self.known)
        self.keys: dict[str, KeyDomains] = {}
        self._scopes: dict[tuple[str, Inclusion], Scope] = {}
        self._numbers: dict[str, int] = {}
        self.names: list[str] = []
        self._free: list[int] = []

    def number(self, name: str) -> int:
        """The number of a node name, made where the name is new."""
        found = self._numbers.get(name)
        if found is None:
            found = self._free.pop() if self._free else self._grow()
            self._numbers[name] = found
            self.names[found] = name
        return found

    def find(self, name: str) -> int | None:
        """The number of a node name that a node or a pod uses."""
        return self._numbers.get(name)

    def _grow(self) -> int:
        self.names.append("")
        self.nodes.append(None)
        for column in self._columns():
            column.of_node.append(0)
        return len(self.names) - 1

    def _columns(self) -> Iterator[KeyDomains | Scope]:
        """Everything indexed by node number; keys before scopes, which read them."""
        yield self.itself
        yield from self.keys.values()
        yield from self._scopes.values()

    def key(self, topology_key: str) -> KeyDomains:
        """The domains of a key; on first use O(nodes)."""
        found = self.keys.get(topology_key)
        if found is None:
            found = self.keys[topology_key] = KeyDomains(topology_key, self.known)
            found.of_node = [0] * len(self.names)
            self._fill(found)
        return found

    def hold(self, topology_key: str) -> KeyDomains:
        """The domains of a key, kept until they are given back by `let_go`."""
        found = self.key(topology_key)
        found.users += 1
        return found

    def let_go(self, key: KeyDomains) -> None:
        """Gives a key back; with its last user it is forgotten, as each one costs every change of a node."""
        key.users -= 1
        if not key.users and self.keys.get(key.key) is key:
            del self.keys[key.key]

    def _fill(self, column: KeyDomains | Scope) -> None:
        for number, node in enumerate(self.nodes):
            if node is not None:
                column.put(number, node)

    def scope(self, key: KeyDomains, inclusion: Inclusion) -> Scope:
        """The eligible nodes of a key under an inclusion rule; on first use O(nodes)."""
        found = self._scopes.get((key.key, inclusion))
        if found is None:
            found = self._scopes[key.key, inclusion] = Scope(key, inclusion)
            self._fill(found)
            key.users += 1
        found.users += 1
        return found

    def leave(self, scope: Scope) -> None:
        """Gives a scope back; the last user's leaving forgets it."""
        scope.users -= 1
        if not scope.users:
            del self._scopes[scope.key.key, scope.inclusion]
            self.let_go(scope.key)

    def release_all(self) -> None:
        """Forgets every key and scope, with whoever used it."""
        self.keys.clear()
        self._scopes.clear()

    def put(self, number: int, node: Node | None) -> None:
        """Sets or removes a node. Counts of pods on it must have been taken out before. O(keys + scopes)."""
        self.version += 1
        self.nodes[number] = node
        for column in self._columns():
            column.put(number, node)
        if node is None:
            self.known.pop(self.names[number], None)
        else:
            self.known[node.name] = number

    def release(self, number: int) -> None:
        """Frees the number of a name that neither a node nor a pod uses any more."""
        del self._numbers[self.names[number]]
        self.names[number] = ""
        self._free.append(number)

    def statistics(self) -> dict[str, int]:
        """How many nodes, keys and scopes are held."""
        return {"nodes": len(self.known), "topology_keys": len(self.keys), "scopes": len(self._scopes)}


def same_place(old: Node | None, new: Node | None) -> bool:
    """Whether nothing changed that decides where the node's pods count: its existence, labels and taints."""
    if old is None or new is None:
        return old is new
    return (old.labels or NO_LABELS) == (new.labels or NO_LABELS) and old.taints == new.taints
