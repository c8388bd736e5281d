"""Requeues pods that kube-scheduler gave up on while no extender answered, or that an earlier leader was to requeue.

kube-scheduler does not repeat a preemption attempt before something changes. So an attempt is lost if the call of preempt is
refused, or if the extender ends between its answer and the nomination. And only the leader's memory holds what it rejected.
Therefore all pending pods are reviewed after the start of each term, and after a call of preempt without a decision:

1. A pod that a node takes now is requeued.
2. A pod that would fit once pods of lower priority have left a node is requeued.
3. Any other pod is recorded, so that a change that may help requeues it (`Requeuer`).
4. A nominated pod is requeued, because kube-scheduler without QueueingHints does not follow a nomination alone.

Namespaces take turns. Cost: for equal pods one search over the cluster and the dry runs of five preemptors, in a tenth of
the loop's time; at most three writes for a pod that is requeued.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from math import inf
from typing import Final

from extender.kube.timing import Clock
from extender.model.bounded import Steps
from extender.model.objects import Pod, PodSignature
from extender.rules import catalog
from extender.tasks.rejected_pods import RejectedPodWriter
from extender.verbs.dry_run import node_being_cleared

_LOG = logging.getLogger(__name__)

# Seconds before each of the two reviews. The first one waits until kube-scheduler has written the condition of a pod that was
# just refused. The second one waits for calls that failed until every node knew the address of the new leader.
WAITS: Final = (1.0, 9.0)
_SLICE_SECONDS: Final = 0.002  # of pods that are only compared
_PAUSES: Final = 9  # times as long as was worked
_PREEMPTOR_PAUSE: Final = 0.2  # the end of one nomination makes kube-scheduler try all pods of this priority or lower
_CLEARINGS: Final = (0.0, 0.5, 2.0, 4.0, 8.0)  # seconds before each attempt to end a nomination
_FIRST_WAIT, _LONGEST_WAIT = 5.0, 60.0  # before the same pod is requeued again, doubled each time
_GIVEN_UP: Final = "Unschedulable: "  # after any other reason kube-scheduler tries the pod again by itself

_Equals = tuple[PodSignature, Hashable]


class OverlookedPods:
    """Reviews all pending pods twice, after each start and each refusal; ``looks`` counts the reviews.

    ``find_victims`` returns a node on which a pod may preempt others, "" if there is none. ``note`` is called with each pod
    that only a change can help.
    """

    def __init__(
        self,
        writer: RejectedPodWriter,
        find_victims: Callable[[Pod], Steps[str]],
        clock: Clock,
        per_second: float,
        note: Callable[[Pod], None] | None = None,
    ) -> None:
        """Without ``note`` only preemptors are requeued."""
        self.looks = 0
        self._writer = writer
        self._index = writer.index
        self._find_victims = find_victims
        self._clock = clock
        self._pause = 1 / per_second
        self._note = note
        self._refused = asyncio.Event()
        self._begun = 0.0  # of the slice
        self._waits: dict[str, tuple[float, float]] = {}  # by UID how long and until when, of pods that were requeued
        self._next = inf  # the earliest time at which a pod that a review has passed over may be requeued

    def note_refused(self) -> None:
        """Call when a preempt request gets no decision. All pods are reviewed, because the request was not read. O(1)."""
        self._refused.set()

    async def run(self) -> None:
        """Reviews at the start and after refusals, until cancelled. Begin with a synced index."""
        while True:
            self._refused.clear()
            passed_over = [await self._look_after(seconds) for seconds in WAITS]
            await self._wait_until(
                passed_over[0]
            )  # a pod that only the second review passed over was requeued by the first

    async def _wait_until(self, moment: float) -> None:
        """Until a call is refused, or until a time of the clock."""
        if moment == inf:
            await self._refused.wait()
            return
        refused = asyncio.ensure_future(self._refused.wait())
        due = asyncio.ensure_future(self._clock.sleep(max(moment - self._clock.now(), 0.0)))
        try:
            await asyncio.wait({refused, due}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            refused.cancel()
            due.cancel()

    async def _look_after(self, seconds: float) -> float:
        """One review. Returns the earliest time at which a pod that it passed over may be requeued."""
        await self._clock.sleep(seconds)
        self._next, unplaced = inf, self._index.unplaced
        self._waits = {uid: wait for uid, wait in self._waits.items() if uid in unplaced}
        waiting: dict[str, deque[Pod]] = {}
        self._begun = self._clock.now()
        for pod in list(unplaced.values()):
            await self._rest(_SLICE_SECONDS)
            if self._is_given_up(pod) or self._is_stranded(pod):
                waiting.setdefault(pod.namespace, deque()).append(pod)
        hopeless = set[_Equals]()
        for listed in _in_turns(waiting):
            shown = self._index.pods.get(listed.uid)
            if shown is not None and self._is_given_up(shown):
                await self._look_at(shown, hopeless)
            elif shown is not None and self._is_stranded(shown):
                await self._requeue(shown, "")
            await self._rest(_SLICE_SECONDS)
        self.looks += 1
        return self._next

    async def _look_at(self, pod: Pod, hopeless: set[_Equals]) -> None:
        """Requeues the pod, or records it for `Requeuer`. ``hopeless``: nothing helps pods that are equal to these."""
        equals = pod.signature, catalog.NODE_FIT.pod_key(pod, self._index.view)
        if equals not in hopeless:
            if await self._help(pod):
                return
            hopeless.add(equals)
        if self._note is not None:
            self._note(pod)

    def _is_given_up(self, pod: Pod) -> bool:
        """Whether kube-scheduler has rejected the pod, and neither waits for a preemption nor has an answer since. O(1)."""
        view = self._index.view
        if not pod.rejection.startswith(_GIVEN_UP) or view.plan_node(pod.uid) or pod.uid in self._index.assumed.held:
            return False
        return self._writer.is_writable(pod)

    def _is_stranded(self, pod: Pod) -> bool:
        """Whether kube-scheduler may have ignored the pod's nomination, as it does without QueueingHints. O(pods of the node)."""
        view = self._index.view
        if self._note is None or not pod.nominated_node or not pod.rejection.startswith(_GIVEN_UP):
            return False
        if pod.gated or pod.terminating or view.plan_node(pod.uid) or pod.uid in self._index.assumed.held:
            return False
        return not node_being_cleared(pod, view)

    async def _help(self, pod: Pod) -> bool:
        """Requeues a pod that may be placed now, unless it was lately; False if nothing helps it. O(cluster)."""
        _, until = self._waits.get(pod.uid, (0.0, 0.0))
        if self._clock.now() < until:
            self._next = min(self._next, until)
            return True
        node, _ = self._writer.find(pod)
        await self._rest()
        preempts_on = "" if node else await self._in_steps(self._find_victims(pod))
        if not (node or preempts_on):
            return False
        if node and self._note is None:
            return True
        shown = self._index.pods.get(pod.uid)
        if shown is not None and self._is_given_up(shown):
            await self._requeue(shown, preempts_on)
        return True

    async def _requeue(self, pod: Pod, preempts_on: str) -> None:
        """Requeues a pod, unless it was lately."""
        now, (wait, until) = self._clock.now(), self._waits.get(pod.uid, (0.0, 0.0))
        if now < until:
            self._next = min(self._next, until)
            return
        wait = min(2 * wait, _LONGEST_WAIT) or _FIRST_WAIT
        self._waits[pod.uid] = wait, now + wait
        _LOG.info("overlooked pod requeued", extra={"pod": pod.full_name, "preempts_on": preempts_on})
        stamp = f"{now:.3f}"
        if preempts_on:
            await self._end_nomination(pod, preempts_on, stamp)
        else:
            await self._writer.requeue(pod, stamp)
        await self._clock.sleep(max(self._pause, _PREEMPTOR_PAUSE) if preempts_on else self._pause)
        self._begun = self._clock.now()

    async def _in_steps(self, steps: Steps[str]) -> str:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: str = end.value
                return result
            await self._rest()

    async def _rest(self, most: float = 0.0) -> None:
        """Leaves the loop to others for nine times the work since the last rest. No rest before ``most`` seconds of work."""
        worked = self._clock.now() - self._begun
        if worked >= most:
            await self._clock.sleep(_PAUSES * worked)
            self._begun = self._clock.now()

    async def _end_nomination(self, pod: Pod, node: str, stamp: str) -> None:
        """Requeues a pod that in-tree plugins rejected: nominates it and clears the nomination.

        kube-scheduler ignores an annotation on a pod that an in-tree plugin rejected, but not the end of a nomination.
        """
        if not await self._writer.nominate(pod, node):
            return
        for seconds in _CLEARINGS:
            await self._clock.sleep(seconds)
            if await self._writer.nominate(pod, ""):
                await self._writer.requeue(pod, stamp)
                return


def _in_turns(waiting: dict[str, deque[Pod]]) -> Iterator[Pod]:
    """The first pod of each namespace, then the second of each. O(1) for a pod; `FairBacklog` would cost O(namespaces)."""
    while waiting:
        for namespace in list(waiting):
            yield waiting[namespace].popleft()
            if not waiting[namespace]:
                del waiting[namespace]
