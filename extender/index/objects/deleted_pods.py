"""The pods that were deleted last. Late events and requests about them are ignored.

The scheduler may send a filter request for a pod whose deletion its watch has not shown yet. No later event would end
an assumption or a recorded rejection of such a pod, so neither may begin. UIDs are never reused.
"""

from __future__ import annotations

from array import array
from collections.abc import Container

_BUCKETS = 2048
_SLOTS = 16
MOST_GONE = _BUCKETS * _SLOTS


class DeletedPods:
    """The UIDs of deleted pods, the latest ones: in each bucket of hashes the last `_SLOTS`, of all some 10,000 for sure.

    Hashes in one array made beforehand, and no object for each: a small one that is made while a pod is taken apart
    would lie where the pod was, and keep the allocator from ever giving that memory back. The hash is seeded, so a
    UID is mistaken for another once in 10**15 times.
    """

    def __init__(self, pods: Container[str]) -> None:
        """``pods``: the UIDs of those that exist. An API server that is restored from a backup has deleted ones again."""
        self._pods = pods
        self._held = array("q", bytes(8 * MOST_GONE))

    def __contains__(self, uid: object) -> bool:
        mark, start = _place(uid)
        return mark in self._held[start : start + _SLOTS] and uid not in self._pods

    def add(self, uid: str) -> None:
        """Records a deletion. O(1)."""
        mark, start = _place(uid)
        bucket = self._held[start : start + _SLOTS]
        if mark not in bucket:
            self._held[start + 1 : start + _SLOTS] = bucket[:-1]
            self._held[start] = mark


def _place(uid: object) -> tuple[int, int]:
    """The hash of a UID, never 0, and where its bucket begins."""
    mark = hash(uid) or 1
    return mark, mark % _BUCKETS * _SLOTS
