"""Requeues preemptors that could not be helped, with a wait that doubles each time.

kube-scheduler offers a random sample of candidate nodes and does not repeat its preemption attempt before something
changes in the cluster. A preemptor is requeued here in three cases: no offered candidate helped and the settings forbid
looking at other nodes, an earlier leader left a nomination without victims, or disruption budgets forbid the evictions.
Then it is requeued once the budgets, as the watch shows them, allow these. kube-scheduler does not watch budgets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Final

from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.model.preemption import PreemptionPlan
from extender.tasks.ports import Clock
from extender.tasks.preemption.executor import PreemptionExecutor
from extender.tasks.preemption.retrying_writer import GaveUpError
from extender.verbs.dry_run import is_forbidden, node_being_cleared

_LOG = logging.getLogger(__name__)
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0
_NEVER: Final = float("inf")

FollowUp = Coroutine[None, None, None]


@dataclass(frozen=True, slots=True)
class _Entry:
    """One preemptor: ``at`` is the monotonic time of its next requeue, ``wait`` the seconds before it.

    ``refused``: the victims whose eviction budgets forbid; they are looked at again when ``version`` has changed.
    """

    pod: Pod
    node: str
    at: float
    wait: float
    refused: tuple[Pod, ...] = ()
    version: int = -1


class PreemptorRequeuer:
    """Preemptors to requeue, by UID. ``has_preemption`` says whether a preemption runs for a UID: such a pod is skipped."""

    def __init__(
        self, view: ClusterView, executor: PreemptionExecutor, clock: Clock, has_preemption: Callable[[str], bool]
    ) -> None:
        self._view = view
        self._executor = executor
        self._clock = clock
        self._has_preemption = has_preemption
        self._entries: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, pod: Pod, node: str) -> None:
        """Requeues the pod after a wait, which doubles with each call until the pod is bound or deleted. O(1)."""
        known = self._entries.get(pod.uid)
        wait = min(known.wait * 2, _LONGEST_WAIT) if known is not None else _FIRST_WAIT
        self._entries[pod.uid] = _Entry(pod, node, self._clock.now() + wait, wait)

    def add_when_allowed(self, plan: PreemptionPlan) -> None:
        """Requeues the preemptor once disruption budgets allow to evict the victims, at the earliest after a wait. O(1)."""
        pod = plan.preemptor
        known = self._entries.get(pod.uid)
        if known is None or not known.refused:
            self.add(pod, plan.node)
            names = [each.full_name for each in plan.victims]
            _LOG.info("evictions forbidden by budgets", extra={"preemptor": pod.full_name, "victims": names})
        self._entries[pod.uid] = replace(self._entries[pod.uid], refused=plan.victims, version=-1)

    def is_refused(self, uid: str) -> bool:
        """Whether an eviction was refused so shortly ago that no plan for this pod may try again. O(1)."""
        known = self._entries.get(uid)
        return known is not None and bool(known.refused) and self._clock.now() < known.at

    def _is_allowed(self, entry: _Entry) -> bool:
        """Whether budgets allow the evictions that they forbade. O(victims × budgets) after a change of budgets, else O(1)."""
        version = self._view.claims_version
        if not entry.refused:
            return True
        if entry.version == version:
            return False
        there = [pod for each in entry.refused if (pod := self._view.pod(each.uid)) is not None]
        self._entries[entry.pod.uid] = replace(entry, version=version)
        return not is_forbidden(there, self._view)

    def sweep(self) -> list[FollowUp]:
        """The requeues that are due now. An entry stays until its pod is bound, which keeps the wait. O(entries)."""
        found = []
        for uid, entry in list(self._entries.items()):
            pod = self._view.pod(uid)
            if pod is None or pod.node or pod.terminating:
                del self._entries[uid]
            elif entry.at <= self._clock.now() and self._is_allowed(entry):
                self._entries[uid] = replace(entry, at=_NEVER, refused=())
                if not self._has_preemption(uid) and not node_being_cleared(pod, self._view):
                    found.append(self._requeue(entry))
        return found

    async def _requeue(self, entry: _Entry) -> None:
        try:
            await self._executor.requeue(entry.pod, entry.node)
        except GaveUpError as error:
            _LOG.warning("preemptor not requeued", extra={"pod": entry.pod.full_name, "error": str(error)})
            self.add(entry.pod, entry.node)
