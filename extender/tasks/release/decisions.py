"""Decides for a group: chooses a domain, reserves room in it, and writes the decision down, in this order.

Choosing and reserving are one step without a pause, so that two groups never get the same room. Where writing fails the
reservation ends, and the decision is made again; if it was written after all, the next try finds it and it stands.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Protocol

from extender.index.claims.reserved import Reservations
from extender.index.gated import GatedGroups, Role
from extender.kube.effects import PodRef
from extender.kube.errors import KubeError
from extender.kube.timing import Clock
from extender.model.group_placements import PlacementStatus
from extender.model.objects import Pod
from extender.model.release import Decision, GroupKey, Level, OnTimeout, Phase, Proposal, is_own_group
from extender.model.resources import PODS, Resources, total
from extender.model.units import agreeing, counted
from extender.settings.policies import Release
from extender.tasks.leader_election import LeadershipLost
from extender.tasks.release.writes import PlacementWriter
from extender.telemetry.metrics import ReleaseMetrics
from extender.verbs.release.progress import Do, GroupState, Reason, Step, message_of

_FIRST_WAIT: Final = 0.25
_REFUSED_FOR: Final = 300.0
_LONGEST_WAIT: Final = 5.0


@dataclass(frozen=True, slots=True)
class ManagerOptions:
    """Seconds: until the object of a group without pods is deleted, and until a pod that is not seen released is read."""

    keep_empty: float = 300.0
    expectation: float = 60.0


@dataclass(slots=True)
class GroupMemory:
    """Times are those of the monotonic clock.

    ``since``: when the group began to wait for what it waits for now: a decision, or room for pods that are left.
    ``is_waiting``: for pods, a decision or room. ``is_placed``: as many pods as the group has have been released. ``has_expired``: the time for which room was reserved for
    its released pods was over before they were bound.
    ``next_try``: no decision is tried before. ``without_room``: its time is over, so pods are released also where the
    domain has no room. ``refused``: by UID, why the API server refuses a release. ``gone``: pods that do not exist, though
    the watch shows them still.
    """

    first_seen: float
    since: float
    decision: Decision | None = None
    without_room: bool = False
    is_placed: bool = False
    timed_out: bool = False
    is_waiting: bool = False
    was_bound: bool = False
    has_expired: bool = False
    next_try: float = 0.0
    tries: int = 0
    reserved_until: float = 0.0
    emptied: float | None = None
    told: PlacementStatus | None = None
    problem: str = ""
    refused: dict[str, str] = field(default_factory=dict)
    refused_until: float = 0.0
    gone: set[str] = field(default_factory=set)

    def refuse(self, uid: str, why: str, now: float) -> float:
        """The API server refuses the release of a pod; returns when it is tried again: the cause may be an admission plugin."""
        self.refused[uid] = why
        self.refused_until = now + _REFUSED_FOR
        return self.refused_until

    def forget_pods(self, waiting: set[str], now: float) -> None:
        """Forgets what was known of pods that do not wait any more, and refusals that are tried again."""
        self.gone &= waiting
        if now >= self.refused_until:
            self.refused.clear()

    def wait(self, now: float) -> float:
        """A try has failed; returns when the next one is made. The wait doubles, and is at most a few seconds."""
        self.next_try = now + min(_FIRST_WAIT * 2.0 ** min(self.tries, 16), _LONGEST_WAIT)
        self.tries += 1
        return self.next_try

    def progress(self, now: float) -> None:
        """What it waited for has come."""
        self.since, self.next_try, self.tries, self.timed_out = now, 0.0, 0, False

    def is_late(self, now: float, timeout: float) -> bool:
        """Whether it has waited for longer than its policy allows."""
        return now - self.since >= timeout


class Expectations:
    """Pods whose release was sent and that the watch still shows as gated, by group and UID. They count as released.

    A lost event must not block a group for ever, so an expectation expires after ``seconds``, and then the pod is read.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._sent: dict[GroupKey, dict[str, float]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._sent.values()))

    def expect(self, group: GroupKey, uids: Iterable[str], now: float) -> float:
        """The release of these pods is sent now; returns when the expectation expires."""
        until = now + self._seconds
        self._sent.setdefault(group, {}).update(dict.fromkeys(uids, until))
        return until

    def of(self, group: GroupKey) -> frozenset[str]:
        """The pods of a group that are expected. O(those)."""
        return frozenset(self._sent.get(group, ()))

    def clear(self, group: GroupKey, uid: str) -> None:
        """The pod is known to be gated, or not to exist."""
        found = self._sent.get(group)
        if found is None:
            return
        found.pop(uid, None)
        if not found:
            del self._sent[group]

    def observe(self, group: GroupKey, gated: Iterable[str]) -> None:
        """Clears the pods that the watch does not show as gated any more. O(pods of the group)."""
        found = self._sent.get(group)
        if found is not None:
            shown = set(gated)
            for uid in [uid for uid in found if uid not in shown]:
                self.clear(group, uid)

    def late(self, group: GroupKey, now: float) -> list[str]:
        """The pods of a group whose expectation has expired."""
        return [uid for uid, until in self._sent.get(group, {}).items() if now >= until]


_PAUSES: Final = 10.0  # a try is followed by ten times its time without one
_SHORTEST: Final = 0.01


@dataclass(slots=True)
class _Line:
    """The groups of a namespace, each with the version of the room at which it was last tried. ``ready``: no try before."""

    tried: OrderedDict[GroupKey, int] = field(default_factory=OrderedDict)
    ready: float = 0.0


class DecisionLines:
    """The groups that wait for room, in one line for each namespace: only the first of a line is decided.

    A decision looks at all nodes: 20 ms for 5,000. A tenant may create ten thousand groups that nothing can hold. So a group
    that found no room goes to the end of its line and is not tried again until room has changed, and all lines together take
    a tenth of the time. ``version`` grows with every change that frees room. All methods are O(1).
    """

    def __init__(self) -> None:
        self.version = 0
        self._lines: dict[str, _Line] = {}

    def __len__(self) -> int:
        return sum(len(line.tried) for line in self._lines.values())

    def is_turn(self, key: GroupKey, now: float) -> bool:
        """Whether a group may be tried now; if not, it stands in its line from now on."""
        line = self._lines.get(key.namespace)
        if line is None:
            return True
        if key not in line.tried:
            line.tried[key] = -1
        return next(iter(line.tried)) == key and line.tried[key] != self.version and now >= line.ready

    def failed(self, key: GroupKey, version: int, now: float, seconds: float) -> None:
        """A group found no room in a try of so many seconds: it goes to the end. ``version`` is that before the try."""
        line = self._lines.setdefault(key.namespace, _Line())
        line.tried[key] = version
        line.tried.move_to_end(key)
        line.ready = now + max(seconds * _PAUSES * len(self._lines), _SHORTEST)

    def leave(self, key: GroupKey) -> None:
        """A group is decided, or does not wait any more."""
        line = self._lines.get(key.namespace)
        if line is not None:
            line.tried.pop(key, None)
            if not line.tried:
                del self._lines[key.namespace]

    def next_of(self, namespace: str) -> tuple[GroupKey, float] | None:
        """The group of a namespace that is to be tried next, and when; None where room has not changed since its last try."""
        line = self._lines.get(namespace)
        if line is None:
            return None
        key = next(iter(line.tried))
        return None if line.tried[key] == self.version else (key, line.ready)

    def next_of_all(self) -> list[tuple[GroupKey, float]]:
        """The same for all namespaces. O(namespaces)."""
        return [found for namespace in self._lines if (found := self.next_of(namespace)) is not None]

    def clear(self) -> None:
        """The term has ended."""
        self._lines.clear()


class Propose(Protocol):
    """Where the pods of a group that have no node may go together; implemented by `verbs.release`."""

    def __call__(
        self, group: GroupState, levels: Sequence[Level] | None, taken: Sequence[tuple[GroupKey, Sequence[Level]]]
    ) -> Proposal:
        """``levels``: the domain that is decided, None where any may be chosen; ``taken``: those of other groups. O(nodes)."""


class IndexGroups:
    """Implements `ports.IndexGroups`."""

    def __init__(self, gated: GatedGroups, pods: Mapping[str, Pod]) -> None:
        self._gated = gated
        self._pods = pods

    def __iter__(self) -> Iterator[GroupKey]:
        return iter(list(self._gated.groups))

    def of(self, key: GroupKey) -> GroupState | None:
        """A group, None where no pod of it is left. O(its pods)."""
        found = self._gated.groups.get(key)
        if found is None:
            return None
        by_role: dict[Role, list[Pod]] = {role: [] for role in Role}
        for uid, role in found.roles.items():
            by_role[role].append(self._pods[uid])
        waiting, blocked = by_role[Role.READY], by_role[Role.BLOCKED]
        created = [pod.gating.created for pod in (*waiting, *blocked) if pod.gating is not None and pod.gating.created]
        return GroupState(
            key,
            found.release,
            found.size,
            tuple(waiting),
            tuple((pod, _others(pod, found.release.gate)) for pod in blocked),
            tuple(by_role[Role.RELEASED]),
            tuple(by_role[Role.BOUND]),
            min(created, default=None),
        )


class NamespaceBudget:
    """Implements `ports.NamespaceBudget`, by the limits per namespace in the settings. ``offered``: what all nodes offer together."""

    def __init__(self, reservations: Reservations, offered: Resources, settings: Release) -> None:
        self._reservations = reservations
        self._offered = offered
        self._settings = settings

    def excess(self, group: GroupState) -> str:
        """Why room may not be reserved for one more group, empty where it may. O(groups with room + its pods)."""
        namespace, settings = group.key.namespace, self._settings
        groups = self._reservations.groups_in(namespace)
        if groups >= settings.groups_per_namespace:
            return f"release.groupsPerNamespace: {counted(groups, 'group')} of the namespace {agreeing(groups, 'has', 'have')} room reserved"
        room = total([self._reservations.room_of(namespace), *(pod.requests for pod in group.waiting)])
        reserved, needed = self._reservations.room_of(namespace).get(PODS, 0), len(group.waiting)
        if reserved + needed > settings.pods_per_namespace:
            limit = f"more than {counted(settings.pods_per_namespace, 'pod')}"
            return f"release.podsPerNamespace: with {counted(needed, 'pod')} the namespace would have room reserved for {limit}"
        share = settings.share_per_namespace
        for name, amount in room.items() if reserved else ():  # the first group may be larger: else it would never run
            if name != PODS and amount > share * self._offered.get(name, 0):
                return f"release.sharePerNamespace: the namespace would have more than {share:.0%} of {name} reserved"
        return ""


def _others(pod: Pod, gate: str) -> tuple[str, ...]:
    return tuple(each for each in pod.gating.gates if each != gate) if pod.gating is not None else ()


_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Room:
    """Where room is found and reserved. ``has_node``: whether pods may go to a node. ``expiry``: seconds of a reservation."""

    propose: Propose
    budget: NamespaceBudget
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
        recorder: ReleaseMetrics,
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
