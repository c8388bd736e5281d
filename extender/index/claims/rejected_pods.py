"""Whom we refused: the pods that sit in the scheduler's queue on our word.

The scheduler asks again by itself on events that it watches. It does not watch namespace labels, Services or owners of
workloads, nor the end of our own assumptions; when one of these changes, the pods here are looked at again, so that
those which would pass now can be woken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from extender.index.objects.deleted_pods import DeletedPods
from extender.model.objects import Pod

MOST_REFUSED = 20_000

Grounds: TypeAlias = tuple[int, int] | None
"""What a refusal rests on: `Question.serial`, and `ClusterView.grounds`. None where it rests on more than that."""


class RejectedPods:
    """The refused pods by UID with the grounds of their refusal, the longest refused first; bounded."""

    def __init__(self, gone: DeletedPods) -> None:
        self._deleted = gone
        self._held: dict[str, tuple[Pod, Grounds]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[tuple[Pod, Grounds]]:
        return iter(list(self._held.values()))

    def add(self, pod: Pod, grounds: Grounds) -> None:
        """Remembers a refusal, unless the pod is gone. O(1)."""
        if pod.uid in self._deleted:
            return
        self._held.pop(pod.uid, None)
        self._held[pod.uid] = pod, grounds
        if len(self._held) > MOST_REFUSED:
            del self._held[next(iter(self._held))]

    def discard(self, uid: str) -> None:
        """Forgets a pod that was let through, bound or deleted."""
        self._held.pop(uid, None)
