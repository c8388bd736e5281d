"""Manages preemptions from the plan to the binding of the preemptor.

One record per preemptor. Its phases: *executing* (the writes are being made), *terminating* (victims still exist),
*unbound* (the victims are deleted, the preemptor is not bound yet). Where the writes fail, or the preemptor stays pending
too long, its nomination is cleared and it is requeued, and the scheduler begins again.

The index holds an in-memory nomination from `submit` until the preemptor is bound or given up, so that verbs never see the
node free in between, whatever the scheduler makes of the status. What must survive a restart is stored in the cluster (nomination,
DisruptionTarget), and `recover` reads it from there. KEP-4832.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from heapq import nsmallest
from typing import Final

from extender.index.cluster import ClusterIndex
from extender.index.view import ClusterView
from extender.kube.timing import Clock
from extender.model.objects import Pod
from extender.model.preemption import PreemptionPlan
from extender.tasks.preemption.executor import (
    ForbiddenByBudgetError,
    GaveUpError,
    PreemptionExecutor,
    PreemptorNotPendingError,
)
from extender.tasks.sliced_work import Traffic
from extender.telemetry.metrics import PreemptionMetrics
from extender.verbs.dry_run import DryRun, is_forbidden, keeps_room, node_being_cleared, violating_budgets
from extender.verbs.effective_pod import known_effective_pod

_LOG = logging.getLogger(__name__)
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0
_NEVER: Final = float("inf")

FollowUp = Coroutine[None, None, None]


@dataclass(frozen=True, slots=True)
class _Entry:
    """One preemptor: ``at`` is the monotonic time of its next requeue, ``wait`` the seconds before it.

    ``refused``: the victims whose eviction budgets forbid. They are checked again when ``version`` has changed.
    """

    pod: Pod
    node: str
    at: float
    wait: float
    refused: tuple[Pod, ...] = ()
    version: int = -1


@dataclass(eq=False, slots=True)
class PreemptorRequeuer:
    """Requeues preemptors that could not be helped, with a wait that doubles each time.

    kube-scheduler does not repeat a preemption attempt before something changes, and it does not watch disruption budgets.
    Three cases:

    1. No offered candidate helped, and the settings forbid other nodes.
    2. An earlier leader left a nomination without victims.
    3. Budgets forbade the evictions: the preemptor waits until the budgets allow them.

    ``has_preemption``: whether a preemption runs for a UID. Such a pod is skipped.
    """

    view: ClusterView
    executor: PreemptionExecutor
    clock: Clock
    has_preemption: Callable[[str], bool]
    _entries: dict[str, _Entry] = field(default_factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, pod: Pod, node: str) -> None:
        """Requeues the pod after a wait, which doubles with each call until the pod is bound or deleted. O(1)."""
        known = self._entries.get(pod.uid)
        wait = min(known.wait * 2, _LONGEST_WAIT) if known is not None else _FIRST_WAIT
        self._entries[pod.uid] = _Entry(pod, node, self.clock.now() + wait, wait)

    def add_when_allowed(self, plan: PreemptionPlan) -> None:
        """Requeues the preemptor once disruption budgets allow to evict the victims, at the earliest after a wait. O(1)."""
        pod = plan.preemptor
        known = self._entries.get(pod.uid)
        if known is None or not known.refused:
            self.add(pod, plan.node)
            names = [victim.full_name for victim in plan.victims]
            _LOG.info("evictions forbidden by budgets", extra={"preemptor": pod.full_name, "victims": names})
        self._entries[pod.uid] = replace(self._entries[pod.uid], refused=plan.victims, version=-1)

    def is_refused(self, uid: str) -> bool:
        """Whether an eviction was refused so shortly ago that no plan for this pod may try again. O(1)."""
        known = self._entries.get(uid)
        return known is not None and bool(known.refused) and self.clock.now() < known.at

    def _is_allowed(self, entry: _Entry) -> bool:
        """Whether budgets allow the evictions that they forbade. O(victims × budgets) after a change of budgets, else O(1)."""
        version = self.view.claims_version
        if not entry.refused:
            return True
        if entry.version == version:
            return False
        there = [pod for victim in entry.refused if (pod := self.view.pod(victim.uid)) is not None]
        self._entries[entry.pod.uid] = replace(entry, version=version)
        return not is_forbidden(there, self.view)

    def sweep(self) -> list[FollowUp]:
        """The requeues that are due now. An entry stays until its pod is bound, so that the wait goes on doubling. O(entries)."""
        due = []
        for uid, entry in list(self._entries.items()):
            pod = self.view.pod(uid)
            if pod is None or pod.node or pod.terminating:
                del self._entries[uid]
            elif entry.at <= self.clock.now() and self._is_allowed(entry):
                self._entries[uid] = replace(entry, at=_NEVER, refused=())
                if not self.has_preemption(uid) and not node_being_cleared(pod, self.view):
                    due.append(self._requeue(entry))
        return due

    async def _requeue(self, entry: _Entry) -> None:
        try:
            await self.executor.requeue(entry.pod, entry.node)
        except GaveUpError as error:
            _LOG.warning("preemptor not requeued", extra={"pod": entry.pod.full_name, "error": str(error)})
            self.add(entry.pod, entry.node)


_SWEEP_SECONDS: Final = 0.2
# Right after our answer kube-scheduler writes the condition PodScheduled of the preemptor. If the nomination came at the same
# moment, one of the two writes would conflict and be repeated. Until then the in-memory nomination keeps the node.
_HEAD_START: Final = 0.05
_RENOMINATE_AFTER: Final = 1.0  # longer than the watch takes to show a nomination
_LOST_AFTER: Final = 0.4  # longer than an assumption whose binding fails at once
_MOST_CHECKED: Final = 20  # nodes in one sweep, at about 100 us each


class PreemptionPhase(Enum):
    """The phase of a preemption."""

    EXECUTING = "executing"
    TERMINATING = "victims terminating"
    UNBOUND = "preemptor unbound"


@dataclass(slots=True)
class PreemptionRecord:
    """One preemption.

    ``since``: when its phase began.
    ``displaced``: a pod of higher priority was nominated to the node.
    ``violating``: the UIDs of the victims whose disruption budgets do not allow their deletion.
    ``is_explained``: the plan makes room by the counts of the index too. If not, the index lags behind the scheduler, and its
    counts do not prove a loss of the room while victims exist.
    ``checked``: when the room was last checked.
    ``lost_since``: since when the node has no room for the preemptor, even after all victims have left.
    """

    plan: PreemptionPlan
    begun: float
    since: float
    phase: PreemptionPhase = PreemptionPhase.EXECUTING
    displaced: bool = False
    requeued: bool = False
    renominations: int = 0
    violating: Collection[str] = ()
    is_explained: bool = False
    checked: float = 0.0
    lost_since: float = _NEVER


def _is_nominated(record: PreemptionRecord, pod: Pod) -> bool:
    """Whether the status has the nomination, or need not have it."""
    return record.displaced or pod.nominated_node == record.plan.node


class PreemptionManager:
    """All preemptions. ``submit`` and the readers are synchronous; ``run`` does the work."""

    def __init__(
        self,
        index: ClusterIndex,
        executor: PreemptionExecutor,
        clock: Clock,
        observer: PreemptionMetrics,
        stuck_after: float,
        traffic: Traffic | None = None,
    ) -> None:
        self._traffic = traffic or Traffic(clock)
        self._index = index
        self._executor = executor
        self._clock = clock
        self._observer = observer
        self._stuck_after = stuck_after
        self._records: dict[str, PreemptionRecord] = {}
        self._queue: asyncio.Queue[PreemptionRecord] = asyncio.Queue()
        self._requeuer = PreemptorRequeuer(index.view, executor, clock, self._records.__contains__)
        self._stuck: set[str] = set()
        self._changed = asyncio.Event()
        self._is_draining = False

    def in_flight(self) -> list[PreemptionRecord]:
        """The preemptions whose preemptor is not bound yet."""
        return list(self._records.values())

    # -- plans -----------------------------------------------------------------------------------------------

    def submit(self, plan: PreemptionPlan) -> bool:
        """Accepts a plan, or returns False. O(displaced + victims)."""
        # Refused: (1) during shutdown; (2) while a plan for the same pod is being executed; (3) if victims are evicted and
        # disruption budgets forbid it. In case 3 the preemptor is requeued once the budgets allow the evictions.
        #
        # The in-memory nomination comes first of all writes, and in this step: a request that is decided next must not see
        # the node free. Nominations that the plan displaces are released in the same step for the same reason.
        uid = plan.preemptor.uid
        known = self._records.get(uid)
        if self._is_draining or (known is not None and known.phase is PreemptionPhase.EXECUTING):
            return False
        if self._executor.evicts and (self._requeuer.is_refused(uid) or is_forbidden(plan.victims, self._index.view)):
            self._requeuer.add_when_allowed(plan)
            return False
        if known is not None:
            self._close(known, "replaced")
        now = self._clock.now()
        self._observer.record_start(self._additional_victims(plan))
        leaving = [victim for victim in plan.victims if not victim.terminating]  # the others are deleted already
        violating = {victim.uid for victim in violating_budgets(leaving, self._index.view)}
        record = self._records[uid] = PreemptionRecord(plan, now, now, violating=violating)
        self._index.nominate_in_memory(plan.preemptor, plan.node, {victim.uid for victim in plan.victims})
        for lower in plan.displaced:
            if lower.uid in self._records:
                self._records[lower.uid].displaced = True
                self._index.release_nomination(lower.uid)
        record.is_explained = self._keeps_room(plan.preemptor, plan.node)
        self._queue.put_nowait(record)
        return True

    def _additional_victims(self, plan: PreemptionPlan) -> int:
        """How many victims only this plan deletes: they are not terminating, and no other plan removes them."""
        view = self._index.view
        leaving = {pod.uid for pod in view.leaving(plan.node)}
        shown = [pod for victim in plan.victims if (pod := view.pod(victim.uid)) is not None]
        return sum(not pod.terminating and pod.uid not in leaving for pod in shown)

    def requeue(self, pod: Pod, node: str) -> None:
        """Requeues a pod for which no plan was possible, after a while."""
        self._requeuer.add(pod, node)

    # -- execution ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Executes submitted plans side by side and reviews the executed ones, until cancelled.

        At the end all records are deleted: the next leader may continue the preemptions, and `recover` finds their state.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._sweep_repeatedly(group))
                group.create_task(self._executor.recorder.run(), name="events of preemptions")
                while True:
                    record = await self._queue.get()
                    name = f"preemption for {record.plan.preemptor.full_name}"
                    group.create_task(self._execute(record), name=name)
        finally:
            self._queue = asyncio.Queue()
            for record in list(self._records.values()):
                self._close(record, "cancelled")

    async def make_room(self, pod: Pod, victims: Sequence[Pod]) -> bool:
        """Removes victims for a group of gated pods; False if a victim could not be removed. ``pod``: a pod of the group.

        There is no record and no nomination, because the room is reserved for the group (`index/claims/reserved.py`).
        """
        if self._is_draining or not victims or (self._executor.evicts and is_forbidden(victims, self._index.view)):
            return False
        plan, begun, result = PreemptionPlan(pod, "", tuple(victims)), self._clock.now(), "success"
        names = [victim.full_name for victim in victims]
        _LOG.info("preempting for a group", extra={"preemptor": pod.full_name, "victims": names})
        self._observer.record_start(sum(not victim.terminating for victim in victims))
        try:
            await self._executor.clear(plan)
        except PreemptorNotPendingError:
            result = "abandoned"
        except GaveUpError as error:
            result = "forbidden" if isinstance(error, ForbiddenByBudgetError) else "error"
            _LOG.warning("preemption failed", extra={"preemptor": pod.full_name, "error": str(error)})
        self._observer.record_execution(result, self._clock.now() - begun)
        return result == "success"

    async def drain(self) -> None:
        """Accepts no further plan; returns when every execution has ended and its events are written."""
        self._is_draining = True
        while any(record.phase is PreemptionPhase.EXECUTING for record in self._records.values()):
            self._changed.clear()
            await self._changed.wait()
        await self._executor.recorder.flush()

    async def _execute(self, record: PreemptionRecord) -> None:
        plan, result = record.plan, "cancelled"
        fields = {"preemptor": plan.preemptor.full_name, "node": plan.node, "victims": len(plan.victims)}
        _LOG.info("preempting", extra=fields)
        try:
            await self._clock.sleep(_HEAD_START)
            await self._executor.execute(plan, lambda victim: self._count_violation(record, victim))
            result = "success"
        except PreemptorNotPendingError:
            result = "abandoned"
        except ForbiddenByBudgetError:
            result = "forbidden"
            self._requeuer.add_when_allowed(plan)
        except GaveUpError as error:
            result = "error"
            _LOG.warning("preemption failed", extra=fields | {"error": str(error)})
        except Exception:  # noqa: BLE001 - a bug in one plan must not end the others; it is logged and counted, the pod released
            result = "error"
            _LOG.exception("preemption failed", extra=fields)
        finally:
            self._observer.record_execution(result, self._clock.now() - record.begun)
            self._after(record, result)
        if result in ("error", "forbidden"):
            await self._release(record, requeues=result == "error")

    def _count_violation(self, record: PreemptionRecord, victim: Pod) -> None:
        if victim.uid in record.violating:
            self._observer.record_violation()

    def _after(self, record: PreemptionRecord, result: str) -> None:
        """Moves a record to its next phase when its writes have ended."""
        record.since = self._clock.now()
        if result == "success":
            record.phase = PreemptionPhase.TERMINATING
        else:
            self._close(record, {"error": "failed"}.get(result, result))
        self._changed.set()

    async def _release(self, record: PreemptionRecord, *, requeues: bool = True) -> None:
        """Clears the nomination and requeues the preemptor; retries later where the API server does not accept it."""
        pod = record.plan.preemptor
        try:
            await self._executor.release(record.plan, requeues=requeues)
        except GaveUpError as error:
            _LOG.warning("nomination not cleared", extra={"preemptor": pod.full_name, "error": str(error)})
            self.requeue(pod, record.plan.node)

    def _close(self, record: PreemptionRecord, outcome: str) -> None:
        """Deletes a record, and its in-memory nomination with it."""
        uid = record.plan.preemptor.uid
        if self._records.get(uid) is record:
            del self._records[uid]
            self._index.end_nomination(uid)
            self._observer.record_end(outcome, self._clock.now() - record.begun)

    # -- review --------------------------------------------------------------------------------------------------

    async def _sweep_repeatedly(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._clock.sleep(_SWEEP_SECONDS)
            for follow_up in self.sweep():
                group.create_task(follow_up)

    def sweep(self) -> list[FollowUp]:
        """Reviews every executed preemption and the preemptors to requeue; returns the work to do. O(records)."""
        looked_at = [record for record in self._records.values() if record.phase is not PreemptionPhase.EXECUTING]
        for record in nsmallest(_MOST_CHECKED, looked_at, key=lambda record: record.checked):
            self._check_room(record)
        follow_ups = [follow_up for record in looked_at if (follow_up := self._review(record)) is not None]
        self._stuck = {uid for uid in self._stuck if self._is_pending(uid)}
        return follow_ups + self._requeuer.sweep()

    def _is_pending(self, uid: str) -> bool:
        pod = self._index.view.pod(uid)
        return pod is not None and not pod.node and not pod.terminating

    def _review(self, record: PreemptionRecord) -> FollowUp | None:
        # 1. The preemptor is bound, terminating or deleted: the record is closed.
        # 2. The node has no room for it any more, and that lasts: the preemption ends, so that the node is free at once.
        # 3. Victims still exist: see `_review_victims`.
        # 4. All victims are deleted and the preemptor waited too long: given up, because the scheduler rejects the node for
        #    a reason that the index does not show.
        # 5. The scheduler nominated the pod to another node: the in-memory nomination ends, and the pod is requeued if the
        #    scheduler does not ask about it.
        # 6. Otherwise: the nomination is repeated if the watch does not show it, or the pod is requeued as in case 5.
        uid = record.plan.preemptor.uid
        pod = self._index.view.pod(uid)
        if pod is None or not self._is_pending(uid):
            self._close(record, "bound" if pod is not None and pod.node else "deleted")
            return None
        has_waited = self._clock.now() - record.since
        if record.checked - record.lost_since >= _LOST_AFTER:
            return self._end_lost(record, pod)
        if record.phase is PreemptionPhase.TERMINATING:
            return self._review_victims(record, pod, has_waited)
        if has_waited > self._stuck_after:
            return self._give_up(record)
        if pod.nominated_node not in ("", record.plan.node):
            self._index.release_nomination(uid)
            return self._requeue_overdue(record, has_waited)
        return self._renominate_overdue(record, pod, has_waited) or self._requeue_overdue(record, has_waited)

    def _check_room(self, record: PreemptionRecord) -> None:
        """Records since when the node would not take the preemptor, even without the pods that leave it. O(dry run).

        A preemptor that passed filter is an assumed pod and holds its room itself: nothing is lost then.
        """
        plan, view = record.plan, self._index.view
        record.checked = self._clock.now()
        pod = view.pod(plan.preemptor.uid)
        is_lost, may_tell = False, record.is_explained or record.phase is PreemptionPhase.UNBOUND
        if may_tell and pod is not None and pod.uid not in self._index.assumed.held:
            is_lost = not self._keeps_room(pod, plan.node)
        record.lost_since = min(record.lost_since, record.checked) if is_lost else _NEVER

    def _keeps_room(self, pod: Pod, node: str) -> bool:
        return keeps_room(known_effective_pod(pod, self._index.view), node, self._index.view)

    def _requeue_overdue(self, record: PreemptionRecord, has_waited: float) -> FollowUp | None:
        """Requeues a preemptor, once, if the scheduler does not ask about it after its victims are deleted.

        A scheduler without QueueingHints ignores a nomination that is written after the last victim was deleted.
        """
        pod = record.plan.preemptor
        if record.requeued or pod.uid in self._index.assumed.held or not self._traffic.is_overdue(has_waited):
            return None
        record.requeued = True
        return self._requeue_nominated(pod)

    async def _requeue_nominated(self, pod: Pod) -> None:
        try:
            await self._executor.requeue_nominated(pod)
        except GaveUpError as error:
            _LOG.warning("preemptor not requeued", extra={"preemptor": pod.full_name, "error": str(error)})

    def _review_victims(self, record: PreemptionRecord, pod: Pod, has_waited: float) -> FollowUp | None:
        # 1. No victim is left: the next phase begins.
        # 2. The preemptor is nominated and all victims terminate: their grace periods may be long, so it waits without limit.
        # 3. A victim does not terminate, or the nomination is missing: given up after `stuck_after`; before that the
        #    nomination is repeated.
        plan = record.plan
        here = [shown for victim in plan.victims if (shown := self._index.view.pod(victim.uid)) is not None]
        if not here:
            record.phase, record.since = PreemptionPhase.UNBOUND, self._clock.now()
            return None
        if _is_nominated(record, pod) and all(victim.terminating for victim in here):
            return None
        return (
            self._give_up(record)
            if has_waited > self._stuck_after
            else self._renominate_overdue(record, pod, has_waited)
        )

    def _renominate_overdue(self, record: PreemptionRecord, pod: Pod, has_waited: float) -> FollowUp | None:
        """Repeats a nomination that the watch does not show, or shows no longer.

        kube-scheduler clears the nomination if it finds no candidate. That happens while our watch lags: the scheduler knows
        that the victims are deleted and has nothing to preempt, and our answer still rejects the node.
        """
        if _is_nominated(record, pod) or has_waited <= _RENOMINATE_AFTER * (record.renominations + 1):
            return None
        record.renominations += 1
        return self._nominate_again(record)

    def _end_lost(self, record: PreemptionRecord, pod: Pod) -> FollowUp | None:
        """Ends a preemption whose node has no room for the preemptor any more, so that other pods get the node at once."""
        plan = record.plan
        _LOG.info("preemptor has lost its room", extra={"preemptor": pod.full_name, "node": plan.node})
        self._close(record, "lost")
        return None if pod.nominated_node not in ("", plan.node) else self._requeue_lost(record, pod)

    async def _requeue_lost(self, record: PreemptionRecord, pod: Pod) -> None:
        """Requeues the preemptor, and the pods that its in-memory nomination has kept off the node.

        kube-scheduler tries those pods again when it sees a nomination end. If it cleared the nomination itself, that was
        before the in-memory one ended: so a nomination is written and cleared once more.
        """
        if pod.nominated_node:
            await self._release(record)
            return
        try:
            await self._executor.requeue(pod, record.plan.node)
        except GaveUpError as error:
            _LOG.warning("preemptor not requeued", extra={"preemptor": pod.full_name, "error": str(error)})
            self.requeue(pod, record.plan.node)

    def _give_up(self, record: PreemptionRecord) -> FollowUp:
        """Ends a preemption whose preemptor stays pending after all writes; the metric ``stuck`` counts it."""
        pod = record.plan.preemptor
        _LOG.warning("preemptor still pending", extra={"preemptor": pod.full_name, "node": record.plan.node})
        self._stuck.add(pod.uid)
        self._close(record, "stuck")
        return self._release(record)

    async def _nominate_again(self, record: PreemptionRecord) -> None:
        """Repeats the nomination, which the scheduler has cleared or the watch does not show yet. A repetition is harmless."""
        try:
            await self._executor.nominate(record.plan, self._clock.now() + self._stuck_after)
        except (GaveUpError, PreemptorNotPendingError) as error:
            _LOG.warning(
                "not nominated again", extra={"preemptor": record.plan.preemptor.full_name, "error": str(error)}
            )

    # -- after a restart ----------------------------------------------------------------------------------------

    def recover(self) -> int:
        """Resumes the preemptions that an earlier leader left unfinished; returns how many. Call once, with a synced index.

        A preemption is unfinished if the preemptor is nominated and marked victims still run on that node.
        """
        # 1. Marked victims, and one does not terminate yet: the plan is submitted again. The earlier leader may not have
        #    marked all victims, so further victims that the preemptor needs are added.
        # 2. It would not fit even so: requeued.
        # 3. Nominated, no marked victim, and pods of lower priority run there: the earlier leader had just begun. Requeued.
        # 4. Marks without a nominated pod of higher priority are ignored: their preemptor is bound or deleted.
        view = self._index.view
        taken: set[str] = set()
        resumed = 0
        for node, nominated in list(view.nominated.items()):
            number = view.known.get(node)
            here = view.pods_on(number).values() if number is not None else ()
            for pod in sorted(nominated.values(), key=lambda preemptor: -preemptor.priority):
                lower = [other for other in here if other.priority < pod.priority]
                marked = tuple(victim for victim in lower if victim.preempted and victim.uid not in taken)
                is_begun = any(not victim.terminating for victim in marked)
                victims = self._completed(pod, node, marked) if is_begun else ()
                if victims:
                    taken |= {victim.uid for victim in victims}
                    resumed += self.submit(PreemptionPlan(pod, node, victims))
                elif is_begun or (lower and not marked):
                    self.requeue(pod, node)
        return resumed

    def _completed(self, pod: Pod, node: str, marked: Sequence[Pod]) -> tuple[Pod, ...]:
        """The marked victims, and further victims that have to leave the node; empty if the preemptor would not fit even then."""
        view = self._index.view
        removal = DryRun(known_effective_pod(pod, view), view).on(view.known[node], marked, checks_fit=True)
        return () if removal is None else removal.victims

    # -- metrics -------------------------------------------------------------------------------------------------

    def statistics(self) -> dict[str, int]:
        """How many preemptions are in each phase, how many are stuck, and how many preemptors wait to be requeued."""
        phases = [record.phase for record in self._records.values()]
        result = {phase.name.lower(): phases.count(phase) for phase in PreemptionPhase}
        return result | {"stuck": len(self._stuck), "to_requeue": len(self._requeuer)}
