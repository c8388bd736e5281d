"""Nominates a rejected pod to a node outside the scheduler's sample.

kube-scheduler asks about a sample of the nodes in large clusters. When every sampled node was rejected, another node may
still pass. The search runs after the answer, so that it does not delay the scheduler. The pod is nominated to the node
that is found (``status.nominatedNodeName``, KEP-5278) and assumed there. A pod that has passed by then is left alone: it
is on its way to the node of that answer. Cost: one search over the cluster per pod, and one write per node found; both are
limited in rate.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from extender.index.claims.assumed import DependencyVersion
from extender.model.bounded import BoundedCache
from extender.model.objects import Pod, PodSignature
from extender.tasks.ports import Clock
from extender.tasks.rejected_pods.writes import RejectedPodWriter, dependency_version, is_unchanged
from extender.wire.extender_v1 import ExtenderArgs

_LOG = logging.getLogger(__name__)

_CACHE_BYTES: Final = 4 * 2**20
_ENTRY_OVERHEAD_BYTES: Final = 1000


@dataclass(frozen=True, slots=True)
class NominatorOptions:
    """``in_flight``: nominations side by side. ``per_second``: nominations of all of them together."""

    in_flight: int = 8
    per_second: float = 50.0


class Nominator:
    """The queue of rejected pods, and the workers that search a node for each."""

    def __init__(
        self,
        writer: RejectedPodWriter,
        clock: Clock,
        options: NominatorOptions,
        on_nomination: Sequence[Callable[[Pod, str], None]] = (),
    ) -> None:
        """``on_nomination`` are called with each pod that was nominated, and the node."""
        self._on_nomination = on_nomination
        self._writer = writer
        self._index = writer.index
        self._clock = clock
        self._options = options
        self._queue: deque[Pod] = deque()
        self._queued: set[str] = set()
        self._work = asyncio.Event()
        self._without_node: BoundedCache[PodSignature, tuple[DependencyVersion]] = BoundedCache(_CACHE_BYTES)

    def consider(self, args: ExtenderArgs) -> None:
        """Queues a pod whose requested nodes were all rejected, where the cluster has other nodes. O(1)."""
        pod = args.pod
        requests_all = args.node_names is None or len(args.node_names) >= len(self._index.view.known)
        if pod.uid not in self._queued and not requests_all and not self._has_no_node(pod):
            self._queued.add(pod.uid)
            self._queue.append(pod)
            self._work.set()

    async def run(self) -> None:
        """Takes pods from the queue, one at a time per worker, until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(self._options.in_flight):
                workers.create_task(self._nominate_queued())

    def _has_no_node(self, pod: Pod) -> bool:
        """Whether no node passed for this signature before, and nothing that this depends on has changed."""
        found = self._without_node.get(pod.signature)
        return found is not None and is_unchanged(pod, found[0], self._index.view)

    def _remember_without_node(self, pod: Pod) -> None:
        version = dependency_version(pod, self._index.view)
        self._without_node.put(pod.signature, (version,), pod.signature.size + _ENTRY_OVERHEAD_BYTES)

    async def _nominate_queued(self) -> None:
        while True:
            while not self._queue:
                self._work.clear()
                await self._work.wait()
            pod = self._queue.popleft()
            self._queued.discard(pod.uid)
            if self._writer.is_writable(pod) and pod.uid not in self._index.assumed.held:
                await self._nominate(pod)
                await self._clock.sleep(self._options.in_flight / self._options.per_second)

    async def _nominate(self, pod: Pod) -> None:
        node, some_pass = self._writer.find(pod)
        if not node:
            if not some_pass:
                self._remember_without_node(pod)
            self._writer.results["nominate", "no_node"] += 1
            return
        # Doubted: the scheduler may still place the pod elsewhere. Other pods leave room for it, and none relies on it.
        self._index.assume(pod, (node,), self._clock.now(), doubted=True)
        held = self._index.assumed.held
        ours = held.get(pod.uid)
        if not await self._writer.nominate(pod, node):
            if held.get(pod.uid) is ours:  # else the pod has passed meanwhile, and is assumed for that answer
                self._index.assumed.forget(pod.uid)
            return
        _LOG.info("nominated elsewhere", extra={"pod": pod.full_name, "node": node})
        for call in self._on_nomination:
            call(pod, node)
