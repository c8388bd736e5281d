"""Releases groups of gated pods while this replica leads: one loop that reads a group, decides, and writes one thing.

The loop works on a group after each change of it, and on those that lack room after changes that free some. What it does
follows from the watch and from the written decisions alone (`verbs/release/progress.py`), so another leader continues at
any step. https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/3838-pod-mutable-scheduling-directives
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeAlias

from extender.index.cluster import ClusterIndex
from extender.index.objects.changes import Subscribable
from extender.kube.errors import KubeError
from extender.kube.timing import Clock
from extender.model.group_placements import GroupPlacement
from extender.model.objects import Pod
from extender.model.release import Decision, GroupKey, Level, OnTimeout, Phase, Proposal, RejectedDomain, Replacement
from extender.settings.policies import Release
from extender.tasks.events import EventRecorder
from extender.tasks.fair_queue import GroupQueue, RateLimiter
from extender.tasks.leader_election import LeadershipLost
from extender.tasks.release.groups import (
    GroupMemory,
    Memories,
    budget_excess,
    group_state,
    quota_excess,
)
from extender.tasks.release.waiting import Waiting
from extender.tasks.release.writes import PlacementWriter, PodReleaser, StepWriter
from extender.tasks.sliced_work import in_slices
from extender.telemetry.metrics import ReleaseMetrics
from extender.verbs.release.placing import Trials
from extender.verbs.release.progress import (
    Do,
    GroupState,
    Reason,
    Step,
    beyond,
    coarser_levels,
    message_of,
    next_step,
)

_LOG = logging.getLogger(__name__)
_WORKERS: Final = 16  # groups that wait for writes at a time; the writes have limits of their own
_AFTER_FAILURE: Final = 10.0
# For so long `_begin` reserves room for groups that are decided. Those that are left then are worked on as all groups are (`_work`).
_RESUME_SECONDS: Final = 0.5
_MOST_TRIES: Final = 3  # of a proposal
_MOST_STEPS: Final = 4  # of one group in a row: decide, release, and say so
_PLACED_PER_SECOND: Final = 1e6  # one after the other, at any rate

_NO_PLACE: Final = frozenset({Reason.NO_ROOM, Reason.QUOTA})

Excess: TypeAlias = Callable[[Sequence[Level]], str]
Propose: TypeAlias = Callable[
    [GroupState, Sequence[Level] | None, Sequence[tuple[GroupKey, Sequence[Level]]], Excess],
    Trials[Proposal],
]
"""Where the pods of a group that have no node may go together: in the domain that is decided, None where any may be chosen, in
none of those that are taken by other groups, and in none of which the quota would be exceeded. Implemented by `verbs.release`.
O(nodes)."""


class GroupReconciler:
    """``run`` is one term. ``has_node``: whether pods may go to a node, by its name.

    ``catch_up`` waits until the watch has shown all objects that were written up to now.
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
    ) -> None:
        self.failures = 0
        self._index = index
        self._placements = placements
        self._propose = propose
        self._has_node = has_node
        self._recorder = recorder
        self._clock = clock
        self._utc_now = utc_now
        self._settings = settings
        self._catch_up = catch_up
        self._queue = GroupQueue(clock)
        self._writer = StepWriter(
            placements, pods, index.reserved, events, recorder, clock, utc_now, settings, self._come_back
        )
        self._placing = RateLimiter(clock, 1, _PLACED_PER_SECOND)
        self._waiting = Waiting(clock)
        self._lines = self._waiting.lines
        self.memory = Memories()

    @property
    def expired(self) -> int:
        """How many releases were not seen in time."""
        return self._writer.expired

    # -- a term ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Works until cancelled. Every run begins without a memory, as that of another leader would.

        No group is decided before all decisions of an earlier leader are known, as that leader may have released pods into room
        that looks free. `_begin` reserves room for groups that are known to be decided, before `_catch_up` and after it. What it
        does not reserve within `_RESUME_SECONDS`, other groups may take before the turn of the group comes.
        """
        index = self._index
        subscribed: list[tuple[Subscribable, Callable[[object], None]]] = [
            (index.gated.changes, self._group_changed),
            (index.placements.changes, self._placement_changed),
            (index.room_changes, self._waiting.room_changed),
            (index.reserved.changes, self._waiting.room_changed),
            (index.assumed.changes, self._waiting.room_changed),
            (index.gated.freed, self._waiting.room_changed),
        ]
        for source, callback in subscribed:
            source.subscribe(callback)
        try:
            await self._begin()
            await self._catch_up()
            await self._begin()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._waiting.run(self._queue.add_at, self.memory.next_try))
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
            self.memory.clear()  # a standby tells nothing about groups

    async def _begin(self) -> None:
        self._queue = GroupQueue(self._clock)
        self.memory.clear()
        self._waiting.clear()
        self._placements.forget()
        # Else a group that an earlier leader has released may not be known yet, and others take its room.
        while self._index.gated.file_stale():  # noqa: ASYNC110 -- each call files some more
            await asyncio.sleep(0)
        for placement in self._index.placements:
            self._queue.add(placement.group)
        groups = [group for key in list(self._index.gated.groups) if (group := self._read(key)) is not None]
        for group in groups:
            self._queue.add(group.key)
        end = self._clock.now() + _RESUME_SECONDS
        for reserve in (self._keep_released, self._problem_of_room):
            for group in sorted(groups, key=lambda group: bool(group.bound)):
                if self._clock.now() < end:
                    await self._resume(group, reserve)

    async def _resume(
        self, group: GroupState, reserve: Callable[[GroupState, GroupMemory, Decision], Awaitable[object]]
    ) -> None:
        """Reserves room again for a group that an earlier leader decided, within `_RESUME_SECONDS`.

        `_begin` comes to released pods first, then to groups without a bound pod, as the earlier leader had reserved room for
        them. Groups with bound pods are last: their pods that wait replace others, and may have had no reserved room.
        """
        try:
            memory = self._known(group)
            if memory.decision is not None:
                step = next_step(group, memory.decision, ())
                group = replace(group, waiting=step.pods if step.do is Do.RELEASE else ())
                if group.released or group.waiting:
                    await reserve(group, memory, memory.decision)
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
            self._placements.observe(placement.group)
            self._queue.add(placement.group)

    def _come_back(self, key: GroupKey, when: float) -> None:
        self._queue.add_at(key, when)

    # -- one group ------------------------------------------------------------------------------------------------------

    async def _work(self, key: GroupKey, places: asyncio.Semaphore) -> None:
        pods = 0
        try:
            self._expire_reservations()
            group = self._read(key)
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

    def _read(self, key: GroupKey) -> GroupState | None:
        return group_state(key, self._index.gated, self._index.pods)

    def _known(self, group: GroupState) -> GroupMemory:
        """What is remembered of a group. Its time counts from the creation of the oldest pod that waits."""
        now = self._clock.now()
        memory = self.memory.get(group.key)
        if memory is None:
            waited = (self._utc_now() - group.created).total_seconds() if group.created is not None else 0.0
            memory = self.memory[group.key] = GroupMemory(now, now - max(waited, 0.0))
            stored = self._placements.find(group.key)
            if stored is not None and stored.decision is not None:
                memory.decision, memory.since = stored.decision, now
        if memory.decision is not None:
            memory.levels = memory.decision.levels
        memory.emptied = None
        return memory

    async def _reconcile(self, group: GroupState) -> None:
        """Reads the group, decides, and writes one thing; again until it waits."""
        memory, step = self._known(group), Step(Do.WAIT, Phase.COLLECTING, Reason.INCOMPLETE)
        await self._writer.read_late(group, memory)
        self._give_back_unasked(group, memory)
        for _ in range(_MOST_STEPS):
            memory.observe(group, self._clock.now())
            refused = {**memory.refused, **dict.fromkeys(memory.gone, "it does not exist any more")}
            step = next_step(group, memory.decision, memory.sent.keys(), refused)
            concerned = group
            if step.pods or memory.decision is not None:
                out = (pod for pod in group.waiting if pod.uid in memory.sent)
                concerned = replace(group, waiting=(*step.pods, *out))
            step = await self._carry_out(concerned, memory, await self._choose(concerned, memory, step))
            await self._writer.tell(group, memory, step)
            found = self._read(group.key)
            if step.do is Do.WAIT or found is None:
                break
            group = found
        self._follow_up(group, memory, step)

    async def _carry_out(self, group: GroupState, memory: GroupMemory, step: Step) -> Step:
        if step.levels is not None:
            decided = await self._writer.decide(group, memory, step.levels)
            if decided.reason is Reason.DECIDED:
                self._lines.leave(group.key)
            return decided
        if step.pods and step.do is Do.RELEASE and memory.decision is not None:
            return await self._writer.release(group, memory, memory.decision, step)
        return step

    def _follow_up(self, group: GroupState, memory: GroupMemory, step: Step) -> None:
        """Comes back when there is something to try again or when the time of the group is over."""
        if step.phase is Phase.BOUND and not memory.was_bound:
            memory.was_bound, memory.has_expired = True, False
            self._waiting.room_changed()  # its namespace may have room reserved for another group now
        may_lose = bool(group.released) and step.reason is not Reason.NO_NODES_YET  # the nodes of their room
        self._waiting.set_short(group.key, is_short=step.reason is Reason.DOMAIN_FULL or may_lose)
        if step.reason not in {*_NO_PLACE, Reason.BUDGET, Reason.NO_NODES_YET}:
            self._lines.leave(group.key)
        self._wake_line(group.key.namespace)
        if step.reason in {Reason.NOT_WRITTEN, Reason.DOMAIN_FULL}:
            self._queue.add_at(group.key, memory.next_try)
        over = memory.since + group.spec.decision_timeout
        if step.phase is not Phase.BOUND and over > self._clock.now():
            self._queue.add_at(group.key, over)
        if memory.reserved_until > self._clock.now() and group.released:
            self._queue.add_at(group.key, memory.reserved_until)

    def _wake_line(self, namespace: str) -> None:
        following = self._lines.next_of(namespace)
        if following is not None:
            self._queue.add_at(*following)

    def _give_back_unasked(self, group: GroupState, memory: GroupMemory) -> None:
        """Gives back the room of released pods about which no scheduler asks, as one that does not exist never will."""
        reserved, now = self._index.reserved, self._clock.now()
        if memory.decision is not None and group.spec.may_grow(memory.decision.levels):
            with_room = tuple(pod for pod in group.released if reserved.node_of(pod.uid))
            group = replace(group, released=with_room)  # the others wait for nodes
        unasked, again = memory.observe_released(group, reserved.asked, now, self._settings.unasked)
        if again is not None:
            self._queue.add_at(group.key, again)
        left = [slot for slot in reserved.slots_of(group.key) if slot.pod not in unasked]
        if len(left) < len(reserved.pods_of(group.key)):
            _LOG.warning("reserved room is given back, as no scheduler asks", extra={"group": str(group.key)})
            reserved.reserve(group.key, left, memory.reserved_until)
        if group.released and len(unasked) == len(group.released):
            memory.has_expired, memory.claimed_until = True, 0.0

    def _expire_reservations(self) -> None:
        for key in self._index.reserved.expire(self._clock.now()):
            _LOG.warning("reserved room has expired", extra={"group": str(key)})
            if key in self.memory:
                self.memory[key].has_expired, self.memory[key].claimed_until = True, 0.0
            self._queue.add(key)

    async def _end(self, key: GroupKey) -> None:
        """No pod of the group is left. Its decision stays for a while, as its owner may replace all of them."""
        now = self._clock.now()
        self._index.reserved.release(key)
        self._waiting.set_short(key, is_short=False)
        self._lines.leave(key)
        self._wake_line(key.namespace)
        memory = self.memory.setdefault(key, GroupMemory(now, now))
        memory.sent, memory.levels, memory.step, memory.told_at = {}, None, None, float("-inf")
        memory.emptied = now if memory.emptied is None else memory.emptied
        if now < memory.emptied + self._settings.keep_empty:
            self._queue.add_at(key, memory.emptied + self._settings.keep_empty)
            return
        try:
            await self._placements.delete(key)
        except LeadershipLost:
            raise
        except KubeError as error:
            _LOG.warning("an object cannot be deleted", extra={"group": str(key), "error": str(error)})
            self._queue.add_at(key, memory.wait(now))
            return
        del self.memory[key]

    # -- decisions: what is chosen is reserved in the same step, so that two groups never get the same room -------------

    async def _choose(self, group: GroupState, memory: GroupMemory, step: Step) -> Step:
        """The step, where it needs no room or has some now; else another one. Writes nothing."""
        now = self._clock.now()
        if memory.was_bound and step.phase is not Phase.BOUND:
            memory.was_bound, memory.since = False, now
        is_late = now - memory.since >= group.spec.decision_timeout
        is_given_up = is_late and group.spec.on_timeout is not OnTimeout.KEEP_GATED
        decision = memory.decision
        if step.do is Do.DECIDE:
            step = await self._choose_domain(group, memory, is_given_up=is_given_up)
        elif decision is None and is_given_up and group.waiting:
            return await self._let_go(group, memory)  # a group that never fills
        elif decision is not None and step.do is Do.RELEASE:
            over = self._over_quota(group, memory, decision)
            problem = over or await self._problem_of_room(group, memory, decision)
            over = self._over_quota(group, memory, decision)  # others may have been released meanwhile
            if over or (problem and not group.spec.may_grow(decision.levels)):
                step = await self._without_room(group, memory, over or problem, is_given_up=is_given_up)
        elif decision is not None and step.do is Do.GROW:
            step = await self._grow(group, memory, decision, step, is_given_up=is_given_up)
        elif decision is not None and group.released:
            step = await self._keep_room(group, memory, decision, step)
        if step.do is Do.WAIT and is_late and step.phase not in {Phase.BOUND, Phase.RELEASING}:
            self._time_out(memory, OnTimeout.KEEP_GATED)
            return replace(step, phase=Phase.TIMED_OUT)
        return step

    async def _choose_domain(self, group: GroupState, memory: GroupMemory, *, is_given_up: bool) -> Step:
        """Chooses a domain for a group that is complete. A step that waits says why."""
        begun, version = self._clock.now(), self._lines.version
        if memory.spec != group.spec:
            self._lines.retry(group.key)
            memory.spec = group.spec
        if not is_given_up and not self._lines.is_turn(group.key, begun):
            others = "its turn has not come: other groups of the namespace wait for room too"
            before = memory.step.reason if memory.step is not None else Reason.NO_ROOM
            reason = before if before in _NO_PLACE else Reason.NO_ROOM
            said = (reason, memory.problem) if memory.problem else (Reason.BUDGET, others)
            return Step(Do.WAIT, Phase.DECIDING, *said)
        excess, is_too_large = self._excess(group, group.waiting), bool(self._excess(group, group.waiting, alone=True))
        waits = not (is_given_up or is_too_large)
        proposal = Proposal() if excess and waits else await self._place(group, None)
        now = self._clock.now()
        excess = excess or self._excess(group, group.waiting)  # room may have been reserved for others meanwhile
        if excess and waits:
            self._lines.failed(group.key, version, now, now - begun)
            memory.problem = ""
            return Step(Do.WAIT, Phase.DECIDING, Reason.BUDGET, excess)
        if proposal.slots:
            memory.without_room = is_too_large  # there is room for it now, and none is kept from others
            if not excess:
                self._reserve(group, memory, proposal)
        if proposal.slots or proposal.levels:  # else they wait for nodes there
            memory.problem = ""
            return Step(Do.DECIDE, Phase.DECIDED, Reason.DECIDED, levels=proposal.levels)
        memory.problem = message_of(proposal)
        if is_given_up:
            return await self._let_go(group, memory, proposal)
        self._lines.failed(group.key, version, now, now - begun)
        is_over = bool(proposal.rejected) and all(each.excess for each in proposal.rejected)
        return Step(Do.WAIT, Phase.DECIDING, Reason.QUOTA if is_over else Reason.NO_ROOM, memory.problem)

    async def _let_go(self, group: GroupState, memory: GroupMemory, proposal: Proposal | None = None) -> Step:
        """Its time is over: its pods are released without room for all of them, as `OnTimeout` says.

        At the coarser level: in the domain of the first topology key that holds most of them, where those that it does
        not hold wait for nodes, as a cluster autoscaler adds them. Without any such domain they are released unpinned.
        """
        levels: tuple[Level, ...] = ()
        if group.spec.on_timeout is OnTimeout.UNGATE_AT_COARSER_LEVEL:
            levels = coarser_levels(await self._place(group, None) if proposal is None else proposal)
        memory.without_room = True
        self._time_out(memory, group.spec.on_timeout)
        return Step(Do.DECIDE, Phase.DECIDED, Reason.DECIDED, levels=levels)

    def _over_quota(self, group: GroupState, memory: GroupMemory, decision: Decision) -> str:
        """Why the pods that wait may not be released into the decided domain now, by its quota; empty where they may.

        A group of which no pod is out gives up its room then: two of them would wait for each other.
        """
        over = self._quota(group, memory)(decision.levels)
        if not over:
            return ""
        if not memory.has_begun(group):
            self._index.reserved.release(group.key)
        memory.problem = f"{decision.levels[0]} {over}" if decision.levels else over
        if self._clock.now() >= memory.next_try:
            memory.wait(self._clock.now())
        return memory.problem

    async def _problem_of_room(self, group: GroupState, memory: GroupMemory, decision: Decision) -> str:
        """Reserves room in the decided domain for the pods that have none yet; why there is none, empty where there is."""
        group = memory.with_room(group)
        pods = (*group.waiting, *group.released)
        if memory.without_room or all(self._has_slot(pod) for pod in pods if pod.uid not in memory.gone):
            return ""
        if self._clock.now() < memory.next_try:
            return memory.problem or "no room"
        memory.problem = self._excess(group, pods)
        if memory.problem and self._excess(group, pods, alone=True):
            memory.without_room = not group.bound
        proposal = Proposal() if memory.problem else await self._place(group, decision.levels)
        memory.problem = memory.problem or self._excess(group, pods)  # as in `_choose_domain`
        if memory.problem:
            memory.wait(self._clock.now())
            return "" if memory.without_room else memory.problem
        if proposal.slots:
            self._reserve(group, memory, proposal)
            return ""
        if not decision.levels:
            return ""  # they are not pinned: the scheduler finds room for each of them, or waits
        memory.wait(self._clock.now())
        memory.problem = message_of(proposal)
        await self._keep_released(group, memory, decision)
        return memory.problem

    async def _keep_released(self, group: GroupState, memory: GroupMemory, decision: Decision) -> None:
        """Reserves room for the released pods alone: they are pinned to the domain, whatever comes of their siblings."""
        group = replace(group, waiting=tuple(pod for pod in group.waiting if pod.uid in memory.sent))
        pods = (*group.waiting, *group.released)
        is_missing = not all(map(self._has_slot, pods))
        if is_missing and not self._excess(group, pods):
            proposal = await self._place(group, decision.levels)
            if proposal.slots and not self._excess(group, pods):
                self._reserve(group, memory, proposal)

    async def _keep_room(self, group: GroupState, memory: GroupMemory, decision: Decision, step: Step) -> Step:
        """Pods are released and not bound: their room is reserved, for as long as the settings allow."""
        if memory.has_expired:
            text = f"{len(group.released)} released pods are not bound, and their room is not reserved any more"
            return Step(Do.WAIT, Phase.DEGRADED, Reason.NOT_BOUND, text)
        if group.spec.may_grow(decision.levels):
            return await self._wait_for_nodes(group, memory, decision, step)
        problem = await self._problem_of_room(group, memory, decision)
        return Step(Do.WAIT, Phase.DEGRADED, Reason.DOMAIN_FULL, problem) if problem else step

    async def _wait_for_nodes(self, group: GroupState, memory: GroupMemory, decision: Decision, step: Step) -> Step:
        """Pods that were released without room. It is reserved once there is some for all, in the turn of their namespace."""
        begun, version = self._clock.now(), self._lines.version
        if all(map(self._has_slot, group.released)):
            return step
        if self._lines.is_turn(group.key, begun):
            memory.next_try = 0.0
            if not await self._problem_of_room(group, memory, decision):
                return step
            now = self._clock.now()
            self._lines.failed(group.key, version, now, now - begun)
        return Step(Do.WAIT, Phase.RELEASING, Reason.NO_NODES_YET, memory.problem)

    async def _without_room(self, group: GroupState, memory: GroupMemory, problem: str, *, is_given_up: bool) -> Step:
        """The decided domain does not hold the pods that are left: it was lost, or others took what nothing had reserved.

        A released pod cannot be moved, and a group is never split. So the group gets another domain only while none of
        its pods has been released, or all that were are gone.
        """
        may_move = group.spec.replacement is Replacement.REDECIDE or not memory.is_placed or memory.tries > 1
        if may_move and not memory.has_begun(group):
            return await self._choose_domain(group, memory, is_given_up=is_given_up)
        if is_given_up:
            memory.without_room = True
            self._recorder.record_timeout(str(group.spec.on_timeout))
        return Step(Do.RELEASE if is_given_up else Do.WAIT, Phase.DEGRADED, Reason.DOMAIN_FULL, problem)

    async def _grow(
        self, group: GroupState, memory: GroupMemory, decision: Decision, step: Step, *, is_given_up: bool
    ) -> Step:
        """Releases the first of the pods beyond the size of a group, as many as its domain has room for.

        None of them needs the others. At most as many tries as the number can be halved; mostly two.
        """
        pods, sent = step.pods, group.waiting[len(step.pods) :]
        if memory.without_room and not is_given_up:
            if group.released:
                text = f"{beyond(len(pods))} until the released pods have a node, as no room is reserved for these"
                return replace(step, do=Do.WAIT, message=text)
            memory.without_room = False
        count = len(pods)
        while count > 1 and self._clock.now() >= memory.next_try:
            some = replace(group, waiting=(*pods[:count], *sent))
            holds = await self._holds(some, memory, decision.levels) - len(sent)
            if holds >= count:
                break
            count = max(min(holds, count - 1 if count == len(pods) else count // 2), 1)
        some = replace(group, waiting=(*pods[:count], *sent))
        problem = self._over_quota(some, memory, decision) or await self._problem_of_room(some, memory, decision)
        over = self._over_quota(some, memory, decision)  # others may have been released meanwhile
        if not over and group.spec.may_grow(decision.levels):
            return replace(step, do=Do.RELEASE, pods=pods[:count])
        problem = over or problem
        if problem and not is_given_up:
            return Step(Do.WAIT, Phase.DEGRADED, Reason.DOMAIN_FULL, f"{beyond(len(pods))}: {problem}")
        if problem:
            self._time_out(memory, group.spec.on_timeout)
        return replace(step, do=Do.RELEASE, pods=pods if problem else pods[:count])

    async def _holds(self, group: GroupState, memory: GroupMemory, levels: Sequence[Level]) -> int:
        """How many of the pods at the gate the domain seems to hold beside the released ones; all only if it does."""
        most = len(group.waiting)
        if self._excess(group, (*group.waiting, *group.released)) or self._quota(group, memory)(levels):
            return most // 2
        if group.spec.may_grow(levels):
            return most
        proposal = await self._place(group, levels)
        if proposal.slots or not levels:
            return most
        return max((each.holds for each in proposal.rejected), default=0) - len(group.released)

    def _has_slot(self, pod: Pod) -> bool:
        """Whether room is reserved for a pod on a node that still takes pods, or it needs none, as it has got a node since."""
        node, known = self._index.reserved.node_of(pod.uid), self._index.pods.get(pod.uid)
        return (bool(node) and self._has_node(node)) or (known is not None and bool(known.node))

    async def _place(self, group: GroupState, levels: Sequence[Level] | None) -> Proposal:
        """A proposal, made in slices, for one group at a time. What it says holds until the caller awaits anything else."""
        async with self._placing.acquire(group.key.namespace):
            begun = self._clock.now()
            taken = self.memory.domains_of_others(group, self._index.gated, begun)
            memory, over, proposal = self._known(group), "", Proposal()
            for _ in range(_MOST_TRIES):  # the quota is looked at again where others were decided meanwhile
                steps = self._propose(group, levels, taken, self._quota(group, memory))
                proposal = await in_slices(steps, self._clock)
                over = self._quota(group, memory)(proposal.levels) if proposal.levels else ""
                if not over:
                    break
        if over:
            proposal = Proposal(rejected=(RejectedDomain(proposal.levels[0], len(group.waiting), excess=over),))
        self._recorder.record_decision("room" if proposal.slots else "no_room", self._clock.now() - begun)
        return proposal

    def _quota(self, group: GroupState, memory: GroupMemory) -> Excess:
        """Why the pods that wait may not be released into a domain, by its quota; what it says holds until anything is awaited."""
        index = self._index
        if not group.spec.has_quotas or not group.waiting:
            return lambda _: ""
        promised = self.memory.promised(
            group, index.gated, index.pods, index.reserved, index.placements, has_begun=memory.has_begun(group)
        )
        return lambda levels: quota_excess(group, levels, index.gated.charges, promised)

    def _excess(self, group: GroupState, pods: Sequence[Pod], *, alone: bool = False) -> str:
        index = self._index
        return budget_excess(group.key, pods, index.reserved, index.view.offered, self._settings, alone=alone)

    def _reserve(self, group: GroupState, memory: GroupMemory, proposal: Proposal) -> None:
        memory.reserved_until = memory.claimed_until = self._clock.now() + self._settings.reservation
        self._index.reserved.reserve(group.key, proposal.slots, memory.reserved_until)

    def _time_out(self, memory: GroupMemory, action: OnTimeout) -> None:
        if not memory.timed_out:
            memory.timed_out = True
            self._recorder.record_timeout(str(action))
