"""Keeps the annotation `pod-deletion-cost` of pods whose policies direct it (`deletionCost: Fullest`). On the leader only.

A round computes the costs in slices, then writes the differences: at most `WRITES_PER_SECOND`, and `MOST_WRITES` in a round.

1. Namespaces take turns, because the tenants of a cluster share the writes. Within a namespace the fullest domains come first.
2. A cost that another client removes is written again after a wait that doubles each time.
3. An annotation of another client is never changed. Ours has a second annotation with the same value beside it.
4. Costs are removed when no policy directs them any more.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NamedTuple

from extender.index.cluster import ClusterIndex
from extender.kube.effects import PodRef
from extender.kube.errors import KubeError, NotFound
from extender.kube.timing import Clock
from extender.model.objects import Pod
from extender.settings.configuration import Settings
from extender.tasks.fair_queue import NamespaceUsage
from extender.verbs.deletion_costs import wanted_costs

_LOG = logging.getLogger(__name__)
ROUND_SECONDS: Final = 5.0
WRITES_PER_SECOND: Final = 10
MOST_WRITES: Final = 100  # of a round; the next one sees what has come meanwhile
MOST_REPEATED_AFTER: Final = 3600.0  # seconds
_MOST_REMEMBERED: Final = 20_000  # pods with their last write
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
        self._usage = NamespaceUsage(clock)
        self._last: dict[str, _Written] = {}  # by UID

    async def run(self) -> None:
        """Until cancelled."""
        self._has_own = True
        while True:
            if self._is_complete():
                await self.round()
            await self._clock.sleep(ROUND_SECONDS)

    async def round(self) -> None:
        """Computes and writes once. O(pods); O(1) if no policy directs costs and no pod has a cost that we wrote."""
        is_directed = any(
            directive.deletion_cost for policy in self._index.policies for directive in policy.directives.spread
        )
        if not (is_directed or self._has_own):
            return
        wanted = await self._wanted() if is_directed else {}
        changed: dict[str, list[tuple[int, str]]] = {}  # by namespace, the lowest cost last
        self._has_own, now = False, self._clock.now()
        for pod in self._pods():
            if pod is None:
                await self._clock.sleep(_PAUSE_SECONDS)
                continue
            # 1. A cost of another client is never changed. 2. A cost that differs from the wanted one is written. 3. The same
            #    cost is written again only after a wait, which doubles: another client may remove it each time.
            self._has_own |= pod.has_own_cost
            cost = wanted.get(pod.uid, 0)
            if (pod.has_own_cost or not pod.deletion_cost) and pod.deletion_cost != _text(cost):
                last = self._last.get(pod.uid)
                if last is None or last.cost != _text(cost) or now >= last.again_at:
                    changed.setdefault(pod.namespace, []).append((cost, pod.uid))
        self._forget()
        for costs in changed.values():
            costs.sort(reverse=True)
        for _ in range(MOST_WRITES):
            if not changed:
                return
            namespace = self._usage.least(changed)
            cost, uid = changed[namespace].pop()
            if not changed[namespace]:
                del changed[namespace]
            self._usage.charge(namespace)
            await self._change(uid, _text(cost))

    def _forget(self) -> None:
        """Forgets writes to deleted pods, and the earliest writes above `_MOST_REMEMBERED`."""
        self._last = {uid: last for uid, last in self._last.items() if uid in self._index.pods}
        for uid in list(self._last)[: max(0, len(self._last) - _MOST_REMEMBERED)]:
            del self._last[uid]

    async def _wanted(self) -> dict[str, int]:
        steps, begun = wanted_costs(self._index.view, self._settings), self._clock.now()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                costs: dict[str, int] = end.value
                return costs
            if self._clock.now() - begun >= _SLICE_SECONDS:
                await self._clock.sleep(_PAUSE_SECONDS)
                begun = self._clock.now()

    def _pods(self) -> Iterator[Pod | None]:
        """The existing pods in the order of their UIDs; None between two steps."""
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
            self._remember(uid, cost)
            self.results["written" if cost else "removed"] += 1
            self._has_own = True
        except NotFound:
            pass
        except KubeError as error:
            self.results["failed"] += 1
            _LOG.warning("cost of deletion is not written", extra={"pod": pod.full_name, "error": str(error)})
        await self._clock.sleep(1 / WRITES_PER_SECOND)

    def _remember(self, uid: str, cost: str) -> None:
        last = self._last.pop(uid, None)
        wait = min(2 * last.wait, MOST_REPEATED_AFTER) if last is not None and last.cost == cost else ROUND_SECONDS
        self._last[uid] = _Written(cost, wait, self._clock.now() + wait)


class _Written(NamedTuple):
    """The last write to a pod: the cost, and the time before which the write is not repeated."""

    cost: str
    wait: float
    again_at: float


def _text(cost: int) -> str:
    return str(cost) if cost else ""
