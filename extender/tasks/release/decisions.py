"""Decides for a group: chooses a domain, reserves room in it, and writes the decision down, in this order.

Choosing and reserving are one step without a pause, so that two groups never get the same room. Where writing fails the
reservation ends, and the decision is made again; if it was written after all, the next try finds it and it stands.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from extender.kube.effects import PodRef
from extender.kube.errors import KubeError
from extender.model.objects import Pod
from extender.model.release import Decision, GroupKey, Level, OnTimeout, Phase, Proposal, is_own_group
from extender.model.units import counted
from extender.tasks.leadership.state import LeadershipLost
from extender.tasks.ports import Clock
from extender.tasks.release.lines import DecisionLines
from extender.tasks.release.memory import GroupMemory
from extender.tasks.release.placement_writer import PlacementWriter
from extender.tasks.release.ports import Budget, Propose, ReleaseRecorder, Reservations
from extender.verbs.release.progress import Do, GroupState, Reason, Step, message_of

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Room:
    """Where room is found and reserved. ``has_node``: whether pods may go to a node. ``expiry``: seconds of a reservation."""

    propose: Propose
    budget: Budget
    reservations: Reservations
    has_node: Callable[[str], bool]
    expiry: float


class Decisions:
    """Makes decisions and keeps the room of those that were made. ``domains``: of the groups that have pods."""

    def __init__(
        self,
        room: Room,
        placements: PlacementWriter,
        clock: Clock,
        utc_now: Callable[[], datetime],
        recorder: ReleaseRecorder,
        owner_of: Callable[[PodRef], Awaitable[Mapping[str, str] | None]],
    ) -> None:
        self.domains: dict[GroupKey, Sequence[Level]] = {}
        self.lines = DecisionLines()
        self._room = room
        self._placements = placements
        self._clock = clock
        self._utc_now = utc_now
        self._recorder = recorder
        self._owner_of = owner_of

    async def decide(self, group: GroupState, memory: GroupMemory, levels: Sequence[Level] | None = None) -> Step:
        """Decides for a group that is complete, in ``levels`` where these are given. A step that waits says why."""
        now = self._clock.now()
        late = memory.is_late(now, group.spec.decision_timeout)
        is_let_go = late and group.spec.on_timeout is not OnTimeout.KEEP_GATED
        if not is_let_go and not self.lines.is_turn(group.key, now):
            return _in_line(memory)
        version, excess = self.lines.version, self._room.budget.excess(group)
        if excess and not is_let_go:
            self.lines.failed(group.key, version, now, 0.0)
            memory.problem = ""
            return Step(Do.WAIT, Phase.DECIDING, Reason.BUDGET, excess)
        proposal = self._propose(group, levels)
        if proposal.slots:
            memory.without_room = False
            return await self._write(group, memory, proposal.levels, proposal)
        memory.problem = message_of(proposal)
        if is_let_go:
            return await self.let_go(group, memory, proposal)
        then = self._clock.now()
        self.lines.failed(group.key, version, then, then - now)
        return _no_room(memory.problem)

    async def let_go(self, group: GroupState, memory: GroupMemory, proposal: Proposal | None = None) -> Step:
        """Its time is over: its pods are released without room for all of them, as `OnTimeout` says.

        At the coarser level: in the domain of the first topology key that holds most of them, where those that it does
        not hold wait for nodes, as a cluster autoscaler adds them. Without any such domain they are released unpinned.
        """
        levels: tuple[Level, ...] = ()
        if group.spec.on_timeout is OnTimeout.UNGATE_AT_COARSER_LEVEL:
            proposal = self._propose(group, None) if proposal is None else proposal
            if proposal.slots:
                levels = proposal.levels[:1]
            elif proposal.rejected:
                levels = (min(proposal.rejected, key=lambda each: (-each.holds, each.domain)).domain,)
        memory.without_room = True
        self._time_out(memory, str(group.spec.on_timeout))
        return await self._write(group, memory, levels, slots=None)

    def keep_gated(self, group: GroupState, memory: GroupMemory, step: Step) -> Step:
        """Its time is over, and its pods stay gated: they are released as soon as what they wait for comes."""
        del group
        self._time_out(memory, str(OnTimeout.KEEP_GATED))
        return Step(step.do, Phase.TIMED_OUT, step.reason, step.message)

    def has_room(self, group: GroupState, memory: GroupMemory, decision: Decision) -> str:
        """Reserves room in the decided domain for the pods that have none yet; why there is none, empty where there is."""
        pods = (*group.waiting, *group.released)
        if memory.without_room:
            return ""
        if all(self._has_slot(pod) for pod in pods if pod.uid not in memory.gone):
            return ""
        if self._clock.now() < memory.next_try:
            return memory.problem or "no room"
        proposal = self._propose(group, decision.levels)
        if proposal.slots:
            self._reserve(group, memory, proposal)
            return ""
        if not decision.levels:
            return ""  # they are not pinned: the scheduler finds room for each of them, or waits
        memory.wait(self._clock.now())
        memory.problem = message_of(proposal)
        self.keep_released(group, memory, decision)
        return memory.problem

    def keep_released(self, group: GroupState, memory: GroupMemory, decision: Decision) -> None:
        """Reserves room for the released pods alone: they are pinned to the domain, whatever comes of their siblings."""
        if group.released and not all(map(self._has_slot, group.released)):
            proposal = self._propose(replace(group, waiting=()), decision.levels)
            if proposal.slots:
                self._reserve(group, memory, proposal)

    def _has_slot(self, pod: Pod) -> bool:
        """Whether room is reserved for a pod on a node that still takes pods."""
        node = self._room.reservations.node_of(pod.uid)
        return bool(node) and self._room.has_node(node)

    def _propose(self, group: GroupState, levels: Sequence[Level] | None) -> Proposal:
        begun = self._clock.now()
        proposal = self._room.propose(group, levels, self._taken(group))
        self._recorder.record_decision("room" if proposal.slots else "no_room", self._clock.now() - begun)
        return proposal

    def _taken(self, group: GroupState) -> list[tuple[GroupKey, Sequence[Level]]]:
        """The domains of other groups, where the policy gives each group a domain of its own. O(groups)."""
        if not group.spec.exclusive:
            return []
        policy = group.key.policy
        return [(key, levels) for key, levels in self.domains.items() if key.policy == policy and key != group.key]

    def _reserve(self, group: GroupState, memory: GroupMemory, proposal: Proposal) -> None:
        memory.reserved_until = self._clock.now() + self._room.expiry
        self._room.reservations.reserve(group.key, proposal.slots, memory.reserved_until)

    async def _write(
        self, group: GroupState, memory: GroupMemory, levels: Sequence[Level], slots: Proposal | None
    ) -> Step:
        decided = self._utc_now().replace(microsecond=0)  # what the API server keeps
        decision = Decision(group.key, group.spec.gate, max(group.size, 1), tuple(levels), decided)
        if slots is not None:
            self._reserve(group, memory, slots)
        self.domains[group.key] = decision.levels
        try:
            stands = await self._placements.decide(decision, memory.decision, await self._owner(group))
        except LeadershipLost:
            raise
        except KubeError as error:
            self._room.reservations.release(group.key)
            self.domains.pop(group.key, None)
            memory.wait(self._clock.now())
            return Step(Do.WAIT, Phase.DECIDING, Reason.NOT_WRITTEN, f"the decision cannot be written: {error}")
        self.lines.leave(group.key)
        memory.decision = stands
        self.domains[group.key] = stands.levels
        memory.progress(self._clock.now())
        if stands != decision:
            self._room.reservations.release(group.key)
        where = ", ".join(map(str, stands.levels)) or "any node"
        _LOG.info("decided", extra={"group": str(group.key), "policy": group.key.policy, "domain": where})
        return Step(Do.RELEASE, Phase.DECIDED, Reason.DECIDED, f"{counted(group.ready, 'pod')} may go to {where}")

    async def _owner(self, group: GroupState) -> Mapping[str, str] | None:
        """What the object is deleted with: the controller where that makes the group, or the pod that is one of its own."""
        pod = _first_pod(group)
        if is_own_group(group.key):
            return {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        return None if group.spec.group_label else await self._owner_of(pod)

    def _time_out(self, memory: GroupMemory, action: str) -> None:
        if not memory.timed_out:
            memory.timed_out = True
            self._recorder.record_timeout(action)


def _first_pod(group: GroupState) -> PodRef:
    return PodRef.of(next(iter((*group.waiting, *group.released, *group.bound))))


def _in_line(memory: GroupMemory) -> Step:
    """What was said after its last try still holds; before its first one, that others are before it."""
    if memory.problem:
        return _no_room(memory.problem)
    text = "its turn has not come: other groups of the namespace wait for room too"
    return Step(Do.WAIT, Phase.DECIDING, Reason.BUDGET, text)


def _no_room(text: str) -> Step:
    return Step(Do.WAIT, Phase.DECIDING, Reason.NO_ROOM, text)
