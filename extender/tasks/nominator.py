"""Steering and requeueing: gets refused pods looked at again where the scheduler by itself would not.

*Steering*: every asked node was refused, but another node of the cluster passes; the pod is nominated to it, and the
place is held. *Nudging*: a refusal's cause went away in a way that the scheduler does not watch; one annotation of the
pod is patched, which makes the scheduler ask again within milliseconds. Both are limited in rate, can be switched off,
and never touch a pod that is bound, gated or nominated by somebody else.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from extender.index.claims.rejected_pods import Grounds, RejectedPods
from extender.index.view import ClusterView
from extender.kube.effects import PodRef
from extender.kube.errors import KubeError, NotFound
from extender.model.bounded import BoundedCache
from extender.model.objects import Pod, PodSignature
from extender.tasks.ports import Clock, ClusterWriter
from extender.wire.extender_v1 import ExtenderArgs, FilterResult

_LOG = logging.getLogger(__name__)

REQUEUE_ANNOTATION: Final = "placement.extender.dev/requeued"
_LOOK_SECONDS: Final = 0.1
_SLICE: Final = 20
_HOPELESS_BYTES: Final = 4 * 2**20
_OVERHEAD: Final = 1000

_RESULTS: Final = (
    ("nominate", "done"),
    ("nominate", "failed"),
    ("nominate", "nowhere"),
    ("requeue", "done"),
    ("requeue", "failed"),
)

FindElsewhere = Callable[[Pod], tuple[str, bool]]


class NominatorIndex(Protocol):
    """What the nominator needs of the index."""

    @property
    def view(self) -> ClusterView:
        """The readers."""

    @property
    def rejected(self) -> RejectedPods:
        """Whom we refused; pods that are bound or deleted leave by themselves."""

    def unwatched_version(self) -> int:
        """Grows with every change that may help a refused pod and that the scheduler does not watch."""

    def assume(self, pod: Pod, nodes: Sequence[str], now: float, *, doubted: bool = False) -> None:
        """Holds the place that a pod is steered to."""


@dataclass(frozen=True, slots=True)
class NominatorOptions:
    """``nominates``/``requeues``: whether at all. ``in_flight``: nominations at once. ``per_second``: writes of either kind."""

    nominates: bool = True
    requeues: bool = True
    in_flight: int = 8
    per_second: float = 50.0


class Nominator:
    """The queue of refused pods to steer, and the watch over changes that call for requeues."""

    def __init__(
        self, index: NominatorIndex, writer: ClusterWriter, clock: Clock, options: NominatorOptions, find: FindElsewhere
    ) -> None:
        self.results: Counter[tuple[str, str]] = Counter(dict.fromkeys(_RESULTS, 0))
        self._index = index
        self._writer = writer
        self._clock = clock
        self._options = options
        self._find = find
        self._queue: deque[Pod] = deque()
        self._queued: set[str] = set()
        self._work = asyncio.Event()
        self._hopeless: BoundedCache[PodSignature, tuple[Grounds]] = BoundedCache(_HOPELESS_BYTES)

    def consider(self, args: ExtenderArgs, result: FilterResult) -> None:
        """Takes note of an answer. A refusal of all asked nodes is queued, to be searched outside of the answer. O(1)."""
        pod = args.pod
        if result.passed or result.error:
            self._index.rejected.discard(pod.uid)
            return
        self._index.rejected.add(pod, self._grounds(pod))
        asks_all = args.node_names is None or len(args.node_names) >= len(self._index.view.known)
        if self._options.nominates and not asks_all and pod.uid not in self._queued and not self._is_hopeless(pod):
            self._queued.add(pod.uid)
            self._queue.append(pod)
            self._work.set()

    def _is_hopeless(self, pod: Pod) -> bool:
        """Whether no node passed our rules before for this shape, on grounds that have not changed."""
        found = self._hopeless.get(pod.signature)
        return found is not None and self._has_not_changed(pod, found[0])

    def _grounds(self, pod: Pod) -> Grounds:
        """What an answer about the pod rests on now; None where it also hangs on pods whose node is not known yet."""
        view = self._index.view
        question = view.compiled(pod.signature)
        return None if view.is_pending(question) else (question.serial, view.grounds(question))

    def _has_not_changed(self, pod: Pod, grounds: Grounds) -> bool:
        """Whether an answer that rests on these grounds would be the same now."""
        return grounds is not None and grounds == self._grounds(pod)

    def _remember_hopeless(self, pod: Pod) -> None:
        self._hopeless.put(pod.signature, (self._grounds(pod),), pod.signature.size + _OVERHEAD)

    def _touchable(self, pod: Pod) -> bool:
        """Whether the pod still waits and is nobody else's; one that preempts already has where to go."""
        if self._index.view.awaited(pod.uid):
            return False
        shown = self._index.view.pod(pod.uid)
        return shown is not None and not (shown.node or shown.gated or shown.terminating or shown.nominated_node)

    async def nominate_elsewhere(self) -> None:
        """Takes refused pods from the queue, one nomination after the other per worker, until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(self._options.in_flight):
                workers.create_task(self._steer_each())

    async def _steer_each(self) -> None:
        while True:
            while not self._queue:
                self._work.clear()
                await self._work.wait()
            pod = self._queue.popleft()
            self._queued.discard(pod.uid)
            if self._touchable(pod):
                await self._steer(pod)
                await self._clock.sleep(self._options.in_flight / self._options.per_second)

    async def _steer(self, pod: Pod) -> None:
        node, some_pass = self._find(pod)
        if not node:
            if not some_pass:
                self._remember_hopeless(pod)
            self.results["nominate", "nowhere"] += 1
            return
        # The scheduler has not placed it yet, and may place it elsewhere: others leave it the room and rely on nothing.
        self._index.assume(pod, (node,), self._clock.now(), doubted=True)
        if not await self._write("nominate", pod, self._writer.nominate(_ref(pod), node)):
            self._index.assume(pod, (), self._clock.now())
            return
        _LOG.info("steered", extra={"pod": pod.full_name, "node": node})

    async def requeue(self) -> None:
        """Looks at the refused pods again after each change that the scheduler does not watch, until cancelled."""
        seen = self._index.unwatched_version()
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            now = self._index.unwatched_version()
            if now != seen:
                seen = now
                await self._look_again()

    async def _look_again(self) -> None:
        for number, (pod, grounds) in enumerate(self._index.rejected):
            if number % _SLICE == _SLICE - 1:
                await self._clock.sleep(0)
            if self._has_not_changed(pod, grounds):
                continue
            if self._options.requeues and self._touchable(pod) and self._find(pod)[1]:
                if await self._write(
                    "requeue", pod, self._writer.annotate(_ref(pod), REQUEUE_ANNOTATION, f"{self._clock.now():.3f}")
                ):
                    _LOG.info("requeued", extra={"pod": pod.full_name})
                self._index.rejected.discard(pod.uid)
                await self._clock.sleep(1 / self._options.per_second)

    async def _write(self, kind: str, pod: Pod, call: Awaitable[None]) -> bool:
        """Whether the write was accepted. A pod that is gone or changed hands needs it no more."""
        try:
            await call
        except KubeError as error:
            self.results[kind, "failed"] += 1
            level = logging.DEBUG if isinstance(error, NotFound) else logging.WARNING
            _LOG.log(level, "%s failed", kind, extra={"pod": pod.full_name, "error": str(error)})
            return False
        self.results[kind, "done"] += 1
        return True


def _ref(pod: Pod) -> PodRef:
    return PodRef(pod.namespace, pod.name, pod.uid)
