"""Groups as the release knows them: from the index, and from its own last steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from extender.index.charges import Charges
from extender.index.claims.reserved import Requests
from extender.index.cluster import ClusterIndex
from extender.index.gated import GatedPodState
from extender.model.group_placements import PlacementStatus
from extender.model.objects import Pod
from extender.model.release import ANYWHERE, GroupKey, GroupPhase, Level, NoRoom, ReleaseSpec
from extender.model.resources import PODS, Resources, add, quantity_text, total
from extender.verbs.release.progress import GroupState, GroupStep
from extender.verbs.release.states import Progress, State, Waiting, claimed_until, levels_of

_FIRST_WAIT: Final = 0.25
_WAITING: Final = frozenset({GroupPhase.COLLECTING, GroupPhase.DECIDING, GroupPhase.TIMED_OUT, GroupPhase.DEGRADED})
_LONGEST_WAIT: Final = 5.0
_NOTHING: Final[Resources] = {}


def group_state(key: GroupKey, index: ClusterIndex) -> GroupState | None:
    """A group as the index has it; None if it has no pod. O(its pods)."""
    group, pods = index.gated.groups.get(key), index.pods
    if group is None:
        return None
    by_role: dict[GatedPodState, list[Pod]] = {role: [] for role in GatedPodState}
    for uid, role in group.roles.items():
        by_role[role].append(pods[uid])
    waiting, blocked = by_role[GatedPodState.READY], by_role[GatedPodState.BLOCKED]
    created = [pod.gating.created for pod in (*waiting, *blocked) if pod.gating is not None and pod.gating.created]
    return GroupState(
        key,
        group.release,
        group.size,
        tuple(waiting),
        tuple((pod, _others(pod, group.release.gate)) for pod in blocked),
        tuple(by_role[GatedPodState.RELEASED]),
        tuple(by_role[GatedPodState.BOUND]),
        min(created, default=None),
    )


def read_again(group: GroupState, index: ClusterIndex) -> GroupState:
    """The group as the index has it now, with no pod at the gate or released that it had not before. O(its pods).

    Pods that were bound or deleted since need no room, and bound pods are siblings of the others.
    """
    now = group_state(group.key, index)
    if now is None:
        return replace(group, waiting=(), released=())
    waiting, released = ({pod.uid: pod for pod in part} for part in (now.waiting, now.released))
    before = (*group.waiting, *group.released)
    return replace(
        now,
        waiting=tuple(waiting[pod.uid] for pod in before if pod.uid in waiting),
        released=tuple(released[pod.uid] for pod in before if pod.uid in released),
    )


def _others(pod: Pod, gate: str) -> tuple[str, ...]:
    return tuple(other for other in pod.gating.gates if other != gate) if pod.gating is not None else ()


def quota_excess(
    group: GroupState, levels: Sequence[Level], charges: Charges, promised: Mapping[str, Resources]
) -> str:
    """Why the quota of a domain forbids to release the waiting pods of a group into it; empty if it does not.

    ``promised``: by domain, what pods of other groups will use and are not charged with yet. O(pods + domains + resources).
    """
    spec, policy = group.spec, group.key.policy
    if policy in charges.unsettled:
        return "has a quota: the policy has changed, and its pods are counted anew"
    needed = _limited(group.waiting, spec)
    listed = [domain.name for domain in spec.domains] or charges.domains_of(policy)  # of pods that are not narrowed
    for name in spec.names_of(levels[0].admitted) if levels else listed:
        used = total([charges.of(policy, name), promised.get(name, _NOTHING), promised.get(ANYWHERE, _NOTHING)])
        for resource, most in spec.quota_of(name).items():
            more = needed.get(resource, 0)
            if more and used.get(resource, 0) + more > most:
                has, wants, quota = (quantity_text(resource, amount) for amount in (used.get(resource, 0), more, most))
                return f"has a quota of {quota} {resource}: {has} used, {wants} more needed"
    return ""


def _limited(pods: Sequence[Pod], spec: ReleaseSpec) -> dict[str, int]:
    """What pods take of quotas. O(pods × resources)."""
    names = spec.limited - {PODS}
    amounts = {name: sum(pod.requests.get(name, 0) for pod in pods) for name in names}
    return {**amounts, PODS: len(pods)}


def runs_in(key: GroupKey, levels: Sequence[Level], index: ClusterIndex) -> bool:
    """Whether a pod of a group is on a node of a domain, or on a node that was deleted. O(its pods)."""
    group, view = index.gated.groups.get(key), index.view
    if group is None or not group.counts[GatedPodState.BOUND]:
        return False
    for uid, role in group.roles.items():
        number = view.known.get(index.pods[uid].node) if role is GatedPodState.BOUND else None
        node = None if number is None else view.node(number)
        if role is GatedPodState.BOUND and (
            node is None or all(node.labels.get(level.key) in level.admitted for level in levels)
        ):
            return True
    return False


@dataclass(frozen=True, slots=True)
class Goal:
    """What a group waits for: a decision, or room for the remaining pods. All times are of the monotonic clock.

    - ``since``: since when it waits.
    - ``is_timed_out``: its time is over, and the metric has counted that.
    - ``next_try``: no try is made before.
    - ``problem``: why the last try failed.
    - ``spec``: what the policy asked for at the last try of a decision.
    - ``preempts_from``: a victim could not be removed, so no pods are preempted before. 0 if none failed.
    """

    since: float
    is_timed_out: bool = False
    next_try: float = 0.0
    tries: int = 0
    problem: str = ""
    spec: ReleaseSpec | None = None
    preempts_from: float = 0.0

    def reached(self, now: float) -> Goal:
        """The next goal, for which the group begins to wait."""
        return replace(self, since=now, next_try=0.0, tries=0, is_timed_out=False)

    def failed(self, now: float) -> Goal:
        """After a try that has failed. The wait doubles, and is at most a few seconds."""
        next_try = now + min(_FIRST_WAIT * 2.0 ** min(self.tries, 16), _LONGEST_WAIT)
        return replace(self, next_try=next_try, tries=self.tries + 1)


@dataclass(frozen=True, slots=True)
class RequestingSchedulers:
    """The schedulers that send requests about the pods of a group.

    - ``schedulers``: have asked about a pod of the group.
    - ``released_at``: since when released pods wait whose scheduler has asked about no pod of the group.
    - ``unasked``: pods whose room was given back because their scheduler asks about nothing.
    """

    schedulers: frozenset[str] = frozenset()
    released_at: Mapping[str, float] = field(default_factory=dict)
    unasked: frozenset[str] = frozenset()

    def observe(
        self, group: GroupState, requests: Requests, now: float, seconds: float
    ) -> tuple[RequestingSchedulers, float | None]:
        """After a look at the requests, and when the room of more pods may be given back. O(pods of the group)."""
        # 1. A scheduler that has asked about one pod of the group will come to the others: they keep their room.
        # 2. A scheduler that asks about other pods may have a backlog before this group: the pods keep their room.
        # 3. A scheduler that has asked about nothing for `seconds`: the room of its pods is given back.
        asked = (pod.scheduler for pod in group.released if pod.uid in requests.pods)
        schedulers = self.schedulers.union((pod.scheduler for pod in group.bound), asked)
        waiting = [pod for pod in group.released if pod.scheduler not in schedulers]
        released_at = {pod.uid: self.released_at.get(pod.uid, now) for pod in waiting}
        due = {pod.uid: max(released_at[pod.uid], requests.last_of(pod.scheduler)) + seconds for pod in waiting}
        unasked = frozenset(uid for uid, at in due.items() if now >= at)
        return RequestingSchedulers(schedulers, released_at, unasked), min(
            (at for at in due.values() if at > now), default=None
        )


@dataclass(frozen=True, slots=True)
class Report:
    """The last step, and the status that was written last; ``status`` is None if it is not known what the object has."""

    step: GroupStep | None = None
    status: PlacementStatus | None = None
    written_at: float = float("-inf")


class Hold(NamedTuple):
    """What other groups wait for: how many released pods waited for nodes at the last look, and whether the domain was claimed."""

    without_nodes: int = 0
    is_claimed: bool = False


class GroupMemory(Progress):
    """What the leader remembers of a group between its steps, as immutable values.

    A new leader begins without it. What must survive is in the GroupPlacement and in the pods.
    """

    def __init__(self, first_seen: float, since: float, state: State | None = None) -> None:
        super().__init__(state or Waiting())
        self.first_seen: Final = first_seen
        self.goal = Goal(since)
        self.requesting = RequestingSchedulers()
        self.report = Report()
        self.hold = Hold()

    def wait(self, now: float, problem: str | None = None) -> float:
        """A try has failed; returns when the next one is made. ``problem``: None if it is still the same."""
        self.goal = self.goal.failed(now)
        if problem is not None:
            self.blocked(problem)
        return self.goal.next_try

    def blocked(self, problem: str) -> None:
        """Keeps the reason why the group waits; empty if nothing is in its way."""
        self.goal = replace(self.goal, problem=problem)

    def has_begun(self, group: GroupState) -> bool:
        """Whether any pod of the group is out."""
        return bool(group.released or group.bound or self.pods.sent)


class Memories(dict[GroupKey, GroupMemory]):
    """What is remembered, by group. Each method is O(groups)."""

    def oldest(self, now: float) -> float:
        """Seconds for which the group that waits longest has waited; 0 where none does."""
        waiting = [
            memory.goal.since
            for memory in self.values()
            if memory.report.step is not None and memory.report.step.phase in _WAITING
        ]
        return max(0.0, now - min(waiting, default=now))

    def counts(self) -> Counter[tuple[str, str]]:
        """How many groups there are, by phase and reason."""
        steps = [memory.report.step for memory in self.values() if memory.report.step is not None]
        return Counter((str(step.phase), str(step.reason)) for step in steps)

    def expected(self) -> int:
        """How many releases were sent and are not shown by the watch yet."""
        return sum(len(memory.pods.sent) for memory in self.values())

    def promised(self, group: GroupState, index: ClusterIndex, *, has_begun: bool) -> dict[str, dict[str, int]]:
        """By domain: what other groups of the policy will use of its quotas, beyond the charges of their released pods.

        O(groups + counted pods × resources).
        """
        # 1. For a group that has begun: pods of other groups that have room reserved, or whose release was sent.
        # 2. For a group that has not begun: all waiting pods of decided groups, so that it takes nothing away from them.
        # 3. A decided group that cannot begin counts only as in 1, because it may be decided anew.
        amounts: dict[str, dict[str, int]] = {}
        for other in index.gated:
            key, spec = other.key, other.release
            if key.policy != group.key.policy or key == group.key or not other.counts[GatedPodState.READY]:
                continue
            memory, levels = self.get(key), self._levels(key, index)
            if levels is None:
                continue
            sent: Container[str] = memory.pods.sent if memory is not None else ()
            left = [uid for uid, role in other.roles.items() if role is GatedPodState.READY]
            out = [uid for uid in left if uid in sent or uid in index.reserved.held]
            is_held_up = bool(memory is not None and memory.goal.problem and not (out or other.placed))
            chosen = out if has_begun or is_held_up else left[: max(other.size - other.placed, len(out))]
            amount = _limited([index.pods[uid] for uid in chosen], spec)
            for name in spec.names_of(levels[0].admitted if levels else None):
                add(amounts.setdefault(name, {}), amount)
        return amounts

    def waiting_for_nodes(self, group: GroupState, index: ClusterIndex) -> tuple[int, int]:
        """How many other groups of the namespace wait for nodes, and how many pods of them: an autoscaler sees these pods.

        They were released without room, or are being released without it. O(groups + pods of these groups).
        """
        groups = pods = 0
        for other in index.gated:
            key, spec = other.key, other.release
            if key.namespace != group.key.namespace or key == group.key or not spec.does(NoRoom.GROWING_DOMAIN):
                continue
            levels = self._levels(key, index)
            if levels is None or not spec.may_grow(levels):
                continue
            without = [role for uid, role in other.roles.items() if uid not in index.reserved.held]
            due = min(without.count(GatedPodState.READY), max(other.size - other.placed, 0))
            waiting = without.count(GatedPodState.RELEASED) + due
            groups += waiting > 0
            pods += waiting
        return groups, pods

    def _levels(self, key: GroupKey, index: ClusterIndex) -> tuple[Level, ...] | None:
        """The domain of a group, as remembered, or by its object. None without a decision."""
        if (memory := self.get(key)) is not None:
            return levels_of(memory.state)
        placement = index.placements.of(key)
        decision = None if placement is None else placement.decision
        return None if decision is None else decision.levels

    def domains_of_others(
        self, group: GroupState, index: ClusterIndex, now: float
    ) -> list[tuple[GroupKey, tuple[Level, ...]]]:
        """The domains of other groups of a policy that gives each group a domain of its own.

        A group has its domain while pods of it run there, and before that until ``claimed_until``.
        """
        return [
            (key, levels)
            for key, memory in self.items()
            if key.policy == group.key.policy and key != group.key and (levels := levels_of(memory.state)) is not None
            if now < claimed_until(memory.state) or runs_in(key, levels, index)
        ]
