"""Chooses what can be done for a group of gated pods now: in which domain, with which room, or why it waits.

Room is reserved in the same step in which it is chosen, so that two groups never get the same room. Nothing is written here:
`reconciler` carries out the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from extender.index.claims.reserved import Reservations
from extender.index.cluster import ClusterIndex
from extender.index.trial import TrialSteps
from extender.kube.timing import Clock
from extender.model.objects import Pod
from extender.model.release import (
    GroupDecision,
    GroupKey,
    GroupPhase,
    Level,
    NoRoom,
    Proposal,
    RejectedDomain,
    ReleaseSpec,
)
from extender.model.resources import PODS, Resources, total
from extender.model.units import agreeing, counted
from extender.settings.policies import Release
from extender.tasks.fair_queue import DecisionLines, RateLimiter
from extender.tasks.release.groups import GroupMemory, Memories, quota_excess, read_again
from extender.tasks.sliced_work import in_slices
from extender.telemetry.metrics import ReleaseMetrics
from extender.verbs.release.progress import Do, GroupState, GroupStep, WaitReason, beyond, coarser_levels, message_of
from extender.verbs.release.states import (
    Bound,
    Displaced,
    DomainChosen,
    DomainFull,
    Expired,
    Placed,
    Preempting,
    Resumed,
    RoomNeeded,
    RoomReserved,
    Unasked,
    VictimsChosen,
    VictimsGone,
)

_PREEMPTS_NONE: Final = "; pods of lower priority run, and the policy preempts none of them"
_MOST_TRIES: Final = 3  # of a proposal
_PLACED_PER_SECOND: Final = 1e6  # no limit: one proposal after the other
_NOTHING: Final[Resources] = {}

NO_PLACE: Final = frozenset({WaitReason.NO_ROOM, WaitReason.QUOTA, WaitReason.PREEMPTING})

Excess: TypeAlias = Callable[[Sequence[Level]], str]
Propose: TypeAlias = Callable[
    [GroupState, Sequence[Level] | None, Sequence[tuple[GroupKey, Sequence[Level]]], Excess],
    TrialSteps[Proposal],
]
"""Where the pods of a group without a node may go together. Implemented by `verbs.release`. O(nodes).

Arguments: the group; the decided domain, or None if any may be chosen; the domains that other groups have, which are left out; a
function that says why the quota of a domain forbids it.
"""


def claim_of(spec: ReleaseSpec, levels: Sequence[Level], settings: Release) -> float:
    """The seconds after its decision in which a domain is the group's own although no pod of it runs there."""
    return max(settings.reservation, spec.last_after if spec.may_grow(levels) else 0.0)


def budget_excess(
    key: GroupKey,
    pods: Sequence[Pod],
    reserved: Reservations,
    offered: Resources,
    limits: Release,
    *,
    alone: bool = False,
) -> str:
    """Why room may not be reserved for these pods, in place of the present room of the group; empty if it may.

    ``offered``: what all nodes offer. ``alone``: as if no other group of the namespace had room. O(groups with room + pods).
    """
    groups, room = (0, _NOTHING) if alone else reserved.beside(key)
    if groups >= limits.groups_per_namespace:
        return f"release.groupsPerNamespace: {counted(groups, 'group')} of the namespace {agreeing(groups, 'has', 'have')} room reserved"
    held, needed = room.get(PODS, 0), len(pods)
    if held + needed > limits.pods_per_namespace:
        limit = f"more than {counted(limits.pods_per_namespace, 'pod')}"
        return f"release.podsPerNamespace: with {counted(needed, 'pod')} the namespace would have room reserved for {limit}"
    share = limits.share_per_namespace
    for name, amount in total([room, *(pod.requests for pod in pods)]).items():
        if name != PODS and amount > share * offered.get(name, 0):
            return f"release.sharePerNamespace: the namespace would have more than {share:.0%} of {name} reserved"
    return ""


class StepChooser:
    """Turns the next step of a group into one that has room, or into one that waits.

    ``lines`` are the groups that wait for room, by namespace. ``has_node``: whether pods may go to a node, by its name.
    """

    def __init__(
        self,
        index: ClusterIndex,
        memories: Memories,
        lines: DecisionLines,
        propose: Propose,
        has_node: Callable[[str], bool],
        recorder: ReleaseMetrics,
        clock: Clock,
        settings: Release,
    ) -> None:
        self._index = index
        self._memories = memories
        self._lines = lines
        self._propose = propose
        self._has_node = has_node
        self._recorder = recorder
        self._clock = clock
        self._settings = settings
        self._placing = RateLimiter(clock, 1, _PLACED_PER_SECOND)

    async def choose(self, group: GroupState, memory: GroupMemory, step: GroupStep) -> GroupStep:
        """The same step if it needs no room or has room now; otherwise a step that waits. Writes nothing."""
        # 1. Complete and without a decision: choose a domain.
        # 2. Incomplete, and its time is over: let go as the last action says.
        # 3. Decided, with pods at the gate: released if the quota and the room allow it. The quota is checked again after the
        #    room, because other groups may have been released while the room was searched. A group that preempts for another
        #    domain goes on with that.
        # 4. Decided, with pods beyond its size: as many as the domain has room for.
        # 5. All released, some not bound: their room stays reserved.
        now = self._clock.now()
        _resume(group, memory, step, now)
        is_late = now - memory.goal.since >= group.spec.last_after
        is_given_up = is_late and group.spec.last is not NoRoom.WAIT
        decision = memory.decision
        if step.do is Do.DECIDE:
            step = await self._choose_domain(group, memory, is_given_up=is_given_up)
        elif decision is None and is_given_up and group.waiting:
            return await self._let_go(group, memory)  # a group that never fills
        elif isinstance(memory.state, Preempting) and step.do is Do.RELEASE:
            step = await self._choose_domain(
                group, memory, is_given_up=is_given_up
            )  # its room may be in another domain
        elif decision is not None and step.do is Do.RELEASE:
            over = self._over_quota(group, memory, decision)
            problem = over or await self.problem_of_room(group, memory, decision)
            over = self._over_quota(group, memory, decision)  # others may have been released meanwhile
            if over or (problem and not group.spec.may_grow(decision.levels)):
                step = await self._without_room(group, memory, over or problem, is_given_up=is_given_up)
        elif decision is not None and step.do is Do.GROW:
            step = await self._grow(group, memory, decision, step, is_given_up=is_given_up)
        elif decision is not None and group.released:
            step = await self._keep_room(group, memory, decision, step)
        if step.do is Do.WAIT and is_late and step.phase not in {GroupPhase.BOUND, GroupPhase.RELEASING}:
            self._time_out(memory, NoRoom.WAIT)
            return replace(step, phase=GroupPhase.TIMED_OUT)
        return step

    async def _choose_domain(self, group: GroupState, memory: GroupMemory, *, is_given_up: bool) -> GroupStep:
        """Chooses a domain for a complete group. A step that waits says why."""
        # 1. Not the group's turn in its namespace: it waits.
        # 2. Too much room is reserved for the namespace already: it waits for that. A group that is too large alone is
        #    placed without a reservation.
        # 3. Pods of lower priority would have to leave: see `_wait_for_room`.
        # 4. Room now: it is reserved.
        # 5. A domain without room, for an autoscaler: within the limit of pods that may wait for nodes.
        # 6. No domain: it waits for room.
        begun, version = self._clock.now(), self._lines.version
        self._try_early_if_changed(group, memory, begun)
        if not is_given_up and not self._lines.is_turn(group.key, begun, group.priority):
            return _wait_for_turn(memory)
        excess = self._excess(group, group.waiting)
        is_too_large = bool(excess) and bool(self._excess(group, group.waiting, alone=True))
        waits = not (is_given_up or is_too_large)
        proposal = Proposal() if excess and waits else await self._place(group, memory, None)
        excess = excess or self._excess(group, group.waiting)  # room may have been reserved for others meanwhile
        if excess and waits:
            memory.blocked("")
            return self._wait_for_budget(group, version, begun, excess)
        if proposal.victims:
            return await self._wait_for_room(group, memory, proposal, version, begun, is_given_up=is_given_up)
        if proposal.slots and not excess:
            self._reserve(group, proposal)
        # Levels without slots: the pods are released to wait for nodes there, and an autoscaler sees them.
        waits_for_nodes = bool(proposal.levels) and not proposal.slots
        if waits_for_nodes and not is_given_up and (excess := self._growth_excess(group)):
            memory.blocked(excess)
            return self._wait_for_budget(group, version, begun, excess)
        if proposal.slots or proposal.levels:
            memory.blocked("")
            # For a group that is too large there is room now, and none is kept from others.
            needs_room = not is_too_large if proposal.slots else memory.needs_room
            return self._chosen(group, memory, proposal.levels, needs_room=needs_room)
        return await self._wait_for_room(group, memory, proposal, version, begun, is_given_up=is_given_up)

    def _chosen(
        self,
        group: GroupState,
        memory: GroupMemory,
        levels: tuple[Level, ...],
        *,
        needs_room: bool,
    ) -> GroupStep:
        claimed = self._clock.now() + claim_of(group.spec, levels, self._settings)
        memory.record(DomainChosen(levels, claimed, needs_room))
        return GroupStep(Do.DECIDE, GroupPhase.DECIDED, WaitReason.DECIDED, levels=levels)

    def _try_early_if_changed(self, group: GroupState, memory: GroupMemory, now: float) -> None:
        """Puts a group before its equals if its policy asks for something else now, or if the pause after a failed preemption is over."""
        goal, spec = memory.goal, group.spec.at(now - memory.goal.since)
        is_over = bool(goal.preempts_from) and now >= goal.preempts_from
        if goal.spec != spec or is_over:
            self._lines.retry(group.key)
            memory.goal = replace(goal, spec=spec, preempts_from=0.0 if is_over else goal.preempts_from)

    def _wait_for_budget(self, group: GroupState, version: int, begun: float, excess: str) -> GroupStep:
        """The group waits, because a limit of its namespace is reached. ``begun``: when this try began."""
        now = self._clock.now()
        self._lines.failed(group.key, version, now, now - begun, group.priority)
        return GroupStep(Do.WAIT, GroupPhase.DECIDING, WaitReason.BUDGET, excess)

    async def _wait_for_room(
        self,
        group: GroupState,
        memory: GroupMemory,
        proposal: Proposal,
        version: int,
        begun: float,
        *,
        is_given_up: bool,
    ) -> GroupStep:
        """No domain has room for the group now. Pods of lower priority are preempted, if that helps and the group may."""
        preempts_from = memory.goal.preempts_from
        memory.blocked(memory.goal.problem if preempts_from else message_of(proposal))
        if is_given_up:
            return await self._let_go(group, memory, replace(proposal, slots=(), victims=()))
        now = self._clock.now()
        self._lines.failed(group.key, version, now, now - begun, group.priority)
        if proposal.victims and (preempts_from or self._excess(group, group.waiting)):
            # A victim could not be removed shortly ago, or the room could not be kept from others.
            proposal = replace(proposal, slots=(), victims=())
        if proposal.victims:
            memory.record(VictimsChosen(proposal.victims, self._reserve(group, proposal)))
        if isinstance(memory.state, Preempting):
            left = [uid for uid in memory.state.victims if uid in self._index.pods]
            if left and self._index.reserved.pods_of(group.key):
                problem = f"{counted(len(left), 'pod')} of lower priority hold the room, and are preempted"
                memory.blocked(problem)
                do = Do.PREEMPT if proposal.victims else Do.WAIT
                return GroupStep(do, GroupPhase.DECIDING, WaitReason.PREEMPTING, problem, victims=proposal.victims)
            memory.record(VictimsGone())  # the room does not hold the group: the next try looks for other victims
            self._index.reserved.release(group.key)
        is_over = bool(proposal.rejected) and all(rejected.excess for rejected in proposal.rejected)
        only_waits = not (group.spec.does(NoRoom.PREEMPT) or group.spec.does(NoRoom.GROWING_DOMAIN) or is_over)
        if only_waits and self._index.view.has_below(group.priority):
            # No number: it would change with each pod, and each change would be a write for each waiting group.
            memory.blocked(memory.goal.problem + _PREEMPTS_NONE)
        reason = WaitReason.QUOTA if is_over else WaitReason.NO_ROOM
        return GroupStep(Do.WAIT, GroupPhase.DECIDING, reason, memory.goal.problem)

    async def _let_go(self, group: GroupState, memory: GroupMemory, proposal: Proposal | None = None) -> GroupStep:
        """The time of the group is over: its pods are released without room for all of them, as the last action says.

        `CoarserDomain`: into the domain of the first topology key that holds most pods. The other pods wait there for
        nodes, which a cluster autoscaler adds. Without such a domain all pods are released unpinned.
        """
        levels: tuple[Level, ...] = ()
        if group.spec.last is NoRoom.COARSER_DOMAIN:
            levels = coarser_levels(await self._place(group, memory, None) if proposal is None else proposal)
        self._time_out(memory, group.spec.last)
        return self._chosen(group, memory, levels, needs_room=False)

    def _over_quota(self, group: GroupState, memory: GroupMemory, decision: GroupDecision) -> str:
        """Why the quota of the decided domain forbids to release the waiting pods now; empty if it does not.

        A group without a released pod gives up its room then. Otherwise two such groups would wait for each other.
        """
        over = self._quota(group, memory)(decision.levels)
        if not over:
            return ""
        if not memory.has_begun(group):
            self._index.reserved.release(group.key)
        problem = f"{decision.levels[0]} {over}" if decision.levels else over
        memory.blocked(problem)
        if self._clock.now() >= memory.goal.next_try:
            memory.wait(self._clock.now())
        return problem

    async def problem_of_room(self, group: GroupState, memory: GroupMemory, decision: GroupDecision) -> str:
        """Reserves room in the decided domain for the pods without room. Why there is none; empty if there is."""
        if unasked := memory.requesting.unasked:  # their room was given back
            group = replace(group, released=tuple(pod for pod in group.released if pod.uid not in unasked))
        pods = (*group.waiting, *group.released)
        if not memory.needs_room or all(self._has_slot(pod) for pod in pods if pod.uid not in memory.pods.absent):
            return ""
        if self._clock.now() < memory.goal.next_try:
            return memory.goal.problem or "no room"
        problem = self._excess(group, pods)
        memory.blocked(problem)
        is_needed = bool(group.bound) or not (problem and self._excess(group, pods, alone=True))
        memory.record(RoomNeeded(is_needed))
        proposal = Proposal() if problem else await self._place(group, memory, decision.levels)
        problem = problem or self._excess(group, pods)  # as in `_choose_domain`
        memory.blocked(problem)
        if problem:
            memory.wait(self._clock.now())
            return problem if is_needed else ""
        if proposal.slots:
            memory.record(RoomReserved(self._reserve(group, proposal)))
            return ""
        if not decision.levels:
            return ""  # the pods are not pinned: the scheduler places each of them anywhere, or lets it wait
        if not self._need_room(pods):
            return ""  # all of them were bound or deleted meanwhile
        problem = message_of(proposal)
        memory.wait(self._clock.now(), problem)
        await self.keep_released(group, memory, decision)
        return problem

    async def keep_released(self, group: GroupState, memory: GroupMemory, decision: GroupDecision) -> None:
        """Reserves room for the released pods alone: they are pinned to the domain, whether or not the others follow."""
        group = replace(group, waiting=tuple(pod for pod in group.waiting if pod.uid in memory.pods.sent))
        pods = (*group.waiting, *group.released)
        is_missing = not all(map(self._has_slot, pods))
        if is_missing and not self._excess(group, pods):
            proposal = await self._place(group, memory, decision.levels)
            if proposal.slots and not self._excess(group, pods):
                memory.record(RoomReserved(self._reserve(group, proposal)))

    async def _keep_room(
        self, group: GroupState, memory: GroupMemory, decision: GroupDecision, step: GroupStep
    ) -> GroupStep:
        """Pods are released and not bound: their room is reserved, for as long as the settings allow."""
        if isinstance(memory.state, Expired | Unasked):
            text = f"{len(group.released)} released pods are not bound, and their room is not reserved any more"
            return GroupStep(Do.WAIT, GroupPhase.DEGRADED, WaitReason.NOT_BOUND, text)
        if group.spec.may_grow(decision.levels):
            return await self._wait_for_nodes(group, memory, decision, step)
        problem = await self.problem_of_room(group, memory, decision)
        return GroupStep(Do.WAIT, GroupPhase.DEGRADED, WaitReason.DOMAIN_FULL, problem) if problem else step

    async def _wait_for_nodes(
        self, group: GroupState, memory: GroupMemory, decision: GroupDecision, step: GroupStep
    ) -> GroupStep:
        """Pods that were released without room. Room is reserved once there is enough for all, in the turn of their namespace."""
        begun, version = self._clock.now(), self._lines.version
        if all(map(self._has_slot, group.released)):
            return step
        if self._lines.is_turn(group.key, begun, group.priority):
            memory.goal = replace(memory.goal, next_try=0.0)
            if not await self.problem_of_room(group, memory, decision):
                return step
            now = self._clock.now()
            self._lines.failed(group.key, version, now, now - begun, group.priority)
        return GroupStep(Do.WAIT, GroupPhase.RELEASING, WaitReason.NO_NODES_YET, memory.goal.problem)

    async def _without_room(
        self, group: GroupState, memory: GroupMemory, problem: str, *, is_given_up: bool
    ) -> GroupStep:
        """The decided domain has no room for the remaining pods: its nodes were lost, or others took unreserved room.

        A released pod cannot be moved, and a group is never split. So the group gets another domain only while none of its
        released pods exists.
        """
        is_placed = isinstance(memory.decided, Placed)
        may_move = group.spec.moves or not is_placed or memory.goal.tries > 1
        if may_move and not memory.has_begun(group):
            memory.record(DomainFull())
            return await self._choose_domain(group, memory, is_given_up=is_given_up)
        if is_given_up:
            memory.record(RoomNeeded(is_needed=False))
            self._recorder.record_timeout(str(group.spec.last))
        return GroupStep(Do.RELEASE if is_given_up else Do.WAIT, GroupPhase.DEGRADED, WaitReason.DOMAIN_FULL, problem)

    async def _grow(
        self, group: GroupState, memory: GroupMemory, decision: GroupDecision, step: GroupStep, *, is_given_up: bool
    ) -> GroupStep:
        """Releases pods beyond the size of a group, the first ones, as many as its domain has room for.

        None of them needs the others, so a part may go. At most log2(pods) tries, mostly two.
        """
        pods, sent = step.pods, group.waiting[len(step.pods) :]
        if not memory.needs_room and not is_given_up:
            if group.released:
                text = f"{beyond(len(pods))} until the released pods have a node, as no room is reserved for these"
                return replace(step, do=Do.WAIT, message=text)
            memory.record(RoomNeeded(is_needed=True))
        count = len(pods)
        while count > 1 and self._clock.now() >= memory.goal.next_try:
            chosen = replace(group, waiting=(*pods[:count], *sent))
            holds = await self._holds(chosen, memory, decision.levels) - len(sent)
            if holds >= count:
                break
            count = max(min(holds, count - 1 if count == len(pods) else count // 2), 1)
        chosen = replace(group, waiting=(*pods[:count], *sent))
        problem = self._over_quota(chosen, memory, decision) or await self.problem_of_room(chosen, memory, decision)
        over = self._over_quota(chosen, memory, decision)  # others may have been released meanwhile
        if not over and group.spec.may_grow(decision.levels) and not all(map(self._has_slot, pods[:count])):
            memory.record(RoomNeeded(is_needed=True))
            own = sum(not self._has_slot(pod) for pod in (*group.released, *sent))
            shown = self._memories.waiting_for_nodes(group, self._index)[1] + own
            count = min(count, max(self._settings.pods_per_namespace - shown, 0))
            problem = "" if count else f"release.podsPerNamespace: {shown} pods of the namespace wait for nodes"
        problem = over or problem
        if problem and not is_given_up:
            return GroupStep(Do.WAIT, GroupPhase.DEGRADED, WaitReason.DOMAIN_FULL, f"{beyond(len(pods))}: {problem}")
        if problem:
            self._time_out(memory, group.spec.last)
        return replace(step, do=Do.RELEASE, pods=pods if problem else pods[:count])

    async def _holds(self, group: GroupState, memory: GroupMemory, levels: Sequence[Level]) -> int:
        """How many of the gated pods the domain may hold beside the released ones. All of them only if that is certain."""
        most = len(group.waiting)
        if self._excess(group, (*group.waiting, *group.released)) or self._quota(group, memory)(levels):
            return most // 2
        if group.spec.may_grow(levels):
            return most
        proposal = await self._place(group, memory, levels)
        if proposal.slots or not levels:
            return most
        return max((rejected.holds for rejected in proposal.rejected), default=0) - len(group.released)

    def _has_slot(self, pod: Pod) -> bool:
        """Whether room is reserved for the pod on a node that still takes pods. True also for a pod that has a node."""
        slot, known = self._index.reserved.held.get(pod.uid), self._index.pods.get(pod.uid)
        return (slot is not None and self._has_node(slot.node)) or (known is not None and bool(known.node))

    def _need_room(self, pods: Sequence[Pod]) -> list[Pod]:
        """The pods that still exist and have no node yet. O(pods)."""
        known = ((pod, self._index.pods.get(pod.uid)) for pod in pods)
        return [pod for pod, now in known if now is not None and not (now.node or now.finished or now.terminating)]

    async def _place(self, group: GroupState, memory: GroupMemory, levels: Sequence[Level] | None) -> Proposal:
        """A proposal, made in slices, for one group at a time. It is valid until the caller awaits anything else."""
        # 1. For a decided domain the group is read here, because pods may be bound or deleted while the group waits for its turn. A
        #    bound pod would ask for a second place, and a released pod would get no room although the domain has enough.
        # 2. Without a decided domain deleted pods ask too, because the domain is to hold the pods that replace them.
        # 3. The proposal is made again if pods of the group were bound or deleted between its slices, or if groups that were
        #    decided meanwhile have used up the quota.
        async with self._placing.acquire(group.key.namespace):
            begun = self._clock.now()
            taken = self._memories.domains_of_others(group, self._index, begun) if group.spec.exclusive else []
            over, proposal = "", Proposal()
            group = replace(group, spec=group.spec.at(begun - memory.goal.since))
            for _ in range(_MOST_TRIES):
                if levels is not None:
                    group = read_again(group, self._index)
                steps = self._propose(group, levels, taken, self._quota(group, memory))
                proposal = await in_slices(steps, self._clock)
                over = self._quota(group, memory)(proposal.levels) if proposal.levels else ""
                asked = (*group.waiting, *group.released)
                if not over and (levels is None or len(self._need_room(asked)) == len(asked)):
                    break
        if over:
            proposal = Proposal(rejected=(RejectedDomain(proposal.levels[0], len(group.waiting), excess=over),))
        self._recorder.record_decision("room" if proposal.slots else "no_room", self._clock.now() - begun)
        return proposal

    def _quota(self, group: GroupState, memory: GroupMemory) -> Excess:
        """A function: why the quota of a domain forbids to release the waiting pods. Valid until the caller awaits anything."""
        index = self._index
        if not group.spec.has_quotas or not group.waiting:
            return lambda _: ""
        promised = self._memories.promised(group, index, has_begun=memory.has_begun(group))
        return lambda levels: quota_excess(group, levels, index.gated.charges, promised)

    def _excess(self, group: GroupState, pods: Sequence[Pod], *, alone: bool = False) -> str:
        index = self._index
        return budget_excess(group.key, pods, index.reserved, index.view.offered, self._settings, alone=alone)

    def _growth_excess(self, group: GroupState) -> str:
        """Why the pods of the group may not wait for nodes too; empty if they may. The only group of a namespace always may."""
        groups, pods = self._memories.waiting_for_nodes(group, self._index)
        needed, limits = len(group.waiting), self._settings
        if groups >= limits.groups_per_namespace:
            waiting = f"{counted(groups, 'group')} of the namespace {agreeing(groups, 'waits', 'wait')}"
            return f"release.groupsPerNamespace: {waiting} for nodes"
        if groups and pods + needed > limits.pods_per_namespace:
            limit = f"more than {counted(limits.pods_per_namespace, 'pod')}"
            return f"release.podsPerNamespace: with {counted(needed, 'pod')} of it {limit} of the namespace would wait for nodes"
        return ""

    def _reserve(self, group: GroupState, proposal: Proposal) -> float:
        """Until when the room is reserved."""
        until = self._clock.now() + self._settings.reservation
        self._index.reserved.reserve(group.key, proposal.slots, until)
        return until

    def _time_out(self, memory: GroupMemory, action: NoRoom) -> None:
        if not memory.goal.is_timed_out:
            memory.goal = replace(memory.goal, is_timed_out=True)
            self._recorder.record_timeout(str(action))


def _resume(group: GroupState, memory: GroupMemory, step: GroupStep, now: float) -> None:
    """A bound group has pods that are due, or a pod of a group that looks for another domain is out."""
    if isinstance(memory.state, Bound) and step.phase is not GroupPhase.BOUND:
        memory.record(Resumed())
        memory.goal = replace(memory.goal, since=now)
    is_displaced = isinstance(memory.state, Displaced | Preempting) and memory.decided is not None
    if is_displaced and memory.has_begun(group):
        memory.record(Resumed())


def _wait_for_turn(memory: GroupMemory) -> GroupStep:
    """Other groups of the namespace come first. The group keeps the message of its last try."""
    if not memory.goal.problem:
        others = "its turn has not come: other groups of the namespace wait for room too"
        return GroupStep(Do.WAIT, GroupPhase.DECIDING, WaitReason.BUDGET, others)
    before = memory.report.step.reason if memory.report.step is not None else WaitReason.NO_ROOM
    reason = before if before in {*NO_PLACE, WaitReason.BUDGET} else WaitReason.NO_ROOM
    return GroupStep(Do.WAIT, GroupPhase.DECIDING, reason, memory.goal.problem)
