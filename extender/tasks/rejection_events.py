"""Records an event on a rejected pod with the parts that kube-scheduler's own line lacks: rule, domain, counts, who is to blame.

For the leader. The answer to the scheduler only adds the pod to a queue. A pod that is still pending after
`SETTLED_SECONDS` is explained, in slices as for `extender explain` but without the search for changes, and has the note
of `verbs/explain/explaining.py`.

Bounds:

1. `MOST_QUEUED` pods wait. Namespaces take turns; above the bound the namespace with most pods loses one.
2. `AT_ONCE` pods are explained in a burst, then one more every `REFILL_SECONDS`.
3. A pod is explained again after `LOOK_AGAIN_SECONDS`. The same note is repeated only after `REPEATED_AFTER_SECONDS`, with the
   number of rejections in between.
4. An event is not retried: while the pod is pending, its next rejection leads here again.
5. The notes of at most `_MOST_KEPT` pods are kept, and of no pod that is bound or deleted.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from extender.index.objects.changes import IndexChange
from extender.kube.effects import ObjectEvent, PodRef
from extender.kube.errors import KubeError
from extender.kube.timing import Clock
from extender.kube.writer import Writer
from extender.model.answers.explanations import Explanation, NotExplained
from extender.model.objects import Pod
from extender.model.units import times
from extender.tasks.events import TokenBucket
from extender.tasks.fair_queue import FairBacklog
from extender.tasks.rejected_pods import RejectedPodWriter
from extender.verbs.explain.explaining import rejection_note
from extender.wire.extender_v1 import ExtenderArgs

_LOG = logging.getLogger(__name__)

REASON: Final = "PlacementRejected"
AT_ONCE: Final = 20
REFILL_SECONDS: Final = 1.0
SETTLED_SECONDS: Final = 2.0
LOOK_AGAIN_SECONDS: Final = 60.0
REPEATED_AFTER_SECONDS: Final = 1800.0  # the API server keeps an event for an hour
MOST_QUEUED: Final = 1000
_MOST_KEPT: Final = 2000  # pods, with up to 1 KiB each; no more have tokens within `REPEATED_AFTER_SECONDS`

# For the UID of a pod: what rejects it now. Raises NotExplained.
Explain = Callable[[str], Awaitable[Explanation]]


@dataclass(slots=True)
class _LastEvent:
    """The last note of a pod, when it was written, when the pod was last explained, and its rejections since the note."""

    note: str
    written: float
    looked: float
    rejections: int = 0


class RejectionEvents:
    """``consider`` is called for each rejection and returns at once; ``run`` writes. ``results`` counts pods by result.

    outdated: the pod is not pending any more, or a node passes. repeated: the note equals the note of the last event.
    suppressed: too many pods wait.
    """

    def __init__(
        self,
        rejected: RejectedPodWriter,
        writer: Writer,
        explain: Explain,
        clock: Clock,
        utc_now: Callable[[], datetime],
    ) -> None:
        self.results = Counter(dict.fromkeys(("written", "failed", "repeated", "suppressed", "outdated"), 0))
        self._rejected = rejected
        self._writer = writer
        self._explain = explain
        self._clock = clock
        self._utc_now = utc_now
        self._tokens = TokenBucket(AT_ONCE, REFILL_SECONDS, clock.now())
        self._queue: FairBacklog[tuple[str, float]] = FairBacklog(
            clock, MOST_QUEUED
        )  # the UID, and when it was rejected
        self._queued: set[str] = set()
        self._last: OrderedDict[str, _LastEvent] = OrderedDict()
        self._is_writing = False

    def consider(self, args: ExtenderArgs) -> None:
        """Queues a pod whose requested nodes were all rejected. O(1); without effect on a replica that does not lead."""
        uid, now = args.pod.uid, self._clock.now()
        if not self._is_writing or uid in self._queued:
            return
        last = self._last.get(uid)
        if last is not None:
            last.rejections += 1
            if now - last.looked < LOOK_AGAIN_SECONDS:
                return
        self._queued.add(uid)
        dropped = self._queue.add(args.pod.namespace, (uid, now))
        if dropped is not None:
            self._queued.discard(dropped[0])
            self.results["suppressed"] += 1

    async def run(self) -> None:
        """Writes until cancelled, while this replica leads; what is queued then is dropped."""
        self._is_writing = True
        try:
            while True:
                uid, since = await self._queue.take()
                if (left := since + SETTLED_SECONDS - self._clock.now()) > 0:
                    await self._clock.sleep(left)
                self._queued.discard(uid)
                self.results[await self._review(uid)] += 1
        finally:
            self._is_writing = False
            self._queued.clear()
            while self._queue.pop() is not None:
                pass

    async def _review(self, uid: str) -> str:
        """Writes the event of a pod, where there is anything new to tell; returns the result."""
        if self._pending(uid) is None:
            self._forget(uid)
            return "outdated"
        while not self._tokens.take(self._clock.now()):
            await self._clock.sleep(REFILL_SECONDS)
        try:
            explanation = await self._explain(uid)
            note = rejection_note(explanation)
        except NotExplained:
            return "failed"
        except Exception:  # noqa: BLE001 (a bug, as of a rule; the other pods get their events)
            _LOG.exception("a rejection could not be explained", extra={"uid": uid})
            return "failed"
        # Read again, because the explanation took turns with other work: the pod may be bound by now.
        pod = self._pending(uid)
        if pod is None or explanation.preempting or not note:
            return "outdated"
        now, last = self._clock.now(), self._last.get(uid)
        if last is not None and last.note == note and now - last.written < REPEATED_AFTER_SECONDS:
            last.looked = now
            return "repeated"
        return await self._write(pod, note, last)

    async def _write(self, pod: Pod, note: str, last: _LastEvent | None) -> str:
        text = note
        if last is not None:
            text = f"{note} (rejected {times(last.rejections)} since the last such event)"
        event = ObjectEvent(PodRef.of(pod), "Warning", REASON, "Scheduling", text, self._utc_now())
        try:
            await self._writer.create_event(event)
        except KubeError as error:
            _LOG.debug("an event about a rejection failed", extra={"pod": pod.full_name, "error": str(error)})
            return "failed"
        self._remember(pod.uid, note)
        return "written"

    def _remember(self, uid: str, note: str) -> None:
        """Keeps the note until the pod is bound or deleted, or until `_MOST_KEPT` pods had a later event. O(1)."""
        shown = self._rejected.index.view.pod(uid)
        if shown is None or shown.node:  # since the event was sent
            self._forget(uid)
            return
        if uid not in self._last:
            self._rejected.index.pod_changes.subscribe(uid, self._observe)
        now = self._clock.now()
        self._last[uid] = _LastEvent(note, now, now)
        self._last.move_to_end(uid)
        if len(self._last) > _MOST_KEPT:
            self._forget(next(iter(self._last)))

    def _forget(self, uid: str) -> None:
        if self._last.pop(uid, None) is not None:
            self._rejected.index.pod_changes.unsubscribe(uid, self._observe)

    def _observe(self, change: IndexChange[Pod]) -> None:
        """A pod with a note has changed."""
        if change.old is not None and (change.new is None or change.new.node):
            self._forget(change.old.uid)

    def _pending(self, uid: str) -> Pod | None:
        """The pod, if it is unscheduled, ungated and not nominated."""
        pod = self._rejected.index.view.pod(uid)
        return pod if pod is not None and self._rejected.is_writable(pod) else None
