"""Releases groups of gated pods while this replica leads.

One loop reads a group, has its step chosen, and writes one thing. It works on a group after each change of the group, and on a
group without room after each change that frees room. Each step follows from the watch and from the written decisions alone
(`verbs/release/progress.py`), so another leader continues at any step.
https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/3838-pod-mutable-scheduling-directives
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from extender.index.claims.assumed import Assumed
from extender.index.cluster import ClusterIndex
from extender.index.objects.changes import Subscribable
from extender.kube.errors import KubeError
from extender.kube.timing import Clock
from extender.model.group_placements import GroupPlacement
from extender.model.objects import Pod
from extender.model.release import GroupDecision, GroupKey, GroupPhase
from extender.model.units import counted
from extender.settings.policies import Release
from extender.tasks.events import EventRecorder
from extender.tasks.fair_queue import DecisionLines, GroupQueue
from extender.tasks.leader_election import LeadershipLost
from extender.tasks.release.choosing import NO_PLACE, Propose, StepChooser, claim_of
from extender.tasks.release.groups import GroupMemory, Hold, Memories, group_state
from extender.tasks.release.writes import PlacementWriter, PodReleaser, StepWriter
from extender.telemetry.metrics import ReleaseMetrics
from extender.verbs.release.progress import Do, GroupState, GroupStep, WaitReason, next_step
from extender.verbs.release.states import (
    NO_PODS,
    AllBound,
    Chosen,
    Decided,
    Emptied,
    Expired,
    NoneAsked,
    NotWritten,
    Observed,
    PlacementDeleted,
    PodsCame,
    PodsDeleted,
    ReservationEnded,
    Resumed,
    Unanswered,
    Unasked,
    VictimsGone,
    claimed_until,
    read_back,
)

_LOG = logging.getLogger(__name__)
_WORKERS: Final = 16  # groups that wait for writes at a time; the writes have limits of their own
_AFTER_FAILURE: Final = 10.0
# `_begin` reserves room for decided groups for so many seconds. The remaining groups wait for their turn in `_work`.
_RESUME_SECONDS: Final = 0.5
_STALE_SECONDS: Final = 0.5  # between looks while changes are missed
_ROOM_PAUSE: Final = 0.25  # changes that free room within this time lead to one try
_MOST_STEPS: Final = 4  # of one group in a row: decide, release, and say so


async def removes_nothing(_pod: Pod, _victims: Sequence[Pod]) -> bool:
    """The default of ``remove``: for settings that execute no preemption."""
    return False


class GroupReconciler:
    """``run`` is one term.

    ``has_node``: whether pods may go to a node, by its name.
    ``catch_up``: waits until the watch has shown all objects that were written up to now.
    ``remove``: preempts pods for a gated pod; False if that fails.
    ``is_stale``: the watches miss changes now. No domain is chosen then, because a group would get room that is taken, or
    preempt pods although there is room.
    """

    def __init__(
        self,
        index: ClusterIndex,
        placements: PlacementWriter,
        pods: PodReleaser,
        propose: Propose,
        has_node: Callable[[str], bool],
        events: EventRecorder,
        recorder: ReleaseMetrics,
        clock: Clock,
        utc_now: Callable[[], datetime],
        settings: Release,
        catch_up: Callable[[], Awaitable[None]],
        remove: Callable[[Pod, Sequence[Pod]], Awaitable[bool]] = removes_nothing,
        is_stale: Callable[[], bool] = lambda: False,
    ) -> None:
        self.failures = 0
        self._index = index
        self._placements = placements
        self._clock = clock
        self._utc_now = utc_now
        self._settings = settings
        self._catch_up = catch_up
        self._remove = remove
        self._is_stale = is_stale
        self._queue = GroupQueue(clock)
        self._writer = StepWriter(
            placements, pods, index, events, recorder, clock, utc_now, settings, self._queue.add_at
        )
        self._lines = DecisionLines()  # undecided groups that wait for room
        self._short: dict[GroupKey, None] = {}  # decided groups that lack room, or may lose it
        self._freed = asyncio.Event()
        self.memory = Memories()
        self._chooser = StepChooser(index, self.memory, self._lines, propose, has_node, recorder, clock, settings)

    @property
    def expired(self) -> int:
        """How many releases were not seen in time."""
        return self._writer.expired

    # -- a term ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Works until cancelled. Each run begins without a memory, like a run of another leader."""
        # 1. `_begin` reserves room for the groups that the index shows as decided: requests are answered meanwhile.
        # 2. `_catch_up`: no group is decided before all decisions of the earlier leader are known, because it may have
        #    released pods into room that looks free.
        # 3. `_begin` again, for the decisions and the released pods that came with step 2.
        # 4. Room that could not be reserved within `_RESUME_SECONDS` may go to other groups before the group's own turn.
        index = self._index
        subscribed: list[tuple[Subscribable, Callable[[object], None]]] = [
            (index.gated.changes, self._group_changed),
            (index.placements.changes, self._placement_changed),
            (index.room_changes, self._room_changed),
            (index.reserved.changes, self._room_changed),
            (index.assumed.changes, self._room_changed),
            (index.gated.freed, self._room_changed),
        ]
        for source, callback in subscribed:
            source.subscribe(callback)
        try:
            await self._begin()
            await self._catch_up()
            await self._begin()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._wake_waiting())
                places = asyncio.Semaphore(_WORKERS)
                while True:
                    await places.acquire()
                    key = await self._queue.take()
                    tasks.create_task(self._work(key, places))
        finally:
            for source, callback in subscribed:
                source.unsubscribe(callback)
            for key in self.memory:
                index.reserved.release(key)
            self.memory.clear()  # a standby reports nothing about groups

    async def _begin(self) -> None:
        self._queue.clear()
        self.memory.clear()
        self._lines.clear()
        self._short.clear()
        self._placements.forget()
        # First all gated pods are filed: an unknown group that the earlier leader released would lose its room to others.
        while self._index.gated.file_stale():  # noqa: ASYNC110 -- each call files some more
            await asyncio.sleep(0)
        for placement in self._index.placements:
            self._queue.add(placement.group)
        groups = [
            group for key in list(self._index.gated.groups) if (group := group_state(key, self._index)) is not None
        ]
        for group in groups:
            self._queue.add(group.key)
        self._give_back_gated(groups)
        end = self._clock.now() + _RESUME_SECONDS
        for reserve in (self._chooser.keep_released, self._chooser.problem_of_room):
            for group in sorted(groups, key=lambda group: bool(group.bound)):
                if self._clock.now() < end:
                    await self._resume(group.key, reserve)

    def _give_back_gated(self, groups: Sequence[GroupState]) -> None:
        """Gives back the room of gated pods if a released pod has no room, because released pods get theirs first.

        The first `_begin` may have reserved it while the watch showed the released pod as gated.
        """
        reserved, until = self._index.reserved, self._clock.now() + self._settings.reservation
        released = {pod.uid for group in groups for pod in group.released}
        if all(map(reserved.node_of, released)):
            return
        for key in list(reserved.groups):
            reserved.reserve(key, [slot for slot in reserved.slots_of(key) if slot.pod in released], until)

    async def _resume(
        self, key: GroupKey, reserve: Callable[[GroupState, GroupMemory, GroupDecision], Awaitable[object]]
    ) -> None:
        """Reserves room again for a group that an earlier leader decided, within `_RESUME_SECONDS`.

        `_begin` comes to released pods first, then to groups without a bound pod, because the earlier leader had reserved room
        for them. Groups with bound pods are last: their waiting pods replace others, and may have had no reserved room.
        """
        try:
            group = group_state(
                key, self._index
            )  # its pods may have changed while room was reserved for groups before it
            if group is None:
                return
            memory = self._known(group)
            decision = memory.decision
            if decision is not None:
                step = next_step(group, decision, ())
                group = replace(group, waiting=step.pods if step.do is Do.RELEASE else ())
                if group.released or group.waiting:
                    await reserve(group, memory, decision)
        except Exception:  # noqa: BLE001 - as in `_work`, where the group is tried again
            self._failed(key)

    # -- what wakes it --------------------------------------------------------------------------------------------------

    def _group_changed(self, change: object) -> None:
        key = getattr(change, "new", None) or getattr(change, "old", None)
        if isinstance(key, GroupKey):
            self._queue.add(key)

    def _placement_changed(self, change: object) -> None:
        placement = getattr(change, "new", None) or getattr(change, "old", None)
        if isinstance(placement, GroupPlacement):
            self._placements.observe(placement.group)
            self._queue.add(placement.group)

    def _room_changed(self, change: object = None) -> None:
        """More room may be free now. O(1), and nothing while no group waits, because each change of room calls it."""
        if self._short or len(self._lines):
            # A pod that was assumed on several nodes counted on each. Once it is bound, forgotten or doubted it frees room on some.
            old = getattr(change, "old", None)
            if not isinstance(old, Assumed) or not old.pod.node:
                self._freed.set()

    async def _wake_waiting(self) -> None:
        """Wakes groups that wait for room after changes that may have freed some, until cancelled."""
        while True:
            await self._freed.wait()
            self._freed.clear()
            self._lines.version += 1
            for key, when in self._lines.next_of_all():
                self._queue.add_at(key, when)
            for key in list(self._short):
                if key in self.memory:
                    self._queue.add_at(key, self.memory[key].goal.next_try)
            await self._clock.sleep(_ROOM_PAUSE)

    # -- one group ------------------------------------------------------------------------------------------------------

    async def _work(self, key: GroupKey, places: asyncio.Semaphore) -> None:
        pods = 0
        try:
            self._expire_reservations()
            group = group_state(key, self._index)
            pods = 0 if group is None else group.ready
            await (self._end(key) if group is None else self._reconcile(group))
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

    def _known(self, group: GroupState) -> GroupMemory:
        """The memory of a group. The time of a new one counts from the creation of its oldest waiting pod."""
        memory = self.memory.get(group.key)
        if memory is None:
            memory = self.memory[group.key] = self._new_memory(group)
        if isinstance(memory.state, Emptied):
            memory.record(PodsCame())
        if isinstance(memory.state, Chosen):
            memory.record(NotWritten())  # the last look at the group was broken off before the write
        return memory

    def _new_memory(self, group: GroupState) -> GroupMemory:
        now = self._clock.now()
        stored = self._placements.find(group.key)
        if stored is None or stored.decision is None:
            waited = (self._utc_now() - group.created).total_seconds() if group.created is not None else 0.0
            return GroupMemory(now, now - max(waited, 0.0))
        # The first `_begin` of a term may have reserved room: the end of the slots is the end of the claim.
        # A claim for a domain that may grow begins with its decision.
        left, levels, out = 0.0, stored.decision.levels, len(group.released) + len(group.bound)
        if group.spec.may_grow(levels):
            seconds = claim_of(group.spec, levels, self._settings)
            left = min(max(seconds - (self._utc_now() - stored.decision.decided).total_seconds(), 0.0), seconds)
        return GroupMemory(now, now, read_back(stored, max(now + left, self._index.reserved.until(group.key)), out))

    async def _reconcile(self, group: GroupState) -> None:
        """Reads the group, decides, and writes one thing; again until it waits."""
        # 1. Without a decision and with stale watches nothing is chosen: the group comes back when they are current.
        # 2. What earlier steps left open: releases that the watch does not show, records that are missing, reserved room
        #    whose scheduler does not ask.
        # 3. A decision whose write was not answered is written again before any pod is released.
        # 4. At most `_MOST_STEPS` in a row. `concerned` has only the pods that the step releases or has released, because the
        #    others must not need room yet.
        memory, step = self._known(group), GroupStep(Do.WAIT, GroupPhase.COLLECTING, WaitReason.INCOMPLETE)
        if memory.decided is None and self._is_stale():
            self._queue.add_at(group.key, self._clock.now() + _STALE_SECONDS)
            return
        await self._writer.read_late(group, memory)
        await self._writer.catch_up_records(group, memory)
        self._give_back_unasked(group, memory)
        for _ in range(_MOST_STEPS):
            if memory.pods is not NO_PODS:
                memory.record(Observed([pod.uid for pod in group.waiting], self._clock.now()))
            known = memory.pods
            refused = {**known.refused, **dict.fromkeys(known.absent, "it does not exist any more")}
            step = next_step(group, memory.decision, known.sent.keys(), refused)
            concerned = group
            if step.pods or memory.decided is not None:
                out = (pod for pod in group.waiting if pod.uid in known.sent)
                concerned = replace(group, waiting=(*step.pods, *out))
            if isinstance(memory.state, Unanswered) and step.do is not Do.WAIT:
                step = replace(step, do=Do.DECIDE, levels=memory.state.decision.levels)
            else:
                step = await self._chooser.choose(concerned, memory, step)
            step = await self._carry_out(concerned, memory, step)
            await self._writer.report(group, memory, step)
            if step.do is Do.WAIT or (current := group_state(group.key, self._index)) is None:
                break
            group = current
        self._follow_up(group, memory, step)

    async def _carry_out(self, group: GroupState, memory: GroupMemory, step: GroupStep) -> GroupStep:
        if step.levels is not None:
            decided = await self._writer.decide(group, memory, step.levels)
            if decided.reason is WaitReason.DECIDED:
                self._lines.leave(group.key)
            return decided
        if step.do is Do.PREEMPT:
            return await self._preempt(group, memory, step)
        decision = memory.decision
        if step.pods and step.do is Do.RELEASE and decision is not None:
            return await self._writer.release(group, memory, decision, step)
        return step

    async def _preempt(self, group: GroupState, memory: GroupMemory, step: GroupStep) -> GroupStep:
        """Removes the pods that hold the room of a group. If that fails, the reservation ends, and a later try follows."""
        victims = [pod for uid in step.victims if (pod := self._index.pods.get(uid)) is not None]
        pod = min(group.waiting, key=lambda pod: pod.priority)
        if await self._remove(pod, victims):
            return replace(step, do=Do.WAIT)
        problem = f"{counted(len(victims), 'pod')} of lower priority hold the room, and could not be preempted"
        again = memory.wait(self._clock.now(), problem)
        memory.goal = replace(memory.goal, preempts_from=again)
        memory.record(VictimsGone())
        self._index.reserved.release(group.key)
        self._queue.add_at(group.key, again)
        return GroupStep(Do.WAIT, GroupPhase.DECIDING, WaitReason.NO_ROOM, problem)

    def _follow_up(self, group: GroupState, memory: GroupMemory, step: GroupStep) -> None:
        """Queues the group for its next try, and for the end of its time."""
        if step.phase is GroupPhase.BOUND and isinstance(memory.state, Decided | Expired | Unasked):
            memory.record(AllBound())
            self._room_changed()  # its namespace may have room reserved for another group now
        self._follow_claims(group, memory)
        may_lose = bool(group.released) and step.reason is not WaitReason.NO_NODES_YET  # the nodes of their room
        if may_lose or step.reason is WaitReason.DOMAIN_FULL:
            self._short[group.key] = None
        else:
            self._short.pop(group.key, None)
        if step.reason not in {*NO_PLACE, WaitReason.BUDGET, WaitReason.NO_NODES_YET}:
            self._lines.leave(group.key)
        self._wake_line(group.key.namespace)
        if step.reason in {WaitReason.NOT_WRITTEN, WaitReason.DOMAIN_FULL}:
            self._queue.add_at(group.key, memory.goal.next_try)
        due = (memory.goal.since + after for after in group.spec.times)
        if step.phase is not GroupPhase.BOUND and (
            next_due := min((at for at in due if at > self._clock.now()), default=None)
        ):
            self._queue.add_at(group.key, next_due)
        until = self._index.reserved.until(group.key)
        if until > self._clock.now() and group.released:
            self._queue.add_at(group.key, until)

    def _follow_claims(self, group: GroupState, memory: GroupMemory) -> None:
        """Wakes other groups if fewer pods of this group wait for nodes, or if its claim to its domain has ended."""
        decision, before, held = memory.decision, memory.hold, self._index.reserved.held
        without = sum(pod.uid not in held for pod in group.released)
        if not (without and decision is not None and group.spec.may_grow(decision.levels)):
            without = 0
        until = claimed_until(memory.state) if group.spec.exclusive else 0.0
        memory.hold = Hold(without, self._clock.now() < until)
        if memory.hold.is_claimed:
            self._queue.add_at(group.key, until)
        if before.without_nodes > memory.hold.without_nodes or before.is_claimed > memory.hold.is_claimed:
            self._room_changed()

    def _wake_line(self, namespace: str) -> None:
        following = self._lines.next_of(namespace)
        if following is not None:
            self._queue.add_at(*following)

    def _give_back_unasked(self, group: GroupState, memory: GroupMemory) -> None:
        """Gives back the room of released pods whose scheduler asks about nothing: it may not exist.

        If the scheduler asks again, room is reserved again for the remaining pods of the group, if there still is some.
        """
        if not (group.released or group.bound or memory.requesting.released_at or isinstance(memory.state, Unasked)):
            return  # no pod of it was released
        reserved, now = self._index.reserved, self._clock.now()
        decision = memory.decision
        if decision is not None and group.spec.may_grow(decision.levels):
            with_room = tuple(pod for pod in group.released if reserved.node_of(pod.uid))
            group = replace(group, released=with_room)  # the others wait for nodes
        memory.requesting, again = memory.requesting.observe(group, reserved.requests, now, self._settings.unasked)
        unasked = memory.requesting.unasked
        if again is not None:
            self._queue.add_at(group.key, again)
        left = [slot for slot in reserved.slots_of(group.key) if slot.pod not in unasked]
        if len(left) < len(reserved.pods_of(group.key)):
            _LOG.warning("reserved room is given back, as no scheduler asks", extra={"group": str(group.key)})
            reserved.reserve(group.key, left, reserved.until(group.key))
        if group.released and len(unasked) == len(group.released):
            memory.record(NoneAsked())
        elif isinstance(memory.state, Unasked) and not unasked:
            memory.record(Resumed())

    def _expire_reservations(self) -> None:
        for key in self._index.reserved.expire(self._clock.now()):
            _LOG.warning("reserved room has expired", extra={"group": str(key)})
            if key in self.memory:
                self.memory[key].record(ReservationEnded())
            self._queue.add(key)

    async def _end(self, key: GroupKey) -> None:
        """No pod of the group is left. Its decision stays for a while, because its owner may replace all pods."""
        now = self._clock.now()
        self._index.reserved.release(key)
        self._short.pop(key, None)
        self._lines.leave(key)
        self._wake_line(key.namespace)
        memory = self.memory.get(key)
        if memory is None:  # read back here, because pods may come again
            memory = self.memory[key] = GroupMemory(now, now, read_back(self._placements.find(key)))
        if any(memory.hold):
            memory.hold = Hold()
            self._room_changed()
        memory.report = replace(memory.report, step=None, written_at=float("-inf"))
        if not isinstance(memory.state, Emptied):
            memory.record(PodsDeleted(now))
        end = self._settings.keep_empty + (memory.state.at if isinstance(memory.state, Emptied) else now)
        if now < end:
            self._queue.add_at(key, end)
            return
        try:
            await self._placements.delete(key)
        except LeadershipLost:
            raise
        except KubeError as error:
            _LOG.warning("an object cannot be deleted", extra={"group": str(key), "error": str(error)})
            self._queue.add_at(key, memory.wait(now))
            return
        memory.record(PlacementDeleted())
        del self.memory[key]
