"""Decides whether a pod that the filter rejected is nominated elsewhere or requeued, and writes it.

Three events lead to a write:

1. The search outside the sample of the scheduler finds a node (`Nominator`).
2. Something changes that the scheduler does not watch (`Requeuer`).
3. An event reached the scheduler before it reached the extender (`Rechecker`).

A pod is written to only while it is unscheduled, ungated and not nominated by another component. Writes are limited in rate.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from extender.index.claims.assumed import Assumed
from extender.index.claims.nominations import DependencyVersion
from extender.index.cluster import ClusterIndex
from extender.index.view import ClusterView
from extender.kube.effects import PodRef
from extender.kube.errors import KubeError, NotFound
from extender.kube.timing import Clock
from extender.kube.writer import Writer
from extender.model.bounded import BoundedCache
from extender.model.objects import Pod, PodSignature
from extender.rules import catalog
from extender.tasks.fair_queue import FairBacklog
from extender.tasks.sliced_work import Traffic
from extender.verbs.effective_pod import known_effective_pod
from extender.wire.extender_v1 import ExtenderArgs, decode_names

_LOG = logging.getLogger(__name__)

REQUEUE_ANNOTATION: Final = "placement.extender.dev/requeued"

# Every pair is there from the start: a rate needs a value from before the first count.
_RESULTS: Final = (
    ("nominate", "done"),
    ("nominate", "failed"),
    ("nominate", "no_node"),
    ("requeue", "done"),
    ("requeue", "failed"),
    ("recheck", "passes"),
    ("recheck", "rejected"),
)

# For a pod: the node to nominate it to (empty if there is none), and whether any node passes the rules.
FindElsewhere = Callable[[Pod], tuple[str, bool]]


class RejectedPodWriter:
    """Writes to rejected pods. ``results``: by (action, result). ``find`` searches all nodes: O(cluster)."""

    def __init__(self, index: ClusterIndex, writer: Writer, find: FindElsewhere) -> None:
        self.results: Counter[tuple[str, str]] = Counter(dict.fromkeys(_RESULTS, 0))
        self.index = index
        self.find = find
        self._writer = writer

    def is_writable(self, pod: Pod) -> bool:
        """Whether the pod is still unscheduled and has no nomination. A preemptor has one, if only in memory. O(1)."""
        view = self.index.view
        if view.uncleared_node(pod.uid):
            return False
        shown = view.pod(pod.uid)
        return shown is not None and not (shown.node or shown.gated or shown.terminating or shown.nominated_node)

    async def nominate(self, pod: Pod, node: str) -> bool:
        """Whether the API server accepted the nomination."""
        return await self._write("nominate", pod, self._writer.nominate(PodRef.of(pod), node))

    async def requeue(self, pod: Pod, stamp: str) -> bool:
        """Whether the API server accepted the annotation, an update after which the scheduler tries the pod again."""
        return await self._write("requeue", pod, self._writer.annotate(PodRef.of(pod), REQUEUE_ANNOTATION, stamp))

    async def _write(self, action: str, pod: Pod, call: Awaitable[None]) -> bool:
        """A failure is not retried: the next rejection leads here again."""
        try:
            await call
        except KubeError as error:
            self.results[action, "failed"] += 1
            # A pod that was deleted meanwhile needs no write.
            level = logging.DEBUG if isinstance(error, NotFound) else logging.WARNING
            fields = {"action": action, "pod": pod.full_name, "error": str(error)}
            _LOG.log(level, "write to a rejected pod failed", extra=fields)
            return False
        self.results[action, "done"] += 1
        return True


def dependency_version(pod: Pod, view: ClusterView) -> DependencyVersion:
    """The version of everything that the result for the pod depends on; None where it depends on undetermined pods."""
    pod = known_effective_pod(pod, view)
    compiled = view.compiled(pod.signature)
    return None if view.is_undetermined(compiled) else catalog.dependencies(pod, compiled, view)


def is_unchanged(pod: Pod, version: DependencyVersion, view: ClusterView) -> bool:
    """Whether a result of this dependency version would be the same now."""
    return version is not None and version == dependency_version(pod, view)


_CACHE_BYTES: Final = 4 * 2**20
_ENTRY_OVERHEAD_BYTES: Final = 1000


@dataclass(frozen=True, slots=True)
class NominatorOptions:
    """``in_flight``: nominations side by side. ``per_second``: nominations of all of them together."""

    in_flight: int = 8
    per_second: float = 50.0


class Nominator:
    """Nominates a rejected pod to a node outside the sample of the scheduler (``status.nominatedNodeName``, KEP-5278).

    kube-scheduler asks about a sample of the nodes in large clusters. When every sampled node was rejected, another node may
    still pass. The search runs after the answer, so that it does not delay the scheduler. A pod that passes in between is on
    its way to a node, and is not nominated. Cost: one search over the cluster per pod.
    """

    def __init__(
        self,
        writer: RejectedPodWriter,
        clock: Clock,
        options: NominatorOptions,
        on_nomination: Sequence[Callable[[Pod, str], None]] = (),
    ) -> None:
        """``on_nomination``: called with each nominated pod and its node."""
        self._on_nomination = on_nomination
        self._writer = writer
        self._index = writer.index
        self._clock = clock
        self._options = options
        self._queue: FairBacklog[Pod] = FairBacklog(clock)
        self._queued: set[str] = set()
        self._without_node: BoundedCache[PodSignature, tuple[DependencyVersion]] = BoundedCache(_CACHE_BYTES)

    def consider(self, args: ExtenderArgs) -> None:
        """Queues a pod whose requested nodes were all rejected, where the cluster has other nodes. O(1)."""
        pod = args.pod
        requests_all = args.node_names is None or len(args.node_names) >= len(self._index.view.known)
        if pod.uid not in self._queued and not requests_all and not self._has_no_node(pod):
            self._queued.add(pod.uid)
            self._queue.add(pod.namespace, pod)

    async def run(self) -> None:
        """Takes pods from the queue, one at a time per worker, until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(self._options.in_flight):
                workers.create_task(self._nominate_queued())

    def _has_no_node(self, pod: Pod) -> bool:
        """Whether no node passed for this signature before, and nothing that this depends on has changed."""
        entry = self._without_node.get(pod.signature)
        return entry is not None and is_unchanged(pod, entry[0], self._index.view)

    def _remember_without_node(self, pod: Pod) -> None:
        version = dependency_version(pod, self._index.view)
        self._without_node.put(pod.signature, (version,), pod.signature.size + _ENTRY_OVERHEAD_BYTES)

    async def _nominate_queued(self) -> None:
        while True:
            pod = await self._queue.take()
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


_BATCH_SECONDS: Final = 0.1  # changes that follow a review within this time share the next one
# After five such steps the next pods get their turn, where requeued ones have not taken the places; a change ends the wait.
TURN_STEP_SECONDS: Final = 0.2
_TURN_STEPS: Final = 5
_PODS_PER_SLICE: Final = 20  # pods looked at before the event loop serves requests again
_OVERDUE_ROUND_SECONDS: Final = 0.25
_AFTER_FAILURE_SECONDS: Final = 1.0


class _Due(NamedTuple):
    """A pod to requeue. ``version``: the dependency version of its rejection. ``node``: its nomination, if that is the reason."""

    pod: Pod
    version: DependencyVersion
    node: str = ""


class Requeuer:
    """Requeues rejected pods after changes that kube-scheduler does not watch for an extender, at most ``per_second``.

    Example: a namespace is relabelled, and a pod that an anti-affinity rejected would pass now. The scheduler tries a pod again
    when the pod itself is updated, so one annotation is patched.

    1. Pods that share a number of places (a quota) are requeued only as far as places are left; the others follow later.
    2. A kube-scheduler without QueueingHints (KEP-4247; before 1.32, or with the gate off) ignores an update of the status
       alone, such as a nomination. So a nominated pod is requeued in the same way if the scheduler does not ask about it. A
       scheduler with the hints asks within milliseconds, and nothing is written.

    Cost: one search over the cluster per pod that a change may help.
    """

    def __init__(
        self, writer: RejectedPodWriter, clock: Clock, per_second: float, traffic: Traffic | None = None
    ) -> None:
        self._traffic = traffic or Traffic(clock)
        # By UID: the node, and the time before which nothing is written.
        self._nominated: dict[str, tuple[str, float]] = {}
        self._added = asyncio.Event()
        self._writer = writer
        self._index = writer.index
        self._clock = clock
        self._per_second = per_second
        self._queue: FairBacklog[_Due] = FairBacklog(clock)
        self._queued: set[str] = set()
        self._requeued: Counter[Hashable] = Counter()  # pods in this turn, by the places that they share
        self._is_left = asyncio.Event()

    def consider(self, args: ExtenderArgs) -> None:
        """Records a pod whose requested nodes were all rejected. O(1)."""
        self._index.rejected.add(args.pod, dependency_version(args.pod, self._index.view))

    def note_pending(self, pod: Pod) -> None:
        """Records a pod that an earlier leader may have rejected, if a rule may reject it; with the dependency version of now.

        O(groups).
        """
        view = self._index.view
        compiled = view.compiled(known_effective_pod(pod, view).signature)
        if pod.uid not in self._index.rejected.held and catalog.active(compiled, view):
            self._index.rejected.add(pod, dependency_version(pod, view))

    def await_request(self, pod: Pod, node: str) -> None:
        """Records a nominated pod, whose assumption is doubted, until the scheduler asks about it. O(1)."""
        self._nominated[pod.uid] = node, 0.0
        self._added.set()

    async def run(self) -> None:
        """Requeues rejected and nominated pods until cancelled. Namespaces take turns."""
        changed = asyncio.Event()

        def wake(_change: object) -> None:
            changed.set()

        sources = (*self._index.unwatched_changes, *catalog.unwatched_changes(self._index.view))
        for source in sources:
            source.subscribe(wake)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._queue_changed(changed))
                tasks.create_task(self._queue_overdue())
                tasks.create_task(self._end_turns(changed))
                while True:
                    await self._requeue(await self._queue.take())
        finally:
            for source in sources:
                source.unsubscribe(wake)

    # -- what is queued -------------------------------------------------------------------------------------------------

    def _add(self, due: _Due) -> None:
        if due.pod.uid not in self._queued:
            self._queued.add(due.pod.uid)
            self._queue.add(due.pod.namespace, due)

    async def _queue_changed(self, changed: asyncio.Event) -> None:
        """Queues the rejected pods whose result a change may have changed."""
        while True:
            await changed.wait()
            changed.clear()
            self._requeued.clear()
            for number, (pod, version) in enumerate(self._index.rejected):
                if number % _PODS_PER_SLICE == _PODS_PER_SLICE - 1:
                    await self._clock.sleep(0)
                # Without this check a pod that full nodes keep pending would be requeued after every change.
                if not is_unchanged(pod, version, self._index.view) and self._writer.is_writable(pod):
                    self._add(_Due(pod, version))
            await self._clock.sleep(_BATCH_SECONDS)

    async def _end_turns(self, changed: asyncio.Event) -> None:
        """Queues the pods again for which no places were left, unless a change queues them."""
        # A requeued pod takes its place only when the scheduler has bound it. So the places are offered again after
        # `_TURN_STEPS`; without this wait the same places would be offered to every pod that shares them.
        while True:
            await self._is_left.wait()
            for _ in range(_TURN_STEPS):
                if not changed.is_set():
                    await self._clock.sleep(TURN_STEP_SECONDS)
            self._is_left.clear()
            changed.set()

    async def _queue_overdue(self) -> None:
        """Queues each nominated pod, once, if the scheduler does not ask about it. A round costs O(nominated pods)."""
        while True:
            while not self._nominated:
                self._added.clear()
                await self._added.wait()
            await self._clock.sleep(_OVERDUE_ROUND_SECONDS)
            now, left = self._clock.now(), dict[str, tuple[str, float]]()
            for uid, (node, earliest) in self._nominated.items():
                assumed = self._nomination(uid, node)
                if assumed is not None and now >= earliest and self._traffic.is_overdue(now - assumed.since):
                    self._add(_Due(assumed.pod, None, node))
                elif assumed is not None:
                    left[uid] = node, earliest
            self._nominated = left

    def _nomination(self, uid: str, node: str) -> Assumed | None:
        """The assumption of a nominated pod. None once a request, or the binding or deletion of the pod, has ended it. O(1)."""
        assumed = self._index.assumed.held.get(uid)
        return assumed if assumed is not None and assumed.doubted and assumed.nodes == (node,) else None

    # -- one pod --------------------------------------------------------------------------------------------------------

    async def _requeue(self, due: _Due) -> None:
        pod = due.pod
        self._queued.discard(pod.uid)
        if due.node:
            await self._requeue_nominated(pod, due.node)
        elif self._has_place(due):
            if await self._writer.requeue(pod, f"{self._clock.now():.3f}"):
                _LOG.info("requeued", extra={"pod": pod.full_name})
            self._index.rejected.discard(pod.uid)
            await self._clock.sleep(1 / self._per_second)
        else:
            await self._clock.sleep(0)

    def _has_place(self, due: _Due) -> bool:
        """Whether a node passes for the pod now, and one of the places that it shares with other pods is left. O(cluster)."""
        pod, view = due.pod, self._index.view
        if is_unchanged(pod, due.version, view) or not self._writer.is_writable(pod):
            return False
        places = catalog.shared_places(known_effective_pod(pod, view), view)
        version = dependency_version(pod, view)
        if not self._writer.find(pod)[1]:
            # No further search before something changes that this one depends on, whatever else changes.
            self._index.rejected.renew(pod.uid, version)
            return False
        if any(self._requeued[group] >= left for group, left in places.items()):
            self._is_left.set()
            return False
        self._requeued.update(places.keys())
        return True

    async def _requeue_nominated(self, pod: Pod, node: str) -> None:
        """Requeues a nominated pod. After a failure it is queued again, because no rejection would bring it back."""
        if self._nomination(pod.uid, node) is None:
            return
        if await self._writer.requeue(pod, f"{self._clock.now():.3f}"):
            _LOG.info("nominated pod requeued", extra={"pod": pod.full_name, "node": node})
        else:
            self._nominated.setdefault(pod.uid, (node, self._clock.now() + _AFTER_FAILURE_SECONDS))
            self._added.set()
        await self._clock.sleep(1 / self._per_second)


_ROUND_SECONDS: Final = 0.1
_RECENT_SECONDS: Final = 1.0
_MOST_DECISIONS: Final = 20  # in one round
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
    """Requeues pods that were rejected because an event reached kube-scheduler before it reached the extender.

    1. The scheduler sees the event first and tries a rejected pod again before the event is in the index. It gets the earlier
       rejection. No further event comes, so the pod would stay pending for minutes.
    2. Therefore the dependency version of a rejection is compared with the index for a second. If it has changed, the same
       request is decided again, and the pod is requeued if a node passes now.
    3. Only the nodes of the request are decided again, so the pod is not requeued for nodes that are full.

    Cost: nothing while there are no recent rejections; otherwise ten rounds per second, each O(groups) per rejection and at
    most `_MOST_DECISIONS` decisions.

    ``held``: the recent rejections by UID, the one decided longest ago first. It is dropped first above `_MOST_BYTES`.
    ``bytes``: the size of all. ``decisions`` counts requests that were decided again.
    """

    def __init__(
        self,
        writer: RejectedPodWriter,
        clock: Clock,
        per_second: float,
        would_pass: WouldPass,
        search_elsewhere: Sequence[Callable[[ExtenderArgs], None]] = (),
    ) -> None:
        """``search_elsewhere``: called for a pod that no node of the request takes after the change either."""
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
            # Of equal pods one in a round: if one place was freed and the first pod takes it, the others are rejected again.
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
        # Put back as the last one: the next round begins with pods for which this round had no decision left.
        self._put(known)
        self._keep_while_recent(known)
        for call in self._search_elsewhere:
            call(args)
        return False

    def _version(self, pod: Pod) -> Hashable:
        """The dependency version of the rejection, with the version of nominations if there are any: they keep nodes.

        A result that depends on undetermined pods is decided again once it does not.
        """
        return dependency_version(pod, self._view), self._view.claims_version if self._view.nominated else 0

    def _put(self, rejected: _Rejected) -> None:
        self.held[rejected.pod.uid] = rejected
        self.bytes += rejected.size

    def _discard(self, uid: str) -> None:
        known = self.held.pop(uid, None)
        if known is not None:
            self.bytes -= known.size
