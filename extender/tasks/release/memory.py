"""What the manager remembers in its term. Nothing of it is needed to continue: a new leader begins without.

`Expectations` are the pods whose release was sent and that the watch has not shown yet. A late watch shows them as gated. They
count as released until the watch shows them without the gate or deleted, or until the write is known to have failed. A lost
event must not block a group for ever, so an expectation expires, and then the pod is read from the API server.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from extender.model.group_placements import PlacementStatus
from extender.model.release import Decision, GroupKey

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
    """By group and UID. ``seconds``: until one expires."""

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
