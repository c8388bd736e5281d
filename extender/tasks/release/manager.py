"""Releases groups of gated pods while this replica leads: decide, reserve, write the decision down, patch pod after pod.

The manager works on a group after each change of it, and on those that lack room after changes that free some. What it does
follows from the watch and from the written decisions alone (`verbs/release/progress.py`), so another leader continues at
any step. https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/3838-pod-mutable-scheduling-directives
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from extender.index.claims.reserved import Reservations
from extender.index.objects.changes import Subscribable
from extender.kube.effects import PodRef
from extender.kube.errors import KubeError
from extender.kube.timing import Clock
from extender.model.group_placements import GroupPlacement
from extender.model.release import Decision, GroupKey, OnTimeout, Phase, Replacement
from extender.tasks.fair_queue import GroupQueue
from extender.tasks.leader_election import LeadershipLost
from extender.tasks.release.decisions import Decisions, Expectations, GroupMemory, IndexGroups, ManagerOptions
from extender.tasks.release.reports import Reports
from extender.tasks.release.writes import PlacementWriter, PodReleaser, Result
from extender.telemetry.metrics import ReleaseMetrics
from extender.verbs.release.progress import Do, GroupState, Reason, Step, next_step

_LOG = logging.getLogger(__name__)
_WAITING: Final = frozenset({Phase.COLLECTING, Phase.DECIDING, Phase.TIMED_OUT, Phase.DEGRADED})
_WORKERS: Final = 16  # groups that wait for writes at a time; the writes have limits of their own
_ROOM_PAUSE: Final = 0.25  # changes that free room within this time lead to one try
_AFTER_FAILURE: Final = 10.0
_RESUME_SECONDS: Final = 0.5  # of a new leader, in one step; what is left is done group by group
_MOST_STEPS: Final = 4  # of one group in a row: decide, release, and say so


@dataclass(frozen=True, slots=True)
class Parts:
    """What the manager joins."""

    groups: IndexGroups
    shown: Iterable[GroupPlacement]
    decisions: Decisions
    reservations: Reservations
    placements: PlacementWriter
    pods: PodReleaser
    reports: Reports
    recorder: ReleaseMetrics


class ReleaseManager:
    """``run`` is one term. ``group_changes`` tell of group keys, ``placement_changes`` of objects, ``room_changes`` of room.

    ``catch_up`` waits until the watch has shown all objects that were written up to now.
    """

    def __init__(
        self,
        parts: Parts,
        clock: Clock,
        utc_now: Callable[[], datetime],
        group_changes: Subscribable,
        placement_changes: Subscribable,
        room_changes: Sequence[Subscribable],
        catch_up: Callable[[], Awaitable[None]],
        options: ManagerOptions | None = None,
    ) -> None:
        self._parts = parts
        self._clock = clock
        self._utc_now = utc_now
        self._options = options or ManagerOptions()
        self._group_changes = group_changes
        self._placement_changes = placement_changes
        self._room_changes = room_changes
        self._catch_up = catch_up
        self.sent = Expectations(self._options.expectation)
        self.expired = 0
        self.failures = 0
        self._queue = GroupQueue(clock)
        self._memory: dict[GroupKey, GroupMemory] = {}
        self._short_of_room: dict[GroupKey, None] = {}
        self._room = asyncio.Event()

    def oldest(self) -> float:
        """Seconds for which the group that waits longest has waited; 0 where none does. O(groups)."""
        waiting = [memory.since for memory in self._memory.values() if memory.is_waiting]
        return max(0.0, self._clock.now() - min(waiting)) if waiting else 0.0

    async def run(self) -> None:
        """Works until cancelled. Every run begins without a memory, as that of another leader would.

        What is known to be decided is reserved at once, and nothing is decided before all that an earlier leader decided is
        known: it may have released pods into room that looks free.
        """
        self._begin()
        await self._catch_up()
        self._begin()
        subscribed = [
            (self._group_changes, self._group_changed),
            (self._placement_changes, self._placement_changed),
            *((source, self._room_changed) for source in self._room_changes),
        ]
        for source, callback in subscribed:
            source.subscribe(callback)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._wake_those_short_of_room())
                places = asyncio.Semaphore(_WORKERS)
                while True:
                    await places.acquire()
                    key = await self._queue.take()
                    tasks.create_task(self._work(key, places))
        finally:
            for source, callback in subscribed:
                source.unsubscribe(callback)
            for key in self._memory:
                self._parts.reservations.release(key)
            self._memory.clear()  # a standby tells nothing about groups
            self._parts.reports.clear()

    def _begin(self) -> None:
        self._queue, self.sent = GroupQueue(self._clock), Expectations(self._options.expectation)
        self._memory.clear()
        self._short_of_room.clear()
        self._parts.decisions.lines.clear()
        self._parts.placements.forget()
        self._parts.reports.clear()
        self._parts.decisions.domains.clear()
        for placement in self._parts.shown:
            self._queue.add(placement.group)
        groups = [group for key in self._parts.groups if (group := self._parts.groups.of(key)) is not None]
        for group in groups:
            self._queue.add(group.key)
        end = self._clock.now() + _RESUME_SECONDS
        for reserve in (self._parts.decisions.keep_released, self._parts.decisions.has_room):
            for group in sorted(groups, key=lambda group: bool(group.bound)):
                if self._clock.now() < end:
                    self._resume(group, reserve)

    def _resume(self, group: GroupState, reserve: Callable[[GroupState, GroupMemory, Decision], object]) -> None:
        """Reserves room again for a group that an earlier leader decided, before any other pod is let through.

        Released pods are first, then groups of which nothing is bound, whose room was reserved. Pods that replace others
        are last: perhaps they had none.
        """
        try:
            memory = self._known(group)
            if memory.decision is not None and (group.released or group.waiting):
                reserve(group, memory, memory.decision)
        except Exception:  # noqa: BLE001 - as in `_work`, where the group is tried again
            self._failed(group.key)

    # -- what wakes it --------------------------------------------------------------------------------------------------

    def _group_changed(self, change: object) -> None:
        key = getattr(change, "new", None) or getattr(change, "old", None)
        if isinstance(key, GroupKey):
            self._queue.add(key)

    def _placement_changed(self, change: object) -> None:
        placement = getattr(change, "new", None) or getattr(change, "old", None)
        if isinstance(placement, GroupPlacement):
            self._parts.placements.observe(placement.group)
            self._queue.add(placement.group)

    def _room_changed(self, _change: object) -> None:
        if self._short_of_room or len(self._parts.decisions.lines):
            self._room.set()

    async def _wake_those_short_of_room(self) -> None:
        while True:
            await self._room.wait()
            self._room.clear()
            self._parts.decisions.lines.version += 1
            for key, when in self._parts.decisions.lines.next_of_all():
                self._queue.add_at(key, when)
            for key in list(self._short_of_room):
                memory = self._memory.get(key)
                if memory is not None:
                    self._queue.add_at(key, memory.next_try)
            await self._clock.sleep(_ROOM_PAUSE)

    # -- one group ------------------------------------------------------------------------------------------------------

    async def _work(self, key: GroupKey, places: asyncio.Semaphore) -> None:
        pods = 0
        try:
            self._expire_reservations()
            group = self._parts.groups.of(key)
            pods = 0 if group is None else group.ready
            await (self._ended(key) if group is None else self._release(group))
        except LeadershipLost:
            _LOG.info("another replica leads", extra={"group": str(key)})
        except Exception:  # noqa: BLE001 - logged and counted: what is wrong with one group must not keep all others gated
            self._failed(key)
            self._queue.add_at(key, self._clock.now() + _AFTER_FAILURE)
        finally:
            self._queue.done(key, pods)
            places.release()

    def _failed(self, key: GroupKey) -> None:
        _LOG.exception("a group cannot be worked on", extra={"group": str(key)})
        self.failures += 1

    async def _release(self, group: GroupState) -> None:
        memory = self._known(group)
        await self._resync(group)
        step = Step(Do.WAIT, Phase.COLLECTING, Reason.INCOMPLETE)
        for _ in range(_MOST_STEPS):
            self.sent.observe(group.key, (pod.uid for pod in group.waiting))
            memory.forget_pods({pod.uid for pod in group.waiting}, self._clock.now())
            skipped = self.sent.of(group.key)
            refused = {**memory.refused, **dict.fromkeys(memory.gone, "it does not exist any more")}
            step = next_step(group, memory.decision, skipped, refused)
            step = await self._do(group, memory, step)
            again = await self._parts.reports.report(group, memory, step)
            if again is not None:
                self._queue.add_at(group.key, again)
            if step.do is Do.WAIT:
                break
            found = self._parts.groups.of(group.key)
            if found is None:
                break
            group = found
        self._watch_time(group, memory, step)

    def _known(self, group: GroupState) -> GroupMemory:
        """What is remembered of a group. Its time counts from the creation of the oldest pod that waits."""
        now = self._clock.now()
        memory = self._memory.get(group.key)
        if memory is None:
            waited = (self._utc_now() - group.created).total_seconds() if group.created is not None else 0.0
            memory = self._memory[group.key] = GroupMemory(now, now - max(waited, 0.0))
            stored = self._parts.placements.find(group.key)
            memory.decision = stored.decision if stored is not None else None
            if memory.decision is not None:
                memory.since = now
                self._parts.decisions.domains[group.key] = memory.decision.levels
        memory.emptied = None
        return memory

    async def _do(self, group: GroupState, memory: GroupMemory, step: Step) -> Step:
        decisions = self._parts.decisions
        now = self._clock.now()
        sent = self.sent.of(group.key)
        group = (
            replace(group, waiting=(*step.pods, *(pod for pod in group.waiting if pod.uid in sent)))
            if step.pods
            else group
        )
        if memory.was_bound and step.phase is not Phase.BOUND:
            memory.was_bound, memory.since = False, now
        is_late = memory.is_late(now, group.spec.decision_timeout)
        if step.do is Do.RELEASE and memory.decision is not None:
            problem = decisions.has_room(group, memory, memory.decision)
            if not problem:
                return await self._patch(group, memory, memory.decision, step)
            step = await self._without_room(group, memory, problem, is_late=is_late)
        elif step.do is Do.DECIDE:
            step = await decisions.decide(group, memory)
        elif memory.decision is None and is_late and group.waiting:
            if group.spec.on_timeout is not OnTimeout.KEEP_GATED:  # a group that never fills
                return await decisions.let_go(group, memory)
        elif memory.decision is not None and group.released:
            step = self._keep_room(group, memory, memory.decision, step)
        if step.do is Do.WAIT and is_late and step.phase not in {Phase.BOUND, Phase.RELEASING}:
            step = decisions.keep_gated(group, memory, step)
        return step

    def _keep_room(self, group: GroupState, memory: GroupMemory, decision: Decision, step: Step) -> Step:
        """Pods are released and not bound: their room is reserved, for as long as the settings allow."""
        if memory.has_expired:
            text = f"{len(group.released)} released pods are not bound, and their room is not reserved any more"
            return Step(Do.WAIT, Phase.DEGRADED, Reason.NOT_BOUND, text)
        problem = self._parts.decisions.has_room(group, memory, decision)
        return Step(Do.WAIT, Phase.DEGRADED, Reason.DOMAIN_FULL, problem) if problem else step

    async def _without_room(self, group: GroupState, memory: GroupMemory, problem: str, *, is_late: bool) -> Step:
        """The decided domain does not hold the pods that are left: it was lost, or others took what nothing had reserved.

        A released pod cannot be moved, and a group is never split. So the group gets another domain only while none of
        its pods has been released, or all that were are gone.
        """
        is_out = group.released or group.bound or self.sent.of(group.key)
        may_move = group.spec.replacement is Replacement.REDECIDE or not memory.is_placed or memory.tries > 1
        if not is_out and may_move:
            return await self._parts.decisions.decide(group, memory)
        if is_late and group.spec.on_timeout is not OnTimeout.KEEP_GATED:
            memory.without_room = True
            self._parts.recorder.record_timeout(str(group.spec.on_timeout))
            return Step(Do.RELEASE, Phase.DEGRADED, Reason.DOMAIN_FULL, problem)
        return Step(Do.WAIT, Phase.DEGRADED, Reason.DOMAIN_FULL, problem)

    async def _patch(self, group: GroupState, memory: GroupMemory, decision: Decision, step: Step) -> Step:
        """Releases the pods of a step, each with a patch of its own. They count as released from before the first one."""
        memory.has_expired = False
        until = self.sent.expect(group.key, (pod.uid for pod in step.pods), self._clock.now())
        self._queue.add_at(group.key, until)
        outcomes = await asyncio.gather(*(self._parts.pods.release(PodRef.of(pod), decision) for pod in step.pods))
        failed = ""
        for pod, (result, error) in zip(step.pods, outcomes, strict=True):
            self._parts.recorder.record_patch(str(result))
            if result in {Result.RELEASED, Result.ALREADY, Result.UNKNOWN}:
                continue  # the watch shows it, or the pod is read when the expectation expires
            self.sent.clear(group.key, pod.uid)
            if result is Result.GONE:
                memory.gone.add(pod.uid)
            elif result is Result.REFUSED:
                self._queue.add_at(group.key, memory.refuse(pod.uid, error, self._clock.now()))
                _LOG.warning("a release was refused", extra={"pod": pod.full_name, "error": error})
            else:
                failed = f"{pod.name}: {error}"
        if failed:
            memory.problem = failed
            self._queue.add_at(group.key, memory.wait(self._clock.now()))
            return Step(Do.WAIT, Phase.DEGRADED, Reason.FAILED, failed)
        memory.progress(self._clock.now())
        if not memory.is_placed and len(step.pods) + len(group.released) + len(group.bound) >= decision.size:
            memory.is_placed = True
            self._parts.recorder.record_wait(self._clock.now() - memory.first_seen)
        return Step(Do.RELEASE, Phase.RELEASING, Reason.RELEASING, step.message)

    async def _resync(self, group: GroupState) -> None:
        """Reads the pods whose expectation has expired: the event may be lost, or the patch."""
        by_uid = {pod.uid: pod for pod in group.waiting}
        for uid in self.sent.late(group.key, self._clock.now()):
            pod = by_uid.get(uid)
            self.expired += 1
            try:
                is_gated = pod is not None and await self._parts.pods.is_gated(PodRef.of(pod), group.spec.gate)
            except KubeError:
                is_gated = False  # unknown: it counts as released for as long again
            if is_gated or is_gated is None:
                self.sent.clear(group.key, uid)
            else:
                self._queue.add_at(group.key, self.sent.expect(group.key, [uid], self._clock.now()))

    def _watch_time(self, group: GroupState, memory: GroupMemory, step: Step) -> None:
        """Comes back when there is something to try again or when the time of the group is over."""
        memory.is_waiting = step.phase in _WAITING
        if step.phase is Phase.BOUND and not memory.was_bound:
            memory.was_bound, memory.has_expired = True, False
            self._room_changed(None)  # its namespace may have room reserved for another group now
        if step.reason is Reason.DOMAIN_FULL or group.released:  # those may lose their nodes
            self._short_of_room[group.key] = None
        else:
            self._short_of_room.pop(group.key, None)
        if step.reason not in {Reason.NO_ROOM, Reason.BUDGET}:
            self._parts.decisions.lines.leave(group.key)
        following = self._parts.decisions.lines.next_of(group.key.namespace)
        if following is not None:
            self._queue.add_at(*following)
        if step.reason in {Reason.NOT_WRITTEN, Reason.DOMAIN_FULL}:
            self._queue.add_at(group.key, memory.next_try)
        over = memory.since + group.spec.decision_timeout
        if step.phase is not Phase.BOUND and over > self._clock.now():
            self._queue.add_at(group.key, over)
        if memory.reserved_until > self._clock.now() and group.released:
            self._queue.add_at(group.key, memory.reserved_until)

    def _expire_reservations(self) -> None:
        for key in self._parts.reservations.expire(self._clock.now()):
            _LOG.warning("reserved room has expired", extra={"group": str(key)})
            if key in self._memory:
                self._memory[key].has_expired = True
            self._queue.add(key)

    async def _ended(self, key: GroupKey) -> None:
        """No pod of the group is left. Its decision stays for a while, as its owner may replace all of them."""
        now = self._clock.now()
        self.sent.observe(key, ())
        self._parts.reservations.release(key)
        self._parts.decisions.domains.pop(key, None)
        self._short_of_room.pop(key, None)
        self._parts.reports.forget(key)
        self._parts.decisions.lines.leave(key)
        following = self._parts.decisions.lines.next_of(key.namespace)
        if following is not None:
            self._queue.add_at(*following)
        memory = self._memory.setdefault(key, GroupMemory(now, now))
        if memory.emptied is None:
            memory.emptied, memory.is_waiting = now, False
        if now < memory.emptied + self._options.keep_empty:
            self._queue.add_at(key, memory.emptied + self._options.keep_empty)
            return
        try:
            await self._parts.placements.delete(key)
        except LeadershipLost:
            raise
        except KubeError as error:
            _LOG.warning("an object cannot be deleted", extra={"group": str(key), "error": str(error)})
            self._queue.add_at(key, memory.wait(now))
            return
        del self._memory[key]
