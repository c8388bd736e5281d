"""How many of the selectors of a namespace can select one pod at most: what each event of such a pod costs.

Two selectors that require different values of one label select no pod together. So 20,000 workloads, each with a label of its
own, cost a pod of any of them what one selector costs. Selectors that select every pod cost each pod all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from extender.index.counts.selections import PodSelector
from extender.model.bounded import shrink
from extender.model.constraints.labels import Operator
from extender.model.constraints.selectors import Requirement

REQUIREMENTS_A_UNIT = 20
"""A selector counts once for each 20 requirements that it has beyond the first ones: they take as long as a count in a group."""


class _Values:
    """The weight of the selectors that require each value of one label key, and the greatest of these weights."""

    __slots__ = ("_levels", "_of", "greatest")

    def __init__(self) -> None:
        self._of: dict[str, int] = {}
        self._levels: dict[int, int] = {}  # how many values have each weight
        self.greatest = 0

    def __bool__(self) -> bool:
        return bool(self._of)

    def weight(self, values: Iterable[str]) -> int:
        """The greatest weight of any of the values. O(values)."""
        return max(self._of.get(value, 0) for value in values)

    def add(self, values: Iterable[str], weight: int) -> None:
        """Adds a weight to each value; a negative one takes it away. O(values + distinct weights)."""
        for value in values:
            old = self._of.get(value, 0)
            new = old + weight
            if new:
                self._of[value] = new
                self._levels[new] = self._levels.get(new, 0) + 1
            else:
                del self._of[value]
            if old:
                self._levels[old] -= 1
                if not self._levels[old]:
                    del self._levels[old]
        shrink(self._of)
        self.greatest = max(self._levels, default=0)


class Overlaps:
    """Selectors, each under the label that fewest others are under; ``most`` is how many select one pod at most.

    A pod has one value of a label key. So of the selectors under a key it is selected by those of one value, and ``most`` is the
    sum of the greatest weight under each key, and of the selectors that require no value.
    """

    __slots__ = ("_filed", "_keys", "most")

    def __init__(self) -> None:
        self.most = 0
        self._filed: dict[PodSelector, Requirement | None] = {}
        self._keys: dict[str, _Values] = {}

    def __bool__(self) -> bool:
        return bool(self._filed)

    def problems(self, selectors: AbstractSet[PodSelector]) -> list[str]:
        """What is wrong if these are the selectors that are there: for the audit. O(selectors × values)."""
        fresh = Overlaps()
        for selector, under in self._filed.items():
            fresh._count(under, _weight(selector))
        found = [] if self._filed.keys() == selectors else [f"{len(self._filed)} selectors, should be {len(selectors)}"]
        return found if self.most == fresh.most else [*found, f"{self.most} that overlap, should be {fresh.most}"]

    def add(self, selector: PodSelector) -> None:
        """A selector that was not there is. O(requirements + values)."""
        under = self._filed[selector] = self._narrowest(selector)
        self._count(under, _weight(selector))

    def remove(self, selector: PodSelector) -> None:
        """A selector that was there is not any more. O(values)."""
        under = self._filed.pop(selector)
        shrink(self._filed)
        self._count(under, -_weight(selector))

    def added_by(self, selectors: Iterable[PodSelector]) -> int:
        """How much more ``most`` would be with these selectors, of which some may be there. O(requirements + values)."""
        before, new = self.most, [selector for selector in selectors if selector not in self._filed]
        for selector in new:
            self.add(selector)
        after = self.most
        for selector in new:
            self.remove(selector)
        return after - before

    def _narrowest(self, selector: PodSelector) -> Requirement | None:
        """The requirement of the fewest values, and of these the one that fewest selectors are under; None without values."""
        choices = [clause for clause in selector.selector.requirements if clause.operator is Operator.IN]
        return min(choices, key=lambda clause: (len(clause.values), self._weight_under(clause)), default=None)

    def _weight_under(self, clause: Requirement) -> int:
        values = self._keys.get(clause.key)
        return 0 if values is None else values.weight(clause.values)

    def _count(self, under: Requirement | None, weight: int) -> None:
        if under is None:
            self.most += weight
            return
        values = self._keys.get(under.key)
        if values is None:
            values = self._keys[under.key] = _Values()
        self.most -= values.greatest
        values.add(under.values, weight)
        self.most += values.greatest
        if not values:
            del self._keys[under.key]
            shrink(self._keys)


def _weight(selector: PodSelector) -> int:
    return 1 + len(selector.selector.requirements) // REQUIREMENTS_A_UNIT
