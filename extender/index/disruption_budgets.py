"""Disruption budgets, and which of them protect a pod.

Tenants may write any number of budgets, with selectors of any size. So budgets are looked up by the labels that their
selectors require, once for all pods of a signature, and what is read for a signature is bounded.
https://kubernetes.io/docs/concepts/workloads/pods/disruptions/
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary

from extender.index.objects.selector_index import SelectorIndex
from extender.model.objects import DisruptionBudget, Pod, PodSignature

MOST_READ: Final = 128
"""How much of disruption budgets is read for the labels of one pod: requirements of selectors, and their values."""
MOST_BUDGETS: Final = 16
"""How many budgets that select a pod are read. The Eviction API refuses a pod that more than one budget selects."""


class Budgets:
    """Disruption budgets by the labels that their selectors require. ``version`` grows with every change.

    The budgets that select a signature's pods are looked up once, and again after a change of selectors in the
    namespace.
    """

    def __init__(self) -> None:
        self.objects: dict[str, DisruptionBudget] = {}
        self.version = 0
        self._filed: SelectorIndex[str] = SelectorIndex()
        self._costs: dict[str, int] = {}
        self._changes: Counter[str] = Counter()  # of selectors, by namespace
        self._selecting: WeakKeyDictionary[PodSignature, tuple[int, tuple[str, ...] | None]] = WeakKeyDictionary()

    def change(self, key: str, new: DisruptionBudget | None) -> bool:
        """Applies a budget as it is now (None: deleted); False if nothing has changed. O(selector)."""
        old = self.objects.get(key)
        if old == new:
            return False
        self.version += 1
        if new is not None:
            self.objects[key] = new
        if old is not None and new is not None and old.selector == new.selector:
            return True  # only the status changed, as with each disruption
        if old is not None:
            self._changes[old.namespace] += 1
            self._filed.discard(key, old.selector.anchor(), (old.namespace,))
            del self._costs[key]
        if new is None:
            del self.objects[key]
            return True
        self._changes[new.namespace] += 1
        self._filed.file(key, new.selector.anchor(), (new.namespace,))
        self._costs[key] = 1 + sum(1 + len(requirement.values) for requirement in new.selector.requirements)
        return True

    def protecting(self, pod: Pod) -> tuple[Sequence[DisruptionBudget] | None, int]:
        """The budgets that the pod's removal uses up, and how much was read for it. None: too much to be read.

        O(`MOST_READ`) for the first pod of a signature, else O(`MOST_BUDGETS`).
        """
        signature, read = pod.signature, 1
        changes = self._changes[signature.namespace]
        known = self._selecting.get(signature)
        if known is None or known[0] != changes:
            keys, read = self._find(signature)
            known = self._selecting[signature] = changes, keys
        if known[1] is None:
            return None, read
        budgets = [self.objects[key] for key in known[1]]
        # In status.disruptedPods: the pod's eviction is counted already, so its removal uses up nothing more.
        return [budget for budget in budgets if pod.name not in budget.disrupted], read + len(budgets)

    def _find(self, signature: PodSignature) -> tuple[tuple[str, ...] | None, int]:
        keys, read = list[str](), 0
        for key in self._filed.candidates(signature.namespace, signature.labels):
            read += self._costs[key]
            # Unknown counts as protected: no pod is removed against a budget that was not read.
            if read > MOST_READ:
                return None, MOST_READ
            if self.objects[key].selector.matches(signature.labels):
                keys.append(key)
        return (None if len(keys) > MOST_BUDGETS else tuple(keys)), read + 1

    def statistics(self) -> dict[str, int]:
        """How many budgets are held."""
        return {"disruption_budgets": len(self.objects)}
