"""Pods that our filter rejected.

The scheduler retries a rejected pod on events that it watches. It does not watch namespace labels, Services or owners
of workloads, nor the end of our own assumptions; when one of these changes, the pods here are reviewed, and those that
would pass now are requeued.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TypeAlias

from extender.index.objects.deleted_pods import DeletedPods
from extender.model.objects import Pod

MOST_REJECTED = 20_000

DependencyVersion: TypeAlias = Hashable
"""The version of what a rejection depends on, compared and not read; None where it depends on undetermined pods."""


class RejectedPods:
    """Rejected pods by UID with what their rejection depends on, the oldest first; bounded."""

    def __init__(self, deleted: DeletedPods) -> None:
        self._deleted = deleted
        self._held: dict[str, tuple[Pod, DependencyVersion]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[tuple[Pod, DependencyVersion]]:
        return iter(list(self._held.values()))

    def add(self, pod: Pod, version: DependencyVersion) -> None:
        """Records a rejection, unless the pod is deleted. O(1)."""
        if pod.uid in self._deleted:
            return
        self._held.pop(pod.uid, None)
        self._held[pod.uid] = pod, version
        if len(self._held) > MOST_REJECTED:
            del self._held[next(iter(self._held))]

    def discard(self, uid: str) -> None:
        """Drops a pod that passed, was bound or was deleted."""
        self._held.pop(uid, None)
