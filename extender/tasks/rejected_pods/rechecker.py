"""Requeues pods that were rejected because an event reached kube-scheduler before it reached the extender.

Both watch the API server, and either may be first. If the scheduler is, it tries a rejected pod again before the event
is in our index, and gets the earlier rejection. No further event comes, so the pod stays pending for minutes. Therefore
what a rejection depends on is compared with the index for a second. After a change the same request is decided again, and
the pod is requeued if a node passes now. The nodes are those that the scheduler offered, so full nodes requeue no pod.

Cost: nothing while there are no recent rejections; else ten rounds per second, each of O(groups) for every recent
rejection and of at most `_MOST_DECISIONS` decisions. The writes are limited in rate.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from extender.model.objects import Pod, PodSignature
from extender.tasks.ports import Clock
from extender.tasks.rejected_pods.writes import RejectedPodWriter, dependency_version
from extender.wire.extender_v1 import ExtenderArgs, decode_names

_LOG = logging.getLogger(__name__)

_ROUND_SECONDS: Final = 0.1
_RECENT_SECONDS: Final = 1.0
_MOST_DECISIONS: Final = 20  # in one round
_PODS_PER_SLICE: Final = 20  # pods looked at before the event loop serves requests again
_COST_OF_DECISION: Final = 5  # of such pods: some 200 µs for 500 names
_MOST_BYTES: Final = 4 * 2**20
_OVERHEAD_BYTES: Final = 500

WouldPass = Callable[[ExtenderArgs], bool]


@dataclass(frozen=True, slots=True)
class _Rejected:
    """A rejection: the pod, the bytes of the requested names, what it depends on, and when it was answered."""

    pod: Pod
    names: bytes
    version: Hashable
    since: float

    @property
    def size(self) -> int:
        """About how many bytes it holds; the signature is shared with the index."""
        return len(self.names) + _OVERHEAD_BYTES


class Rechecker:
    """The recent rejections by UID, the one decided longest ago first; above `_MOST_BYTES` that one is dropped.

    ``held`` and ``bytes`` are these rejections and their size, ``decisions`` counts requests that were decided again.
    """

    def __init__(
        self,
        writer: RejectedPodWriter,
        clock: Clock,
        per_second: float,
        would_pass: WouldPass,
        search_elsewhere: Sequence[Callable[[ExtenderArgs], None]] = (),
    ) -> None:
        """``search_elsewhere`` are called for a pod that none of its nodes would take after the change either."""
        self.decisions = 0
        self._writer = writer
        self._view = writer.index.view
        self._clock = clock
        self._per_second = per_second
        self._would_pass = would_pass
        self._search_elsewhere = search_elsewhere
        self.held: dict[str, _Rejected] = {}
        self.bytes = 0
        self._added = asyncio.Event()

    def consider(self, args: ExtenderArgs) -> None:
        """Records a pod whose requested nodes were all rejected. O(body)."""
        names = args.raw_names()
        if not names:  # a what-if request: the scheduler sends names
            return
        self._discard(args.pod.uid)
        self._put(_Rejected(args.pod, names, self._version(args.pod), self._clock.now()))
        while self.bytes > _MOST_BYTES:
            self._discard(next(iter(self.held)))
        self._added.set()

    async def run(self) -> None:
        """Compares the recent rejections with the index, until cancelled. Waits without a timer while there are none."""
        while True:
            while not self.held:
                self._added.clear()
                await self._added.wait()
            await self._clock.sleep(_ROUND_SECONDS)
            await self._round()

    async def _round(self) -> None:
        cost, limit, requeued = 0, self.decisions + _MOST_DECISIONS, set[PodSignature]()
        for uid in list(self.held):
            known = self.held.get(uid)
            if known is None:
                continue
            signature, version, cost = known.pod.signature, self._version(known.pod), cost + 1
            if version == known.version:
                self._keep_while_recent(known)
            # One of equal pods in a round: where one place was freed, the others do not pass any more in the next.
            elif self.decisions < limit and signature not in requeued:
                cost += _COST_OF_DECISION
                if await self._decide_again(replace(known, version=version)):
                    requeued.add(signature)
            if cost >= _PODS_PER_SLICE:
                cost = 0
                await self._clock.sleep(0)

    def _keep_while_recent(self, known: _Rejected) -> None:
        if self._clock.now() - known.since >= _RECENT_SECONDS:
            self._discard(known.pod.uid)

    async def _decide_again(self, known: _Rejected) -> bool:
        """Whether a node passes now; then the pod is requeued."""
        self._discard(known.pod.uid)
        pod = self._view.pod(known.pod.uid)
        if pod is None or not self._writer.is_writable(pod):
            return False
        args = ExtenderArgs(pod, decode_names(known.names))
        passes = self._would_pass(args)
        self.decisions += 1
        self._writer.results["recheck", "passes" if passes else "rejected"] += 1
        if passes:
            if await self._writer.requeue(pod, f"{self._clock.now():.3f}"):
                _LOG.info("requeued after a late event", extra={"pod": pod.full_name})
            await self._clock.sleep(1 / self._per_second)
            return True
        # Last in the order: in the next round it is the turn of pods that this round had no decision left for.
        self._put(known)
        self._keep_while_recent(known)
        for call in self._search_elsewhere:
            call(args)
        return False

    def _version(self, pod: Pod) -> Hashable:
        """The version of what the rejection depends on, and of nominations where nodes may be kept for these.

        A result that depends on undetermined pods is decided again once that is no longer so.
        """
        return dependency_version(pod, self._view), self._view.claims_version if self._view.nominated else 0

    def _put(self, rejected: _Rejected) -> None:
        self.held[rejected.pod.uid] = rejected
        self.bytes += rejected.size

    def _discard(self, uid: str) -> None:
        known = self.held.pop(uid, None)
        if known is not None:
            self.bytes -= known.size
