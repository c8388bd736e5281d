"""From a pod's labels to the few selectors that can match it, without trying every selector.

A pod that matches a selector with an ``In`` requirement has one of its values, so the selector is filed under that
label. Selectors without such a requirement (``Exists``, ``NotIn``, ``{}``) are filed as wide, and are always
candidates.

A term may list thousands of namespaces and of values, so it is not filed under each pair: memory and time stay linear
in the term.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

from extender.model.bounded import Few, shrink, with_item, without_item
from extender.model.constraints.labels import Labels, Operator
from extender.model.constraints.selectors import LabelSelector, Requirement

T = TypeVar("T", bound=Hashable)

_Slot = tuple[str | None, str, str]
_ANYWHERE = None

CROWDED = 16
"""An item whose first label has so many items is filed under its label with the fewest items."""
MOST_PAIRS = 64
"""An item is filed under each pair of a namespace and a value up to so many pairs; else under the shorter list only."""


class SelectorIndex(Generic[T]):
    """Items by (namespace or any, label key, label value). Each item is filed once and can be removed.

    An item with many namespaces and many values is filed under its values for any namespace, or as wide in its
    namespaces.
    """

    def __init__(self) -> None:
        self._slots: dict[_Slot, Few[T]] = {}
        self._wide: dict[str | None, Few[T]] = {}

    def anchor(self, selectors: Iterable[LabelSelector], namespaces: Iterable[str] | None) -> Requirement | None:
        """The best requirement to file an item under that needs all these selectors; None if none requires a value.

        It is the first one with the fewest values. If many items are under its label, it is another one: a thousand
        workloads that share `app` are each filed under another label. O(requirements); O(requirements × values) if the
        first is crowded.
        """
        choices = sorted(
            (len(clause.values), clause)
            for selector in selectors
            for clause in selector.requirements
            if clause.operator is Operator.IN
        )
        if not choices:
            return None
        names = None if namespaces is None else tuple(namespaces)
        fewest, first = choices[0]
        # Counting what is filed costs more, so it is done only if the first choice is crowded.
        if self._filed_with(first, names) < CROWDED:
            return first
        return min(
            (clause for values, clause in choices if values == fewest),
            key=lambda clause: self._filed_with(clause, names),
        )

    def _filed_with(self, anchor: Requirement, namespaces: tuple[str, ...] | None) -> int:
        """How many items are in the fullest slot of an anchor."""
        return max((len(buckets.get(slot, ())) for buckets, slot in self._places(anchor, namespaces)), default=0)

    def file(self, item: T, anchor: Requirement | None, namespaces: Iterable[str] | None) -> None:
        """Files an item that concerns only these namespaces (None: any, or not known in advance).

        O(values) or O(namespaces), whichever is less, or O(`MOST_PAIRS`).
        """
        for bucket_of, slot in self._places(anchor, namespaces):
            bucket_of[slot] = with_item(bucket_of.get(slot, ()), item)

    def discard(self, item: T, anchor: Requirement | None, namespaces: Iterable[str] | None) -> None:
        """Removes an item that was filed with the same anchor and namespaces."""
        for bucket_of, slot in self._places(anchor, namespaces):
            bucket_of[slot] = remaining = without_item(bucket_of[slot], item)
            if not remaining:
                del bucket_of[slot]
                shrink(bucket_of)

    def is_filed(self, item: T, anchor: Requirement | None, namespaces: Iterable[str] | None) -> bool:
        """Whether an item is in every slot where `file` puts it; for the audit."""
        return all(item in buckets.get(slot, ()) for buckets, slot in self._places(anchor, namespaces))

    def _places(
        self, anchor: Requirement | None, namespaces: Iterable[str] | None
    ) -> Iterator[tuple[dict[object, Few[T]], object]]:
        slots: dict[object, Few[T]] = self._slots  # type: ignore[assignment]  # joined with the other by `object`
        wide: dict[object, Few[T]] = self._wide  # type: ignore[assignment]  # the same
        names: tuple[str | None, ...] = (_ANYWHERE,) if namespaces is None else tuple(namespaces)
        # Too many pairs: under the shorter of both lists, for any value or any namespace.
        if anchor is not None and len(names) * len(anchor.values) > MOST_PAIRS:
            if namespaces is not None and len(names) < len(anchor.values):
                anchor = None
            else:
                names = (_ANYWHERE,)
        for name in names:
            if anchor is None:
                yield wide, name
                continue
            # Example: namespaces a and b, `app in (x, y)`: four slots, each a look-up for one pod.
            for value in anchor.values:
                yield slots, (name, anchor.key, value)

    def candidates(self, namespace: str, labels: Labels) -> Iterator[T]:
        """A superset of the items that can match these labels in this namespace, without repetition.

        O(labels or entries, whichever are fewer, + results).
        """
        is_large = len(labels) > len(self._slots)  # an object under review may have 100,000 labels
        for place in (namespace, _ANYWHERE):
            yield from self._wide.get(place, ())
            if is_large:
                for (there, key, value), items in tuple(self._slots.items()):
                    if there == place and labels.get(key) == value:
                        yield from items
                continue
            for key, value in labels.items():
                yield from self._slots.get((place, key, value), ())

    def __len__(self) -> int:
        """How many slots are in use; for tests."""
        return sum(map(len, self._slots.values())) + sum(map(len, self._wide.values()))
