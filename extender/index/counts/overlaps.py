"""How many selectors of a namespace can select one pod at most, which determines the cost of each event of the pod.

Two selectors that require different values of one label select no pod together. So 20,000 workloads, each with a label
of its own, cost each of their pods as much as one selector. Selectors that select every pod cost each pod all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from extender.index.counts.selections import PodSelector
from extender.model.bounded import shrink
from extender.model.constraints.labels import Operator
from extender.model.constraints.selectors import Requirement

REQUIREMENTS_A_UNIT = 20
"""A selector counts once more for each 20 further requirements, because they take as long as a count in a group."""


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
    """Selectors, each filed under its label with the fewest selectors. ``most``: how many can select one pod.

    A pod has one value of a label key. Of the selectors under a key, only those with that value can select it. So
    ``most`` is the sum, over the keys, of the greatest weight of a value, plus the selectors that require no value.
    """

    __slots__ = ("_filed", "_keys", "most")

    def __init__(self) -> None:
        self.most = 0
        self._filed: dict[PodSelector, Requirement | None] = {}
        self._keys: dict[str, _Values] = {}

    def __bool__(self) -> bool:
        return bool(self._filed)

    def problems(self, selectors: AbstractSet[PodSelector]) -> list[str]:
        """The differences from these selectors; for the audit. O(selectors × values)."""
        fresh = Overlaps()
        for selector, under in self._filed.items():
            fresh._count(under, _weight(selector))
        problems = (
            [] if self._filed.keys() == selectors else [f"{len(self._filed)} selectors, should be {len(selectors)}"]
        )
        return problems if self.most == fresh.most else [*problems, f"{self.most} that overlap, should be {fresh.most}"]

    def add(self, selector: PodSelector) -> None:
        """Adds a new selector. O(requirements + values)."""
        under = self._filed[selector] = self._narrowest(selector)
        self._count(under, _weight(selector))

    def remove(self, selector: PodSelector) -> None:
        """Removes a selector. O(values)."""
        under = self._filed.pop(selector)
        shrink(self._filed)
        self._count(under, -_weight(selector))

    def added_by(self, selectors: Iterable[PodSelector]) -> int:
        """How much ``most`` would grow with these selectors; some may be there already. O(requirements + values)."""
        before, new = self.most, [selector for selector in selectors if selector not in self._filed]
        # Tried and undone: an exact answer needs the choice of labels that adding makes.
        for selector in new:
            self.add(selector)
        after = self.most
        for selector in new:
            self.remove(selector)
        return after - before

    def _narrowest(self, selector: PodSelector) -> Requirement | None:
        """The requirement with the fewest values; of several the one with the fewest selectors. None without values."""
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
        # Only the greatest weight under a key counts, so it is replaced as a whole.
        self.most -= values.greatest
        values.add(under.values, weight)
        self.most += values.greatest
        if not values:
            del self._keys[under.key]
            shrink(self._keys)


def _weight(selector: PodSelector) -> int:
    return 1 + len(selector.selector.requirements) // REQUIREMENTS_A_UNIT
