"""Keeps the costs of deletion of pods whose policies direct it (`deletionCost: Fullest`). On the leader only.

One round after the other: what the costs should be is computed in slices, then differences are written, the fullest domains
first, at most `WRITES_PER_SECOND`. An annotation that another client has written is never touched: ours has a second one beside it
with the same value. Costs are removed when no policy directs them any more.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from extender.index.cluster import ClusterIndex
from extender.kube.effects import PodRef
from extender.kube.errors import KubeError, NotFound
from extender.kube.timing import Clock
from extender.model.objects import Pod
from extender.settings.configuration import Settings
from extender.verbs.deletion_costs import wanted_costs

_LOG = logging.getLogger(__name__)
ROUND_SECONDS: Final = 5.0
WRITES_PER_SECOND: Final = 10
_SLICE_SECONDS: Final = 0.002
_PAUSE_SECONDS: Final = 0.01
_PODS_A_STEP: Final = 2000

Write = Callable[[PodRef, str | None], Awaitable[None]]


class DeletionCosts:
    """``results`` counts writes: ``written``, ``removed``, ``failed``. ``is_complete``: whether all kinds are listed and current."""

    def __init__(
        self, index: ClusterIndex, settings: Settings, write: Write, clock: Clock, is_complete: Callable[[], bool]
    ) -> None:
        self.results: Counter[str] = Counter({"written": 0, "removed": 0, "failed": 0})
        self._index = index
        self._settings = settings
        self._write = write
        self._clock = clock
        self._is_complete = is_complete
        self._has_own = True  # until a round has looked: an earlier leader may have left some

    async def run(self) -> None:
        """Until cancelled."""
        self._has_own = True
        while True:
            if self._is_complete():
                await self.round()
            await self._clock.sleep(ROUND_SECONDS)

    async def round(self) -> None:
        """Computes and writes once. O(1) where no policy directs costs and no pod has one of ours, else O(pods)."""
        is_directed = any(each.deletion_cost for policy in self._index.policies for each in policy.directives.spread)
        if not (is_directed or self._has_own):
            return
        wanted = await self._wanted() if is_directed else {}
        changed: list[tuple[int, str]] = []
        self._has_own = False
        for pod in self._pods():
            if pod is None:
                await self._clock.sleep(_PAUSE_SECONDS)
                continue
            self._has_own |= pod.has_own_cost
            cost = wanted.get(pod.uid, 0)
            if (pod.has_own_cost or not pod.deletion_cost) and pod.deletion_cost != _text(cost):
                changed.append((cost, pod.uid))
        for cost, uid in sorted(changed):
            await self._change(uid, _text(cost))

    async def _wanted(self) -> dict[str, int]:
        steps, begun = wanted_costs(self._index.view, self._settings), self._clock.now()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: dict[str, int] = end.value
                return found
            if self._clock.now() - begun >= _SLICE_SECONDS:
                await self._clock.sleep(_PAUSE_SECONDS)
                begun = self._clock.now()

    def _pods(self) -> Iterator[Pod | None]:
        """The pods of now, by their UIDs; None after each step of some."""
        for number, uid in enumerate(list(self._index.pods), start=1):
            pod = self._index.pods.get(uid)
            if pod is not None and not pod.terminating:
                yield pod
            if number % _PODS_A_STEP == 0:
                yield None

    async def _change(self, uid: str, cost: str) -> None:
        pod = self._index.pods.get(uid)
        if pod is None or pod.terminating or (pod.deletion_cost and not pod.has_own_cost):
            return  # gone, or another client's by now
        try:
            await self._write(PodRef(pod.namespace, pod.name, pod.uid), cost or None)
            self.results["written" if cost else "removed"] += 1
            self._has_own = True
        except NotFound:
            pass
        except KubeError as error:
            self.results["failed"] += 1
            _LOG.warning("cost of deletion is not written", extra={"pod": pod.full_name, "error": str(error)})
        await self._clock.sleep(1 / WRITES_PER_SECOND)


def _text(cost: int) -> str:
    return str(cost) if cost else ""
