"""Which namespaces each namespaceSelector selects now.

A relabelled namespace costs only the selectors whose result changes.

KEP-2249. The scheduler resolves selectors in each cycle. Here they are resolved once, and corrected when a Namespace is
added, relabelled or removed. Here no selector selects a namespace without an object; ``{}`` is handled by
`AffinityTerm.covers_all`.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from itertools import chain

from extender.index.objects.changes import Subscribers
from extender.index.objects.selector_index import SelectorIndex
from extender.model.constraints.labels import Labels
from extender.model.constraints.selectors import LabelSelector, Requirement
from extender.model.objects import Namespace


class Namespaces:
    """Namespace objects by name, and the set of names that each registered selector selects.

    `Counts` notifies the subscribers of ``changes``, after it has corrected the groups that a change concerns.
    """

    def __init__(self) -> None:
        self.version = 0
        self.changes: Subscribers[Namespace] = Subscribers()
        self.objects: dict[str, Namespace] = {}
        self._selected: dict[LabelSelector, set[str]] = {}
        # By a label that a selector requires, so that a change tries few of thousands.
        self._filed: SelectorIndex[LabelSelector] = SelectorIndex()
        self._anchors: dict[LabelSelector, Requirement | None] = {}
        self._users: dict[LabelSelector, int] = {}

    def labels(self, name: str) -> Labels | None:
        """The labels of a namespace; None without an object."""
        namespace = self.objects.get(name)
        return None if namespace is None else namespace.labels

    def acquire(self, selector: LabelSelector) -> None:
        """Keeps the selector's set until `release`. On first use O(namespaces)."""
        if selector not in self._selected:
            self._selected[selector] = {n.name for n in self.objects.values() if selector.matches(n.labels)}
            anchor = self._anchors[selector] = self._filed.anchor((selector,), None)
            self._filed.file(selector, anchor, None)
        self._users[selector] = self._users.get(selector, 0) + 1

    def release(self, selector: LabelSelector) -> None:
        """Ends an `acquire`. The set is dropped with the last user."""
        self._users[selector] -= 1
        if not self._users[selector]:
            del self._users[selector], self._selected[selector]
            self._filed.discard(selector, self._anchors.pop(selector), None)

    def release_all(self) -> None:
        """Drops every acquired selector, even with users; for a recount."""
        self._selected.clear()
        self._users.clear()
        self._anchors.clear()
        self._filed = SelectorIndex()

    def selected(self, selector: LabelSelector) -> AbstractSet[str]:
        """The names that an acquired selector selects now. The caller must not keep or change the set."""
        return self._selected[selector]

    def change(self, name: str, new: Namespace | None) -> list[LabelSelector]:
        """Sets or removes a namespace. Returns the acquired selectors whose result for it changes.

        O(labels + selectors that require one of these labels, or none).
        """
        self.version += 1
        old = self.objects.get(name)
        if new is None:
            self.objects.pop(name, None)
        else:
            self.objects[name] = new
        changed, labels = [], [namespace.labels for namespace in (old, new) if namespace is not None]
        candidates = chain.from_iterable([self._filed.candidates(name, each) for each in labels])
        for selector in dict.fromkeys(candidates):
            names = self._selected[selector]
            is_now = new is not None and selector.matches(new.labels)
            if is_now != (name in names):
                (names.add if is_now else names.discard)(name)
                changed.append(selector)
        return changed

    def statistics(self) -> dict[str, int]:
        """How many namespaces and selectors are kept."""
        return {"namespaces": len(self.objects), "namespace_selectors": len(self._selected)}
