"""Disruption budgets by namespace: few objects, read only while a preemption is planned."""

from __future__ import annotations

from collections.abc import Collection

from extender.model.objects import DisruptionBudget


class Budgets:
    """The budgets of each namespace; a namespace without any has no entry. ``version`` grows with every change."""

    def __init__(self) -> None:
        self.objects: dict[str, DisruptionBudget] = {}
        self.version = 0
        self._by_namespace: dict[str, dict[str, DisruptionBudget]] = {}

    def change(self, key: str, new: DisruptionBudget | None) -> bool:
        """Applies a budget as it is now, None where it is deleted; False where nothing has changed."""
        old = self.objects.get(key)
        if old == new:
            return False
        self.version += 1
        if old is not None:
            del self.objects[key]
            here = self._by_namespace[old.namespace]
            del here[key]
            if not here:
                del self._by_namespace[old.namespace]
        if new is not None:
            self.objects[key] = new
            self._by_namespace.setdefault(new.namespace, {})[key] = new
        return True

    def of(self, namespace: str) -> Collection[DisruptionBudget]:
        """The budgets of a namespace. O(1)."""
        return self._by_namespace.get(namespace, {}).values()

    def statistics(self) -> dict[str, int]:
        """How many budgets are held."""
        return {"disruption_budgets": len(self.objects)}
