"""The scheduling queue: active pods by priority and time, pods in backoff, and rejected pods that wait for an event.

Events requeue rejected pods by the queueing hints of kube-scheduler (measured):

1. Any event of pods and nodes requeues a pod that the extender rejected, and so does its own update. Namespaces do not.
2. Without the hints (before 1.32, or with the gate off) an update of a pod's own status requeues nothing.
3. Without the hints the binding of another pod requeues nothing either. For this kube-scheduler makes an exception: pods with
   required affinity or spread.

Pure: time is an argument. Called by `scheduler/loop.py`.
"""

import heapq
from collections.abc import Collection

from extender.simulator.json_objects import JsonObject, uid_of
from extender.simulator.scheduler.cache import ClusterEvent

EXTENDER = "Extender"
_FIT_EVENTS = {
    ClusterEvent.POD_DELETED,
    ClusterEvent.POD_CHANGED,
    ClusterEvent.NOMINATION_CHANGED,
    ClusterEvent.NODE_ADDED,
    ClusterEvent.NODE_RESOURCES,
}
# The events that requeue a pod that the plugin rejected.
_REQUEUEING_EVENTS: dict[str, set[ClusterEvent]] = {
    EXTENDER: set(ClusterEvent),
    "NodeResourcesFit": _FIT_EVENTS,
    "TaintToleration": {ClusterEvent.NODE_ADDED, ClusterEvent.NODE_TAINTS},
    "NodeUnschedulable": {ClusterEvent.NODE_ADDED, ClusterEvent.NODE_TAINTS},
    "NodeAffinity": {ClusterEvent.NODE_ADDED, ClusterEvent.NODE_LABELS},
    "": {ClusterEvent.NODE_ADDED},
}
_OF_EVERY_WRITE = {"resourceVersion", "generation", "managedFields", "finalizers"}
FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 10.0


def _specified(pod: JsonObject) -> JsonObject:
    """The pod without what every write changes, and without its status."""
    metadata = {key: value for key, value in pod["metadata"].items() if key not in _OF_EVERY_WRITE}
    return {"metadata": metadata, "spec": pod["spec"]}


class QueuedPod:
    """A pending pod and its history in the queue.

    ``active_since``: since when it is active, or was taken out of its back-off because no pod was.
    """

    __slots__ = ("active_since", "attempts", "backoff_until", "is_error", "plugins", "pod", "since", "uid")

    def __init__(self, pod: JsonObject, now: float) -> None:
        self.pod = pod
        self.uid = uid_of(pod)
        self.since = now
        self.active_since = now
        self.attempts = 0
        self.plugins: frozenset[str] = frozenset()
        self.backoff_until = 0.0
        self.is_error = False

    @property
    def priority(self) -> int:
        """The pod's priority, as the API server has resolved it."""
        return int(self.pod["spec"].get("priority") or 0)


class SchedulingQueue:
    """Each pending pod is in exactly one state: active, in backoff, waiting, gated, or being scheduled."""

    def __init__(
        self,
        first_backoff: float = FIRST_BACKOFF,
        longest_backoff: float = LONGEST_BACKOFF,
        *,
        queueing_hints: bool = True,
    ) -> None:
        self._queueing_hints = queueing_hints
        self._first_backoff = first_backoff
        self._longest_backoff = longest_backoff
        self.pods: dict[str, QueuedPod] = {}
        self.waiting: dict[str, QueuedPod] = {}
        self.gated: dict[str, QueuedPod] = {}
        self._active: list[tuple[int, float, int, QueuedPod]] = []
        self._backoff: list[tuple[float, int, QueuedPod]] = []
        self._place: dict[str, int] = {}
        self._count = 0

    def put(self, pod: JsonObject, now: float) -> None:
        """Adds or updates a pending pod."""
        uid = uid_of(pod)
        queued = self.pods.get(uid)
        if queued is None:
            queued = self.pods[uid] = QueuedPod(pod, now)
            self._sort_in(queued, now)
            return
        before, queued.pod = queued.pod, pod  # also of a pod in backoff, which is scheduled with its newest spec
        # An update may have removed the last gate.
        if self.gated.pop(uid, None) is not None:
            self._sort_in(queued, now)
        elif uid in self.waiting and self._is_requeued_by(queued, before):
            self._requeue(queued, now)

    def remove(self, uid: str) -> None:
        """Removes a pod that is bound or deleted."""
        self.pods.pop(uid, None)
        self.waiting.pop(uid, None)
        # Its entries in the heaps stay. `_holds` skips them when they are popped.
        self.gated.pop(uid, None)
        self._place.pop(uid, None)

    def pop(self, now: float) -> QueuedPod | None:
        """Takes the next pod to schedule. If none is active, a pod in backoff after a rejection comes early."""
        self._end_backoffs(now)
        while self._active:
            *_, ticket, queued = heapq.heappop(self._active)
            if self._take(queued, ticket):
                return queued
        # As popFromBackoffQ of kube-scheduler (1.33); pods after an error keep their whole backoff.
        for entry in sorted(self._backoff):
            _, ticket, queued = entry
            if not queued.is_error and self._take(queued, ticket):
                queued.active_since = now
                return queued
        return None

    def reject(self, queued: QueuedPod, plugins: Collection[str], now: float) -> None:
        """Lets a pod wait for an event after which one of these plugins requeues it."""
        # Without a rejecting plugin, as in a cluster without nodes, only a new node can help.
        queued.plugins = frozenset(plugins) or frozenset({""})
        queued.is_error = False
        queued.since = now
        if self.pods.get(queued.uid) is queued:
            self.waiting[queued.uid] = queued

    def fail(self, queued: QueuedPod, now: float) -> None:
        """Lets a pod wait for its backoff after an error. No event shortens it."""
        queued.is_error = True
        queued.since = now
        if self.pods.get(queued.uid) is queued:
            self._back_off(queued, now)

    def requeue_on(self, event: ClusterEvent, now: float) -> None:
        """Requeues the rejected pods that this event may make schedulable."""
        if event is ClusterEvent.POD_BOUND and not self._queueing_hints:
            return
        for queued in list(self.waiting.values()):
            if any(event in _REQUEUEING_EVENTS.get(plugin, set()) for plugin in queued.plugins):
                self._requeue(queued, now)

    def next_due(self) -> float | None:
        """When the next backoff ends."""
        return min((until for until, ticket, queued in self._backoff if self._holds(queued, ticket)), default=None)

    @property
    def is_idle(self) -> bool:
        """Whether no pod is active or in backoff."""
        return not self._place

    def _is_requeued_by(self, queued: QueuedPod, before: JsonObject) -> bool:
        """Whether the pod's own update makes it worth another try."""
        return EXTENDER in queued.plugins if self._queueing_hints else _specified(queued.pod) != _specified(before)

    def _sort_in(self, queued: QueuedPod, now: float) -> None:
        if queued.pod["spec"].get("schedulingGates"):
            self.gated[queued.uid] = queued
        else:
            self._activate(queued, now)

    def _requeue(self, queued: QueuedPod, now: float) -> None:
        del self.waiting[queued.uid]
        # The back-off counts from the rejection: a pod that has waited longer than that is active at once.
        if queued.since + self._backoff_of(queued) > now:
            self._back_off(queued, now)
        else:
            self._activate(queued, now)

    def _activate(self, queued: QueuedPod, now: float) -> None:
        queued.since = queued.active_since = now
        ticket = self._ticket(queued)
        # By priority, then by the time of becoming active; the ticket is unique, so pods are never compared.
        heapq.heappush(self._active, (-queued.priority, now, ticket, queued))

    def _back_off(self, queued: QueuedPod, now: float) -> None:
        queued.backoff_until = max(now, queued.since + self._backoff_of(queued))
        heapq.heappush(self._backoff, (queued.backoff_until, self._ticket(queued), queued))

    def _end_backoffs(self, now: float) -> None:
        while self._backoff and self._backoff[0][0] <= now:
            _, ticket, queued = heapq.heappop(self._backoff)
            if self._holds(queued, ticket):
                self._activate(queued, now)

    def _take(self, queued: QueuedPod, ticket: int) -> bool:
        if not self._holds(queued, ticket):
            return False
        del self._place[queued.uid]
        queued.attempts += 1
        return True

    def _ticket(self, queued: QueuedPod) -> int:
        """The number of the pod's valid entry in the heaps; older entries are ignored when they are popped."""
        self._count += 1
        self._place[queued.uid] = self._count
        return self._count

    def _holds(self, queued: QueuedPod, ticket: int) -> bool:
        return self._place.get(queued.uid) == ticket and self.pods.get(queued.uid) is queued

    def _backoff_of(self, queued: QueuedPod) -> float:
        # 1, 2, 4, 8, 10 seconds by default. The power is bounded, because a pod may be tried thousands of times.
        doublings = max(0, queued.attempts - 1)
        return float(min(self._first_backoff * 2 ** min(doublings, 10), self._longest_backoff))
