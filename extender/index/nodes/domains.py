"""Domains by number: topology key to domain to nodes, and which of them are eligible for an incoming pod.

Every domain of a key has a small number, and every node has one in `Topology`. So a group counts with
``counts[domain_of[node]]`` and compares no text. Number 0 means "lacks the key", in a scope "does not count". All
scopes of a key share its domain numbers; a scope only leaves nodes out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from extender.index.nodes.columns import Column, ColumnView, NodeColumn
from extender.model.bounded import Few, few_of, with_item, without_item
from extender.model.constraints.node_affinity import NodeAffinity, NodeTable
from extender.model.constraints.taints import Toleration, first_untolerated
from extender.model.objects import Node

_NO_NUMBERS: dict[str, int] = {}
_NO_NODES: dict[int, Few[int]] = {}
_NO_VALUES: list[str] = []
_NO_FREE: list[int] = []


class KeyView(ColumnView):
    """What readers see of the domains of one topology key. ``of_node[node]``: the domain of a node.

    ``number_of``: the domain's number by the label's value. ``nodes_in``: its nodes; one for a hostname, thousands for
    a zone.
    """

    __slots__ = ("_known", "_values", "key", "nodes_in", "number_of")
    _values: list[str]
    number_of: Mapping[str, int]
    nodes_in: Mapping[int, Collection[int]]

    def __init__(self, key: str, known: Mapping[str, int], zeros: list[int]) -> None:
        super().__init__(zeros)
        self.key = key
        self._known = known

    @property
    def lacking(self) -> int:
        """How many nodes do not have the key."""
        return len(self._known) - self.filled

    def value(self, domain: int) -> str:
        """The label's value of a domain."""
        return self._values[domain]

    def value_on(self, node: Node) -> str | None:
        """The node's value of this key, even for a node that the index does not know; None if it lacks the key."""
        return node.labels.get(self.key)


class KeyDomains(KeyView, NodeColumn):
    """The domains of one topology key over all nodes. ``users``: how many groups and scopes use it.

    A key that no node has takes no tables of its own.
    """

    __slots__ = ("_free", "users")
    number_of: dict[str, int]
    nodes_in: dict[int, Few[int]]

    def __init__(self, key: str, known: Mapping[str, int], zeros: list[int]) -> None:
        super().__init__(key, known, zeros)
        self.users = 0
        self._drop_values()

    def _drop_values(self) -> None:
        self.number_of = _NO_NUMBERS
        self.nodes_in = _NO_NODES
        self._values = _NO_VALUES
        self._free = _NO_FREE

    def number(self, value: str) -> int:
        """The number of a domain; a new value gets a new number."""
        number = self.number_of.get(value)
        if number is None:
            if not self._values:
                self.number_of, self.nodes_in, self._values, self._free = {}, {}, [""], []
            if self._free:
                # A domain number is reused only after its last node has left, so no group counts pods under it.
                number = self._free.pop()
                self._values[number] = value
            else:
                number = len(self._values)
                self._values.append(value)
            self.number_of[value] = number
        return number

    def put_all(self, nodes: Sequence[Node | None]) -> None:
        """Fills empty tables with the domains of all nodes. O(nodes): 0.2 µs each, a fifth of `put`.

        A pod that names new keys waits for this, and so does everything else. So most of it runs in native code.
        """
        key = self.key
        value_of = {
            number: node.labels[key] for number, node in enumerate(nodes) if node is not None and key in node.labels
        }
        if value_of:
            numbers = dict(zip(dict.fromkeys(value_of.values()), count(1), strict=False))
            domain_of = dict(zip(value_of, map(numbers.__getitem__, value_of.values()), strict=True))
            self.number_of, self._values, self._free = numbers, ["", *numbers], []
            self.nodes_in = _nodes_in(domain_of, len(numbers))
            self.fill_all(domain_of)

    def put_copy(self, other: KeyDomains) -> None:
        """Fills empty tables with the domains of another key. O(domains), a tenth of `put_all`."""
        if other.number_of:
            # A shallow copy is enough: each node is a domain of its own, and the tuple of one node is never changed in
            # place.
            self.number_of, self.nodes_in = other.number_of.copy(), other.nodes_in.copy()
            self._values, self._free = other._values.copy(), other._free.copy()
        self.copy_numbers(other)

    def put(self, number: int, node: Node | None) -> None:
        """Sets the node's domain (None: the node is deleted). A domain without nodes is dropped."""
        value = None if node is None else self.value_on(node)
        new = 0 if value is None else self.number(value)
        old = self.fill(number, new)
        if old == new:
            return
        if new:
            self.nodes_in[new] = with_item(self.nodes_in.get(new, ()), number)
        if old:
            self._leave(old, number)

    def _leave(self, domain: int, number: int) -> None:
        rest = self.nodes_in[domain] = without_item(self.nodes_in[domain], number)
        if not rest:
            del self.nodes_in[domain]
            if self._values[domain]:  # the number of "" stays, because a scope may count nodes without the key under it
                del self.number_of[self._values[domain]]
                self._free.append(domain)
            if not self.number_of:
                self._drop_values()


def _nodes_in(domain_of: Mapping[int, int], domains: int) -> dict[int, Few[int]]:
    """The nodes of each domain. O(nodes)."""
    if len(domain_of) == domains:
        # Each node is a domain of its own: `zip` makes the tuples of one node.
        return dict(zip(domain_of.values(), zip(domain_of, strict=True), strict=True))
    listed: dict[int, list[int]] = {domain: [] for domain in range(1, domains + 1)}
    for number, domain in domain_of.items():
        listed[domain].append(number)
    return {domain: few_of(numbers) for domain, numbers in listed.items()}


class NodeItself(KeyDomains):
    """Every node as its own domain: soft spread over hostname counts the node's own pods, whatever its label is."""

    __slots__ = ()

    def value_on(self, node: Node) -> str | None:
        """The node's name."""
        return node.name


@dataclass(frozen=True, slots=True)
class Inclusion:
    """Which nodes count for a spread constraint of an incoming pod: a property of that pod, not of the domain."""

    keys: frozenset[str] = frozenset()
    # None if the policy is Ignore.
    affinity: NodeAffinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    # Under System defaulting a node without the key counts under the value "".
    missing_as_empty: bool = False

    def admits(self, node: Node) -> bool:
        """Whether the node has all keys and passes the policies."""
        if not self.keys <= node.labels.keys():
            return False
        if self.affinity is not None and not self.affinity.matches(node.name, node.labels):
            return False
        # nodeTaintsPolicy: Honor. By default taints do not matter for spread, so most constraints have no tolerations
        # here.
        return self.tolerations is None or first_untolerated(node.taints, self.tolerations) is None

    def admitted(self, carried: str, numbers: Iterable[int], nodes: Sequence[Node | None]) -> list[int]:
        """Which of some nodes with the label key ``carried`` it admits.

        O(nodes), without a call for a usual node.
        """
        keys, affinity, tolerations = self.keys - {carried}, self.affinity, self.tolerations
        admitted = list[int]()
        for number in numbers:
            node = nodes[number]
            if node is None or (keys and not keys <= node.labels.keys()):
                continue
            if affinity is not None and not affinity.matches(node.name, node.labels):
                continue
            if tolerations is not None and node.taints and first_untolerated(node.taints, tolerations) is not None:
                continue
            admitted.append(number)
        return admitted


class ScopeView(ColumnView):
    """What readers see of a `DomainScope`. ``domains``: the eligible domains, and how many eligible nodes each has."""

    __slots__ = ("domains", "inclusion", "key")
    key: KeyView
    domains: Mapping[int, int]

    def __init__(self, key: KeyView, inclusion: Inclusion, zeros: list[int]) -> None:
        super().__init__(zeros)
        self.key = key
        self.inclusion = inclusion
        self.domains = {}


class DomainScope(ScopeView, NodeColumn):
    """The eligible nodes and domains of one topology key under one inclusion rule.

    ``charge``: how many entries its column had when it was made.
    """

    __slots__ = ("charge", "users")
    key: KeyDomains
    domains: dict[int, int]

    def __init__(self, key: KeyDomains, inclusion: Inclusion, zeros: list[int]) -> None:
        super().__init__(key, inclusion, zeros)
        self.users = self.charge = 0

    @property
    def label(self) -> str:
        """The label key that a node needs to be in it; empty if nodes without the key may be in it too."""
        return "" if self.inclusion.missing_as_empty else self.key.key

    def put_all(self, numbers: Iterable[int], nodes: Sequence[Node | None]) -> None:
        """Fills an empty scope with the eligible domains of all nodes. ``numbers``: the nodes that have its label."""
        self._put_admitted(self.inclusion.admitted(self.label, numbers, nodes))

    def put_same(self, other: DomainScope) -> None:
        """Fills an empty scope from a scope with the same inclusion rule, which requires the keys of both.

        The same nodes are eligible then.
        """
        self._put_admitted(other.numbered())

    def _put_admitted(self, admitted: Sequence[int]) -> None:
        of_node, nodes_in = self.key.of_node, self.key.nodes_in
        if not self.inclusion.missing_as_empty and len(admitted) == self.key.filled:
            # Usual: all nodes with the key are eligible.
            self.domains = dict(zip(nodes_in, map(len, nodes_in.values()), strict=True))
            self.copy_numbers(self.key)
            return
        if self.inclusion.missing_as_empty:
            # As podtopologyspread under System defaulting: a node without the key counts as if its label were empty.
            domain_of = {number: of_node[number] or self.key.number("") for number in admitted}
        else:
            domain_of = {number: domain for number in admitted if (domain := of_node[number])}
        self.domains = dict(Counter(domain_of.values()))
        self.fill_all(domain_of)

    def put(self, number: int, node: Node | None) -> None:
        """Sets the node's eligible domain. The key must already know the node."""
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


_UNKNOWN = 2
_MANY = 16  # nodes; from so many on, a table is faster than node by node


class NodeMatches:
    """The nodes that one node affinity admits. ``users``: how many compiled constraints read it.

    A node is matched when it is first read, and again after it has changed. So no request matches more nodes than it
    reads, and further requests read one byte for each node. ``nodes``: the index's own list, by node number.
    """

    __slots__ = ("_nodes", "_verdicts", "affinity", "users")

    def __init__(self, affinity: NodeAffinity, nodes: Sequence[Node | None]) -> None:
        self.affinity = affinity
        self.users = 0
        self._nodes = nodes
        self._verdicts = bytearray()

    def among(self, nodes: Sequence[int]) -> Column:
        """A column that is not 0 for admitted nodes. O(nodes), plus O(terms) for each node that was not matched yet."""
        verdicts = self._verdicts
        if lacking := len(self._nodes) - len(verdicts):
            verdicts.extend(bytes((_UNKNOWN,)) * lacking)
        if _UNKNOWN in map(verdicts.__getitem__, nodes):
            self._match([number for number in nodes if verdicts[number] == _UNKNOWN])
        return verdicts

    def _match(self, numbers: Sequence[int]) -> None:
        nodes, verdicts = self._nodes, self._verdicts
        known = [(number, node) for number in numbers if (node := nodes[number]) is not None]
        matching = None
        if len(known) >= _MANY:
            matching = self.affinity.matching(NodeTable([(node.name, node.labels) for _, node in known]))
        for number in numbers:
            # A number without a node: no pod can be placed there.
            verdicts[number] = False
        for at, (number, node) in enumerate(known):
            verdicts[number] = self.admits(node) if matching is None else matching[at]

    def admits(self, node: Node) -> bool:
        """Whether a node is admitted, even one without a number. O(terms)."""
        return self.affinity.matches(node.name, node.labels)

    def forget(self, number: int) -> None:
        """A node was added, deleted, or changed its labels. O(1)."""
        if number < len(self._verdicts):
            self._verdicts[number] = _UNKNOWN

    def wrong(self, numbers: Iterable[int]) -> list[int]:
        """Which of the nodes have a wrong known verdict; for the audit. O(nodes × terms)."""
        nodes, verdicts = self._nodes, self._verdicts
        known = [number for number in numbers if number < len(verdicts) and verdicts[number] != _UNKNOWN]
        return [
            number
            for number in known
            if verdicts[number] != ((node := nodes[number]) is not None and self.admits(node))
        ]

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self._nodes)
