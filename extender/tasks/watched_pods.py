"""Finds the pod of a request as the watch shows it, and waits a short time for a pod that it does not show yet.

The watches of the scheduler and of the extender deliver a new pod at about the same time, in either order. So a request
whose pod is not shown waits for its event, at most ``wait`` seconds; a request whose pod is shown costs one look-up.
After the wait the request gets an error: a request alone is no proof that a pod exists, so nothing is assumed,
preempted, nominated or bound for it.

Where the watch shows the pod with other constraints than the request has, one of the two lags by an update. The request
waits for the watch, then the watched pod is used. A pair of constraints that was waited for in vain is not waited for
again: then the request is older, or its sender omits fields that it does not know.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final, Protocol

from extender.index.objects.changes import PodSubscribers
from extender.index.view import ClusterView
from extender.model.objects import Pod, PodSignature
from extender.tasks.ports import Clock
from extender.verbs.request import Unconfirmed, has_same_constraints, watched_pod

_MOST_DIFFERENCES: Final = 32  # few, as each keeps the constraints of a request, which can be large


class ListenedIndex(Protocol):
    """What `WatchedPods` needs of the index."""

    @property
    def view(self) -> ClusterView:
        """The readers."""

    @property
    def pod_changes(self) -> PodSubscribers:
        """Subscriptions to the changes of single pods."""


class WatchedPods:
    """``waits`` counts requests that waited.

    At most ``most_waiting`` requests wait at a time; further ones get an error at once, so that requests for pods that do
    not exist cannot occupy all requests in flight.
    """

    def __init__(self, index: ListenedIndex, clock: Clock, wait: float, most_waiting: int) -> None:
        self.waits = 0
        self._rejections: Counter[Unconfirmed] = Counter(dict.fromkeys(Unconfirmed, 0))
        self._index = index
        self._clock = clock
        self._wait = wait
        self._most_waiting = most_waiting
        self._waiting = 0
        self._waited_in_vain: dict[tuple[PodSignature, PodSignature], None] = {}

    async def find(self, requested: Pod) -> Pod | Unconfirmed:
        """The pod of a request as the watch shows it, or why it is rejected. Waits where the next event may change that."""
        found = self.look_up(requested)
        if self._may_change(requested, found) and self._waiting < self._most_waiting:
            await self._wait_for(requested)
            found = self.look_up(requested)
            if isinstance(found, Pod) and not has_same_constraints(requested.signature, found.signature):
                self._remember(requested.signature, found.signature)
        if isinstance(found, Unconfirmed):
            self._rejections[found] += 1
        return found

    def look_up(self, requested: Pod) -> Pod | Unconfirmed:
        """The same as the watch shows it now, without waiting and without counting. O(1)."""
        return watched_pod(requested.uid, requested.namespace, requested.name, self._index.view)

    def rejected(self) -> dict[str, float]:
        """How many requests were rejected, by reason."""
        return {why.name.lower(): count for why, count in self._rejections.items()}

    def _may_change(self, requested: Pod, found: Pod | Unconfirmed) -> bool:
        if isinstance(found, Unconfirmed):
            return found.may_pass
        return (
            not has_same_constraints(requested.signature, found.signature)
            and (requested.signature, found.signature) not in self._waited_in_vain
        )

    def _remember(self, requested: PodSignature, shown: PodSignature) -> None:
        self._waited_in_vain[requested, shown] = None
        if len(self._waited_in_vain) > _MOST_DIFFERENCES:
            del self._waited_in_vain[next(iter(self._waited_in_vain))]

    async def _wait_for(self, requested: Pod) -> None:
        changed = asyncio.Event()

        def wake(_change: object) -> None:
            changed.set()

        deadline = self._clock.now() + self._wait
        self.waits += 1
        self._waiting += 1
        self._index.pod_changes.subscribe(requested.uid, wake)
        try:
            while self._may_change(requested, self.look_up(requested)) and (left := deadline - self._clock.now()) > 0:
                changed.clear()
                async with asyncio.timeout(left):
                    await changed.wait()
        except TimeoutError:
            return
        finally:
            self._index.pod_changes.unsubscribe(requested.uid, wake)
            self._waiting -= 1
