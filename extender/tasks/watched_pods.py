"""Finds the pod that a request is about as the watch shows it, and waits shortly for a pod that it does not show yet.

The scheduler's watch and ours deliver a new pod at about the same time, in either order. So a request whose pod is not
shown waits for the event that shows it, at most ``wait`` seconds; a request whose pod is shown costs one look-up. After
that it is refused for the moment: nothing is assumed, preempted, nominated or bound for a pod on the word of a request.

Where the watch shows the pod with other constraints than the request has, one of the two is behind by an update. The
request waits for ours, then the watch's version is used. A pair of constraints that was waited for in vain is not waited
for again: then the request is the one behind, or its sender leaves out fields that it does not know.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final, Protocol

from extender.index.objects.pod_listeners import PodListeners
from extender.index.view import ClusterView
from extender.model.objects import Pod, PodSignature
from extender.tasks.ports import Clock
from extender.verbs.watched_pod import Unconfirmed, asks_alike, watched_pod

_MOST_DIFFERENCES: Final = 32  # few, as each keeps the constraints of a request, which can be large


class ListenedIndex(Protocol):
    """What finding pods needs of the index."""

    @property
    def view(self) -> ClusterView:
        """The readers."""

    @property
    def pod_listeners(self) -> PodListeners:
        """Callbacks for changes of single pods."""


class WatchedPods:
    """``waits`` counts requests that waited.

    At most ``most_waiting`` requests wait at a time; those above are refused at once, so that requests for pods that do
    not exist cannot take all places in flight.
    """

    def __init__(self, index: ListenedIndex, clock: Clock, wait: float, most_waiting: int) -> None:
        self.waits = 0
        self._rejections: Counter[Unconfirmed] = Counter(dict.fromkeys(Unconfirmed, 0))
        self._index = index
        self._clock = clock
        self._wait = wait
        self._most_waiting = most_waiting
        self._waiting = 0
        self._vain: dict[tuple[PodSignature, PodSignature], None] = {}

    async def find(self, asked: Pod) -> Pod | Unconfirmed:
        """The pod of a request as the watch shows it, or why it is refused. Waits where the next event may decide it."""
        found = self.look_up(asked)
        if self._may_change(asked, found) and self._waiting < self._most_waiting:
            await self._wait_for(asked)
            found = self.look_up(asked)
            if isinstance(found, Pod) and not asks_alike(asked.signature, found.signature):
                self._remember(asked.signature, found.signature)
        if isinstance(found, Unconfirmed):
            self._rejections[found] += 1
        return found

    def look_up(self, asked: Pod) -> Pod | Unconfirmed:
        """The same as the watch shows it now, without waiting and without counting. O(1)."""
        return watched_pod(asked.uid, asked.namespace, asked.name, self._index.view)

    def rejected(self) -> dict[str, float]:
        """How many requests were refused, by reason."""
        return {why.name.lower(): count for why, count in self._rejections.items()}

    def _may_change(self, asked: Pod, found: Pod | Unconfirmed) -> bool:
        if isinstance(found, Unconfirmed):
            return found.may_pass
        return not asks_alike(asked.signature, found.signature) and (asked.signature, found.signature) not in self._vain

    def _remember(self, asked: PodSignature, shown: PodSignature) -> None:
        self._vain[asked, shown] = None
        if len(self._vain) > _MOST_DIFFERENCES:
            del self._vain[next(iter(self._vain))]

    async def _wait_for(self, asked: Pod) -> None:
        changed = asyncio.Event()
        deadline = self._clock.now() + self._wait
        self.waits += 1
        self._waiting += 1
        self._index.pod_listeners.add(asked.uid, changed.set)
        try:
            while self._may_change(asked, self.look_up(asked)) and (left := deadline - self._clock.now()) > 0:
                changed.clear()
                async with asyncio.timeout(left):
                    await changed.wait()
        except TimeoutError:
            return
        finally:
            self._index.pod_listeners.remove(asked.uid, changed.set)
            self._waiting -= 1
