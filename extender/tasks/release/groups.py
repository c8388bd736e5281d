"""Groups as the release knows them: from the index, from its own last steps, and in the line for room of their namespace."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from extender.index.claims.reserved import Reservations
from extender.index.gated import GatedGroups, Role
from extender.model.group_placements import PlacementStatus
from extender.model.objects import Pod
from extender.model.release import Decision, GroupKey, Level
from extender.model.resources import PODS, Resources, total
from extender.model.units import agreeing, counted
from extender.settings.policies import Release
from extender.verbs.release.progress import GroupState, Step

_FIRST_WAIT: Final = 0.25
_REFUSED_FOR: Final = 300.0
_LONGEST_WAIT: Final = 5.0
_PAUSES: Final = 10.0  # a try is followed by ten times its time without one
_SHORTEST: Final = 0.01


def group_state(key: GroupKey, gated: GatedGroups, pods: Mapping[str, Pod]) -> GroupState | None:
    """A group as the index has it, None where no pod of it is left. O(its pods)."""
    found = gated.groups.get(key)
    if found is None:
        return None
    by_role: dict[Role, list[Pod]] = {role: [] for role in Role}
    for uid, role in found.roles.items():
        by_role[role].append(pods[uid])
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


def _others(pod: Pod, gate: str) -> tuple[str, ...]:
    return tuple(each for each in pod.gating.gates if each != gate) if pod.gating is not None else ()


def budget_excess(group: GroupState, reserved: Reservations, offered: Resources, limits: Release) -> str:
    """Why a namespace may have no room reserved for one more group, empty where it may. ``offered``: what all nodes offer.

    O(groups with room + its pods).
    """
    namespace = group.key.namespace
    groups = reserved.groups_in(namespace)
    if groups >= limits.groups_per_namespace:
        return f"release.groupsPerNamespace: {counted(groups, 'group')} of the namespace {agreeing(groups, 'has', 'have')} room reserved"
    room = total([reserved.room_of(namespace), *(pod.requests for pod in group.waiting)])
    held, needed = reserved.room_of(namespace).get(PODS, 0), len(group.waiting)
    if held + needed > limits.pods_per_namespace:
        limit = f"more than {counted(limits.pods_per_namespace, 'pod')}"
        return f"release.podsPerNamespace: with {counted(needed, 'pod')} the namespace would have room reserved for {limit}"
    share = limits.share_per_namespace
    for name, amount in room.items() if held else ():  # the first group may be larger: else it would never run
        if name != PODS and amount > share * offered.get(name, 0):
            return f"release.sharePerNamespace: the namespace would have more than {share:.0%} of {name} reserved"
    return ""


@dataclass(slots=True)
class GroupMemory:
    """Times are those of the monotonic clock.

    ``since``: when the group began to wait for what it waits for now: a decision, or room for pods that are left.
    ``levels``: the domain that it has or is being given. ``sent``: by UID, pods whose release was sent and that the watch
    still shows as gated; they count as released until the time given, when they are read: a lost event must not block a
    group for ever. ``gone``: pods that do not exist, though the watch shows them still. ``refused``: by UID, why the API
    server refuses a release. ``without_room``: its time is over, so pods are released also where the domain has no room.
    ``is_placed``: as many pods as the group has have been released. ``has_expired``: the time for which room was reserved
    for its released pods was over before they were bound. ``next_try``: no decision is tried before. ``step`` is the last
    one, and ``told`` the status that was written last, at ``told_at``. ``emptied``: when its last pod went.
    """

    first_seen: float
    since: float
    decision: Decision | None = None
    levels: tuple[Level, ...] | None = None
    sent: dict[str, float] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    refused_until: float = 0.0
    without_room: bool = False
    is_placed: bool = False
    timed_out: bool = False
    was_bound: bool = False
    has_expired: bool = False
    next_try: float = 0.0
    tries: int = 0
    problem: str = ""
    reserved_until: float = 0.0
    step: Step | None = None
    told: PlacementStatus | None = None
    told_at: float = float("-inf")
    emptied: float | None = None

    def observe(self, group: GroupState, now: float) -> None:
        """Forgets what was known of pods that do not wait any more, and refusals that are tried again. O(its pods)."""
        waiting = {pod.uid for pod in group.waiting}
        self.sent = {uid: until for uid, until in self.sent.items() if uid in waiting}
        self.gone &= waiting
        if now >= self.refused_until:
            self.refused.clear()

    def refuse(self, uid: str, why: str, now: float) -> float:
        """The API server refuses the release of a pod; returns when it is tried again: the cause may be an admission plugin."""
        self.refused[uid] = why
        self.refused_until = now + _REFUSED_FOR
        return self.refused_until

    def wait(self, now: float) -> float:
        """A try has failed; returns when the next one is made. The wait doubles, and is at most a few seconds."""
        self.next_try = now + min(_FIRST_WAIT * 2.0 ** min(self.tries, 16), _LONGEST_WAIT)
        self.tries += 1
        return self.next_try

    def progress(self, now: float) -> None:
        """What it waited for has come."""
        self.since, self.next_try, self.tries, self.timed_out = now, 0.0, 0, False


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
