"""Preemptors for whom nothing could be done now: the scheduler is made to try them again, ever more rarely.

kube-scheduler offers a random sample of candidate nodes and does not ask again before something changes. Where none of
the sample helps and we may not look further ourselves, or where an earlier leader left a nomination and no trace of
what it was for, this is the preemptor's next step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Final

from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.tasks.ports import Clock
from extender.tasks.preemption_executor import PreemptionExecutor
from extender.tasks.retrying_writer import GaveUpError
from extender.verbs.dry_run.candidates import node_being_cleared

_LOG = logging.getLogger(__name__)
_FIRST, _LAST = 1.0, 60.0
_NEVER: Final = float("inf")

FollowUp = Coroutine[None, None, None]


@dataclass(frozen=True, slots=True)
class _Requeue:
    """A pod that is to be woken at a time, and how long that was to wait."""

    pod: Pod
    node: str
    at: float
    wait: float


class Requeuer:
    """Pods to wake, by UID. ``is_busy`` tells of pods for whom something is under way: they are left alone."""

    def __init__(
        self, view: ClusterView, evicting: PreemptionExecutor, clock: Clock, is_busy: Callable[[str], bool]
    ) -> None:
        self._view = view
        self._evicting = evicting
        self._clock = clock
        self._is_busy = is_busy
        self._wakes: dict[str, _Requeue] = {}

    def __len__(self) -> int:
        return len(self._wakes)

    def requeue(self, pod: Pod, node: str) -> None:
        """The scheduler is to try this pod again after a while, each time a longer one, until it is placed. O(1)."""
        known = self._wakes.get(pod.uid)
        wait = min(known.wait * 2, _LAST) if known is not None else _FIRST
        self._wakes[pod.uid] = _Requeue(pod, node, self._clock.now() + wait, wait)

    def sweep(self) -> list[FollowUp]:
        """What is to be done now. An entry stays until its pod is placed, so that the next wait is longer. O(entries)."""
        found = []
        for uid, wake in list(self._wakes.items()):
            pod = self._view.pod(uid)
            if pod is None or pod.node or pod.terminating:
                del self._wakes[uid]
            elif wake.at <= self._clock.now():
                self._wakes[uid] = replace(wake, at=_NEVER)
                if not self._is_busy(uid) and not node_being_cleared(pod, self._view):
                    found.append(self._wake(wake))
        return found

    async def _wake(self, wake: _Requeue) -> None:
        try:
            await self._evicting.wake(wake.pod, wake.node)
        except GaveUpError as error:
            _LOG.warning("not woken", extra={"pod": wake.pod.full_name, "error": str(error)})
            self.requeue(wake.pod, wake.node)
