"""Conjunctions of requirements as sets of clauses: which are equal, and which no node (or no pod) can satisfy.

A clause is one requirement in canonical form, so `In [a, b]` equals `In [b, a]`. The operators are In, NotIn, Exists,
DoesNotExist, Gt and Lt of a node selector. An operator of a later API is equal only to itself and never contradicts.
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/node-selector-requirement/
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from extender.model.constraints.labels import Operator
from extender.model.constraints.node_affinity import as_int64

LABEL: Final = "label"
FIELD: Final = "field"
OPAQUE: Final = "opaque"  # a part of a term that the algebra does not read; compared as text

_KNOWN: Final[frozenset[str]] = frozenset(Operator)


class Clause(NamedTuple):
    """``source``: label, field or opaque. ``values`` are sorted, without duplicates."""

    source: str
    key: str
    operator: str
    values: tuple[str, ...] = ()


def clause(source: str, key: str, operator: str, values: Iterable[str] = ()) -> Clause:
    """The canonical clause. O(values × log values)."""
    return Clause(source, key, operator, tuple(sorted(set(values))))


def are_contradictory(clauses: Iterable[Clause]) -> bool:
    """Whether no object can satisfy all clauses. True only where that is certain. O(clauses + values)."""
    first: dict[tuple[str, str], Clause] = {}
    # Only keys whose clauses can contradict: keys with two clauses, or with an upper bound. Most keys have one clause,
    # and cost no list.
    groups: dict[tuple[str, str], list[Clause]] = {}
    for clause in clauses:
        if clause.source == OPAQUE:
            continue
        key = (clause.source, clause.key)
        if key in first:
            groups.setdefault(key, [first[key]]).append(clause)
            continue
        first[key] = clause
        if clause.operator == Operator.LT:
            groups[key] = [clause]
    return any(map(_contradict, groups.values()))


def _contradict(group: list[Clause]) -> bool:
    """Whether no value of one key satisfies all its clauses.

    1. One clause contradicts itself only as a bound below every label value.
    2. DoesNotExist is compatible with itself and NotIn. With an unknown operator nothing is certain.
    3. With In, some listed value must pass each NotIn and lie between the bounds.
    4. Otherwise only the bounds can contradict: NotIn and Exists leave infinitely many values.
    """
    if len(group) == 1:
        return _is_empty_range(group)
    operators = {clause.operator for clause in group}
    if Operator.DOES_NOT_EXIST in operators:
        return not operators <= {Operator.DOES_NOT_EXIST, Operator.NOT_IN} and not _has_unknown(operators)
    listed = [set(clause.values) for clause in group if clause.operator == Operator.IN]
    if not listed:
        return _is_empty_range(group)
    common = set.intersection(*listed)
    for clause in group:
        if clause.operator == Operator.NOT_IN:
            common.difference_update(clause.values)
    low, high = _bounds(group)
    return not any(_lies_between(value, low, high) for value in common)


def _has_unknown(operators: set[str]) -> bool:
    return not operators <= _KNOWN


def _bounds(group: list[Clause]) -> tuple[int | None, int | None]:
    """The greatest Gt and the least Lt; None without one.

    Bounds that are no integers are ignored: see `_is_empty_range`.
    """
    above = [bound for clause in group if clause.operator == Operator.GT for bound in _integers(clause)]
    below = [bound for clause in group if clause.operator == Operator.LT for bound in _integers(clause)]
    return max(above, default=None), min(below, default=None)


def _integers(clause: Clause) -> list[int]:
    return [number for number in map(as_int64, clause.values) if number is not None]


def _lies_between(value: str, low: int | None, high: int | None) -> bool:
    if low is None and high is None:
        return True
    number = as_int64(value)
    return number is not None and (low is None or number > low) and (high is None or number < high)


def _is_empty_range(group: list[Clause]) -> bool:
    """Whether no label value lies between the bounds. Values begin with a letter or digit, so none is negative."""
    low, high = _bounds(group)
    if high is None:
        return False
    # Examples without a value: Gt 3 with Lt 4, and Lt 0.
    return high <= max(0, -1 if low is None else low + 1)


def absorb(terms: Sequence[AbstractSet[Clause]]) -> list[int]:
    """The positions of the terms that a disjunction needs: P or (P and Q) is P. O(terms² × clauses).

    Of equal terms the first stays. A term without clauses matches no node, so it neither absorbs nor is absorbed.
    """
    kept: list[int] = []
    for number, term in enumerate(terms):
        if term and any(_absorbs(other, term, number, at) for at, other in enumerate(terms) if other and at != number):
            continue
        kept.append(number)
    return kept


def _absorbs(other: AbstractSet[Clause], term: AbstractSet[Clause], number: int, at: int) -> bool:
    return other <= term and (len(other) < len(term) or at < number)
