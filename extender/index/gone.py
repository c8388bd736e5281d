"""The pods that were deleted last: what is still said about one of them comes too late to count.

The scheduler may ask about a pod whose deletion it has not heard of. Whatever is answered then, nothing will follow
that could end an assumption or a refusal, so none may begin. UIDs are never given twice.
"""

from __future__ import annotations

MOST_GONE = 10_000


class GonePods:
    """The UIDs of deleted pods, the latest so many of them."""

    def __init__(self) -> None:
        self._held: dict[str, None] = {}

    def __contains__(self, uid: object) -> bool:
        return uid in self._held

    def add(self, uid: str) -> None:
        """Notes a deletion. O(1)."""
        self._held[uid] = None
        if len(self._held) > MOST_GONE:
            del self._held[next(iter(self._held))]

    def discard(self, uid: str) -> None:
        """It is there all the same: an API server that was restored from a backup has it back."""
        self._held.pop(uid, None)
