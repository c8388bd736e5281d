"""Label selectors: parsed once, canonical, hashable, and fast to match.

Two selectors that were written differently but mean the same requirements are equal, so they can share one group.
A null selector selects nothing and an empty one selects everything; the two are never confused here.
https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from extender.model.constraints.labels import Labels, Operator, is_label_key, is_label_value, satisfies


class SelectorError(ValueError):
    """A selector that the API would refuse: unknown operator, wrong number of values, malformed key or value."""


class Requirement(msgspec.Struct, frozen=True, order=True, gc=False):
    """One clause of a selector: a key, an operator and its values (sorted, without duplicates)."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Labels) -> bool:
        """Whether the labels satisfy the clause. An absent label satisfies ``NotIn`` and ``DoesNotExist``."""
        return satisfies(labels.get(self.key), self.operator, self.values)

    def __str__(self) -> str:
        """As ``kubectl --selector`` would take it."""
        match self.operator:
            case Operator.IN if len(self.values) == 1:
                return f"{self.key}={self.values[0]}"
            case Operator.IN:
                return f"{self.key} in ({','.join(self.values)})"
            case Operator.NOT_IN:
                return f"{self.key} notin ({','.join(self.values)})"
            case Operator.EXISTS:
                return self.key
            case _:
                return f"!{self.key}"


def requirement(key: str, operator: str, values: Iterable[str] = ()) -> Requirement:
    """A checked clause of a *label* selector; raises ``SelectorError`` in the words the API uses."""
    wanted = tuple(sorted(set(values)))
    if operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
        raise SelectorError(f'"{operator}" is not a valid label selector operator')
    if operator in ("In", "NotIn") and not wanted:
        raise SelectorError("values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty")
    if operator in ("Exists", "DoesNotExist") and wanted:
        raise SelectorError("values: Invalid value: values set must be empty for exists and does not exist")
    if not is_label_key(key):
        raise SelectorError(f'key: Invalid value: "{key}": not a qualified name')
    for value in wanted:
        if not is_label_value(value):
            raise SelectorError(f'values[0][{key}]: Invalid value: "{value}": not a valid label value')
    return Requirement(key, Operator(operator), wanted)


class LabelSelector(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """A conjunction of requirements, in canonical order; ``nothing`` marks the null selector.

    ``pairs`` are the requirements for exactly one value, as (key, value): most selectors are only these,
    and comparing them needs no operator; ``others`` are the rest. Use `selector` to make one. The hash is computed once,
    as selectors serve as keys and may be large.
    """

    requirements: tuple[Requirement, ...]
    nothing: bool = False
    pairs: tuple[tuple[str, str], ...] = ()
    others: tuple[Requirement, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether this is the empty selector ``{}``, which matches every label set."""
        return not self.requirements and not self.nothing

    def matches(self, labels: Labels) -> bool:
        """Whether the labels satisfy every requirement. O(requirements)."""
        if self.nothing:
            return False
        for key, value in self.pairs:
            if labels.get(key) != value:
                return False
        return all(clause.matches(labels) for clause in self.others)

    def anchor(self) -> Requirement | None:
        """The ``In`` requirement with the fewest values: a pod that matches has one of them. None without one."""
        choices = [clause for clause in self.requirements if clause.operator is Operator.IN]
        return min(choices, key=lambda clause: len(clause.values), default=None)

    def and_in(self, pairs: Mapping[str, str]) -> LabelSelector:
        """This selector with ``key In [value]`` for each pair added (matchLabelKeys); null stays null."""
        if self.nothing or not pairs:
            return self
        # Not checked again: the values are labels of a pod, which the API server has validated.
        return selector((*self.requirements, *(Requirement(k, Operator.IN, (v,)) for k, v in pairs.items())))

    def __str__(self) -> str:
        """The selector as ``kubectl --selector`` would take it."""
        return "<nothing>" if self.nothing else ",".join(map(str, self.requirements)) or "<everything>"


def selector(requirements: Iterable[Requirement]) -> LabelSelector:
    """The canonical selector of these requirements: sorted, duplicates dropped."""
    clauses = tuple(sorted(set(requirements)))
    pairs = tuple((c.key, c.values[0]) for c in clauses if _is_pair(c))
    return LabelSelector(clauses, pairs=pairs, others=tuple(c for c in clauses if not _is_pair(c)))


def _is_pair(clause: Requirement) -> bool:
    return clause.operator is Operator.IN and len(clause.values) == 1


def parse_selector(match_labels: Mapping[str, str], expressions: Iterable[Requirement] = ()) -> LabelSelector:
    """A selector from matchLabels and checked matchExpressions; raises ``SelectorError``."""
    return selector([*(requirement(k, "In", (v,)) for k, v in match_labels.items()), *expressions])


NOTHING = LabelSelector((), nothing=True)
EVERYTHING = LabelSelector(())
