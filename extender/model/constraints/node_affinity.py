"""Which nodes a pod may be placed on by their labels and name: nodeSelector and required node affinity.

Parsed once per pod template and hashable, so that nodes are filtered once per distinct requirement.
https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from extender.model.constraints.labels import Labels, Operator, is_label_key, is_label_value, satisfies
from extender.model.constraints.selectors import Requirement, SelectorError, requirement

_INTEGER = re.compile(r"([+-]?)0*([0-9]{1,19})")  # an int64 has at most 19 digits
_INT64 = 2**63
NAME_FIELD = "metadata.name"
_FEW = 4  # up to so many terms, trying each is as fast as an index


def as_int64(text: str | None) -> int | None:
    """The integer that Go's ``strconv.ParseInt(text, 10, 64)`` reads; None where that fails, or without a text."""
    match = None if text is None else _INTEGER.fullmatch(text)
    if match is None:
        return None
    # Leading zeros are gone, so the text has at most 20 characters, however long it was.
    number = int(match[1] + match[2])
    return number if -_INT64 <= number < _INT64 else None


@dataclass(frozen=True, slots=True)
class NodeRequirement:
    """One clause about a node's label or field; the order of values does not matter."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Labels) -> bool:
        """Whether a node with these labels (or fields) satisfies the clause."""
        value = labels.get(self.key)
        if self.operator in (Operator.GT, Operator.LT):
            return self._compares(as_int64(value))
        return satisfies(value, self.operator, self.values)

    def __str__(self) -> str:
        """As ``kubectl --selector`` would take it, with ``>`` and ``<`` besides."""
        if self.operator in (Operator.GT, Operator.LT):
            return f"{self.key}{'>' if self.operator is Operator.GT else '<'}{self.values[0]}"
        return str(Requirement(self.key, self.operator, self.values))

    def _compares(self, number: int | None) -> bool:
        bound = as_int64(self.values[0])
        if number is None or bound is None:
            return False
        return number > bound if self.operator is Operator.GT else number < bound


def label_requirement(key: str, operator: str, values: Sequence[str] = ()) -> NodeRequirement:
    """A checked clause about a node's labels; raises ``SelectorError`` where the scheduler cannot parse it."""
    if operator not in (Operator.GT, Operator.LT):
        checked = requirement(key, operator, values)
        return NodeRequirement(checked.key, checked.operator, checked.values)
    if len(values) != 1 or as_int64(values[0]) is None:
        raise SelectorError("values: Invalid value: for 'Gt', 'Lt' operators, exactly one integer is required")
    if not is_label_key(key) or not is_label_value(values[0]):  # so no bound has a sign
        raise SelectorError(f'"{key}", "{values[0]}": not a qualified name, or not a valid label value')
    return NodeRequirement(key, Operator(operator), tuple(values))


def field_requirement(key: str, operator: str, values: Sequence[str] = ()) -> NodeRequirement:
    """A checked clause about a node's fields; raises ``SelectorError`` where the scheduler cannot parse it."""
    if operator not in (Operator.IN, Operator.NOT_IN) or len(values) != 1:
        raise SelectorError(f'"{operator}" is not a valid operator of a field, or not of {len(values)} values')
    return NodeRequirement(key, Operator(operator), tuple(values))


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """A conjunction over labels and fields; a term without any clause matches no node.

    A term that cannot be parsed becomes a term without clauses: it matches no node, as in the scheduler.
    """

    expressions: tuple[NodeRequirement, ...] = ()
    fields: tuple[NodeRequirement, ...] = ()

    def matches(self, name: str, labels: Labels) -> bool:
        """Whether the node satisfies every clause; the only field is ``metadata.name``."""
        if not self.expressions and not self.fields:
            return False
        for clause in self.expressions:
            if not clause.matches(labels):
                return False
        return not self.fields or all(clause.matches({NAME_FIELD: name}) for clause in self.fields)

    def unmet(self, name: str, labels: Labels) -> NodeRequirement | None:
        """The first clause that the node does not satisfy, None where it satisfies all."""
        expression = next((clause for clause in self.expressions if not clause.matches(labels)), None)
        return expression or next((clause for clause in self.fields if not clause.matches({NAME_FIELD: name})), None)

    def matching(self, nodes: NodeTable) -> list[bool]:
        """Which of the nodes satisfy every clause."""
        passing = [bool(self.expressions or self.fields)] * len(nodes)
        for clause in self.expressions:
            passing = nodes.satisfying(clause, passing)
        for clause in self.fields:
            passing = nodes.satisfying(clause, passing, is_field=True)
        return passing

    def also(self, more: NodeSelectorTerm) -> NodeSelectorTerm:
        """The term with the clauses of another one added. A term that matches no node stays as it is."""
        if not self.expressions and not self.fields:
            return self
        return NodeSelectorTerm((*self.expressions, *more.expressions), (*self.fields, *more.fields))


class NodeTable:
    """Many nodes by their labels. A clause is compared with a column of values: ten times faster than node by node.

    A column is made when a clause first needs its key. O(nodes) for each key and each clause.
    """

    def __init__(self, nodes: Sequence[tuple[str, Labels]]) -> None:
        """``nodes``: each node's name and labels."""
        self._names: list[str | None] = [name for name, _ in nodes]
        self._labels = [labels for _, labels in nodes]
        self._columns: dict[str, list[str | None]] = {}

    def __len__(self) -> int:
        return len(self._labels)

    def satisfying(self, clause: NodeRequirement, among: list[bool], *, is_field: bool = False) -> list[bool]:
        """Which of the nodes ``among`` satisfy a clause about labels, or with ``is_field`` about the name."""
        values = self._names if is_field else self._values(clause.key)
        if is_field and clause.key != NAME_FIELD:
            values = [None] * len(values)
        # Each distinct value is compared once: thousands of nodes have few zones.
        distinct = set(values)
        passing = {value for value in distinct if clause.matches({} if value is None else {clause.key: value})}
        if len(passing) == len(distinct):
            return among
        return [asked and value in passing for asked, value in zip(among, values, strict=True)]

    def _values(self, key: str) -> list[str | None]:
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = [labels.get(key) for labels in self._labels]
        return column


_Filed = dict[str, list[NodeSelectorTerm]]


class TermIndex:
    """The terms of a node affinity by a value that a node needs for the term to match, so that few terms are tried.

    A term with an ``In`` clause is filed under the values of its shortest ``In`` clause. Other terms are tried for
    every node.
    """

    __slots__ = ("_by_label", "_by_name", "_others")

    def __init__(self, terms: Iterable[NodeSelectorTerm]) -> None:
        self._by_label: dict[str, _Filed] = {}
        self._by_name: _Filed = {}
        self._others: list[NodeSelectorTerm] = []
        for term in terms:
            label, name = _shortest_list(term.expressions), _shortest_list(term.fields)
            if label is not None:
                _file(term, label, self._by_label.setdefault(label.key, {}))
            elif name is not None:
                _file(term, name, self._by_name)
            else:
                self._others.append(term)

    def candidates(self, name: str, labels: Labels) -> Iterator[NodeSelectorTerm]:
        """All terms that may match a node. O(label keys of the terms + results)."""
        for key, filed in self._by_label.items():
            # A node without the label finds the terms of the empty value. They are candidates only: `matches` decides.
            yield from filed.get(labels.get(key, ""), ())
        yield from self._by_name.get(name, ())
        yield from self._others


def _shortest_list(clauses: Iterable[NodeRequirement]) -> NodeRequirement | None:
    listing = (clause for clause in clauses if clause.operator is Operator.IN)
    return min(listing, key=lambda clause: len(clause.values), default=None)


def _file(term: NodeSelectorTerm, clause: NodeRequirement, filed: _Filed) -> None:
    for value in set(clause.values):
        filed.setdefault(value, []).append(term)


@dataclass(frozen=True, slots=True)
class NodeAffinity:
    """nodeSelector AND (any of the required terms); ``terms`` None means no required node affinity.

    ``beside`` are further affinities that the node must match: terms of policies, too many to be joined with the pod's
    own.

    The hash is computed once, because it is part of the key of each spread group of a pod. Many terms are indexed once,
    because each node is matched against them.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeSelectorTerm, ...] | None = None
    beside: tuple[NodeAffinity, ...] = ()
    _hash: int = field(init=False, repr=False, compare=False)
    _index: TermIndex | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Computes the hash and the index. O(terms × clauses + values)."""
        object.__setattr__(self, "_hash", hash((self.node_selector, self.terms, self.beside)))
        indexed = TermIndex(self.terms) if self.terms is not None and len(self.terms) > _FEW else None
        object.__setattr__(self, "_index", indexed)

    def __hash__(self) -> int:
        return self._hash

    @property
    def admits_all(self) -> bool:
        """Whether every node passes, so that no node need be matched."""
        return not self.node_selector and self.terms is None and not self.beside

    def matches(self, name: str, labels: Labels) -> bool:
        """Whether the pod may be placed on a node with this name and these labels."""
        if any(labels.get(key) != value for key, value in self.node_selector):
            return False
        if self.beside and not all(affinity.matches(name, labels) for affinity in self.beside):
            return False
        if self.terms is None:
            return True
        terms = self.terms if self._index is None else self._index.candidates(name, labels)
        return any(term.matches(name, labels) for term in terms)

    def unmet(self, name: str, labels: Labels) -> str:
        """What a node lacks: the first unmet clause of nodeSelector, else of the first term. Empty if it lacks nothing.

        O(nodeSelector + clauses of the first term).
        """
        for key, value in self.node_selector:
            if labels.get(key) != value:
                return str(NodeRequirement(key, Operator.IN, (value,)))
        if self.terms:
            clause = self.terms[0].unmet(name, labels)
            more = len(self.terms) - 1
            if clause is not None:
                return str(clause) + (f", or {more} more term{'s' * (more > 1)}" if more else "")
        return next((text for affinity in self.beside if (text := affinity.unmet(name, labels))), "")

    def matching(self, nodes: NodeTable) -> list[bool] | None:
        """Which of the nodes the pod may be placed on; None where node by node is faster (indexed terms)."""
        if self._index is not None or self.beside:
            return None
        selected = [True] * len(nodes)
        for key, value in self.node_selector:
            selected = nodes.satisfying(NodeRequirement(key, Operator.IN, (value,)), selected)
        if self.terms is None:
            return selected
        by_term = [term.matching(nodes) for term in self.terms]
        return [is_selected and any(passes) for is_selected, *passes in zip(selected, *by_term, strict=True)]

    def at(self, name: str) -> NodeAffinity:
        """These requirements, on the node of this name only."""
        return self._also(NodeSelectorTerm(fields=(NodeRequirement(NAME_FIELD, Operator.IN, (name,)),)))

    def within(self, key: str, values: tuple[str, ...]) -> NodeAffinity:
        """These requirements, on nodes with one of these values of a label only."""
        return self._also(NodeSelectorTerm((NodeRequirement(key, Operator.IN, values),)))

    def _also(self, more: NodeSelectorTerm) -> NodeAffinity:
        # Terms are alternatives, so each of them gets the clause.
        terms = (more,) if self.terms is None else tuple(term.also(more) for term in self.terms)
        return replace(self, terms=terms)

    @property
    def only_nodes(self) -> frozenset[str] | None:
        """The names of the nodes that the terms allow, as in a DaemonSet's pod; None where some term names none.

        O(terms).
        """
        by_term = [_listed(term, NAME_FIELD, term.fields) for term in self.terms or ()]
        names = [listed for listed in by_term if listed is not None]
        return frozenset().union(*names) if names and len(names) == len(by_term) else None

    def values_of(self, key: str) -> frozenset[str] | None:
        """The values of a label that the pod's node can have; None where it can have any value. O(clauses + values)."""
        allowed = [frozenset((value,)) for name, value in self.node_selector if name == key]
        by_term = [_listed(term, key, term.expressions) for term in self.terms or ()]
        listed = [values for values in by_term if values is not None]
        # One term without a list allows any value, so then the terms do not narrow the values.
        if by_term and len(listed) == len(by_term):
            allowed.append(frozenset().union(*listed))
        return frozenset.intersection(*allowed) if allowed else None


def _listed(term: NodeSelectorTerm, key: str, clauses: Iterable[NodeRequirement]) -> frozenset[str] | None:
    """The values of a key that the clauses of a term allow. Empty: the term matches no node.

    None: no clause lists values.
    """
    if not term.expressions and not term.fields:
        return frozenset()
    lists = [frozenset(clause.values) for clause in clauses if clause.key == key and clause.operator is Operator.IN]
    # The clauses of a term hold together, so only common values are left.
    return frozenset.intersection(*lists) if lists else None


@dataclass(frozen=True, slots=True)
class PreferredNodeTerm:
    """A term that raises a node's score by ``weight`` (1–100)."""

    weight: int
    term: NodeSelectorTerm


def node_selector(pairs: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """A nodeSelector map in canonical order."""
    return tuple(sorted(pairs.items()))


ANY_NODE = NodeAffinity()
