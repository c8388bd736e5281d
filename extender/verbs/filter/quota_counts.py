"""Counts pods that were over a quota for affinity across namespaces, or over a limit on its reach, when they were filtered."""

from __future__ import annotations

from collections import Counter
from typing import Final

from extender.index.view import IndexReaders
from extender.model.bounded import BoundedCache
from extender.model.objects import Pod
from extender.rules.quota import LIMITS, findings

REJECTED: Final = "rejected"
AUDITED: Final = "audited"
_SEEN: Final = 10_000


class QuotaCounts:
    """Pods over a limit, by limit and result. A limit in mode Audit rejects nothing.

    Each pod counts once for a limit, however often it is tried, unless 10,000 others came between.
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter(
            {(limit, result): 0 for limit in LIMITS for result in (REJECTED, AUDITED)}
        )
        self._seen: BoundedCache[tuple[str, str, str], bool] = BoundedCache(_SEEN)

    def record(self, pod: Pod, view: IndexReaders) -> None:
        """Counts an effective pod in the quota scope. O(1) where no limit concerns it."""
        if not view.quotas.concerns(pod.signature):
            return
        for found in findings(pod, view):
            key = (pod.uid, found.limit, REJECTED if found.enforces else AUDITED)
            if self._seen.get(key) is None:
                self._seen.put(key, True, 1)
                self.counts[key[1:]] += 1
