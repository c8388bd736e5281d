"""Conjunctions of requirements as sets of clauses: when two are equal, and when no node (or no pod) can satisfy them all.

A clause is one requirement in canonical form, so that `In [a, b]` equals `In [b, a]`. The algebra is that of
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/node-selector-requirement/: In, NotIn, Exists,
DoesNotExist, Gt and Lt. What it does not know (an operator of a later API) is equal only to itself and never contradicts.
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
    """Whether no object can satisfy all of them. True only where that is certain. O(clauses + values)."""
    first: dict[tuple[str, str], Clause] = {}
    groups: dict[
        tuple[str, str], list[Clause]
    ] = {}  # only of those that can contradict: of two clauses, or with a bound
    for each in clauses:
        if each.source == OPAQUE:
            continue
        key = (each.source, each.key)
        if key in first:
            groups.setdefault(key, [first[key]]).append(each)
            continue
        first[key] = each
        if each.operator == Operator.LT:
            groups[key] = [each]
    return any(map(_contradict, groups.values()))


def _contradict(group: list[Clause]) -> bool:
    """The same for clauses about one key."""
    if len(group) == 1:
        return _is_empty_range(group)
    operators = {each.operator for each in group}
    if Operator.DOES_NOT_EXIST in operators:
        return not operators <= {Operator.DOES_NOT_EXIST, Operator.NOT_IN} and not _has_unknown(operators)
    listed = [set(each.values) for each in group if each.operator == Operator.IN]
    if not listed:
        return _is_empty_range(group)
    left = set.intersection(*listed)
    for each in group:
        if each.operator == Operator.NOT_IN:
            left.difference_update(each.values)
    low, high = _bounds(group)
    return not any(_lies_between(value, low, high) for value in left)


def _has_unknown(operators: set[str]) -> bool:
    return not operators <= _KNOWN


def _bounds(group: list[Clause]) -> tuple[int | None, int | None]:
    """The greatest Gt and the least Lt, None without one. A bound that is no integer is left out: see `_is_empty_range`."""
    above = [bound for each in group if each.operator == Operator.GT for bound in _integers(each)]
    below = [bound for each in group if each.operator == Operator.LT for bound in _integers(each)]
    return max(above, default=None), min(below, default=None)


def _integers(each: Clause) -> list[int]:
    return [number for number in map(as_int64, each.values) if number is not None]


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
    return high <= max(0, -1 if low is None else low + 1)


def absorb(terms: Sequence[AbstractSet[Clause]]) -> list[int]:
    """The positions of the terms that a disjunction needs: P or (P and Q) is P. O(terms² × clauses).

    Of equal terms the first stays. A term without clauses matches no node, so it neither absorbs nor is absorbed.
    """
    kept: list[int] = []
    for number, each in enumerate(terms):
        if each and any(_absorbs(other, each, number, at) for at, other in enumerate(terms) if other and at != number):
            continue
        kept.append(number)
    return kept


def _absorbs(other: AbstractSet[Clause], each: AbstractSet[Clause], number: int, at: int) -> bool:
    return other <= each and (len(other) < len(each) or at < number)
