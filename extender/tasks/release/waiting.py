"""Groups that wait for room. Two things wake them: room may have become free, or their turn in their namespace has come."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from extender.index.claims.assumed import Assumed
from extender.kube.timing import Clock
from extender.model.release import GroupKey

_PAUSES: Final = 10.0  # after a try no other one begins for ten times its duration
_SHORTEST: Final = 0.01
_ROOM_PAUSE: Final = 0.25  # changes that free room within this time lead to one try


def may_free_room(change: object) -> bool:
    """Whether more room may be free after a change of room or of an assumption.

    A pod that was assumed on several nodes counted on each. Once it is bound, forgotten or doubted it frees room on some.
    """
    old = getattr(change, "old", None)
    return not isinstance(old, Assumed) or not old.pod.node


@dataclass(slots=True)
class _Line:
    """The groups of a namespace by priority, each with the version of the room at its last try. ``ready``: no try before."""

    by_priority: dict[int, OrderedDict[GroupKey, int]] = field(default_factory=dict)
    priority_of: dict[GroupKey, int] = field(default_factory=dict)
    ready: float = 0.0

    def put(self, key: GroupKey, priority: int) -> OrderedDict[GroupKey, int]:
        """Adds the group behind its equals if it is not in the line; returns the groups of its priority."""
        # A group whose priority has changed goes to the end of the line of its new priority.
        if self.priority_of.get(key, priority) != priority:
            self.remove(key)
        self.priority_of[key] = priority
        groups = self.by_priority.setdefault(priority, OrderedDict())
        groups.setdefault(key, -1)
        return groups

    def remove(self, key: GroupKey) -> None:
        """Removes the group from the line."""
        priority = self.priority_of.pop(key, None)
        if priority is not None:
            groups = self.by_priority[priority]
            del groups[key]
            if not groups:
                del self.by_priority[priority]

    def first(self, version: int) -> GroupKey | None:
        """The next group to try: the first of its priority, of the highest priority whose first group is untried at this version.

        O(priorities).
        """
        for priority in sorted(self.by_priority, reverse=True):
            key = next(iter(self.by_priority[priority]))
            if self.by_priority[priority][key] != version:
                return key
        return None


class DecisionLines:
    """The groups that wait for room, in one line for each namespace. Only the first group of a line is tried.

    1. The highest priority is first; among equals the group whose last try is longest ago.
    2. Each namespace has a line of its own, so the priority of a group takes no turn from other namespaces.
    3. A try reads all nodes: 20 ms for 5,000. A tenant may create ten thousand groups that no domain can hold. So a group without
       room goes behind groups of the same priority, and is tried again only after room has changed.
    4. All tries together take at most a tenth of the time.

    ``version`` grows with every change that frees room. All methods are O(priorities of the namespace).
    """

    def __init__(self) -> None:
        self.version = 0
        self._lines: dict[str, _Line] = {}

    def __len__(self) -> int:
        return sum(len(line.priority_of) for line in self._lines.values())

    def is_turn(self, key: GroupKey, now: float, priority: int = 0) -> bool:
        """Whether a group may be tried now; if not, it stands in its line from now on."""
        line = self._lines.get(key.namespace)
        if line is None:
            return True
        line.put(key, priority)
        return line.first(self.version) == key and now >= line.ready

    def failed(self, key: GroupKey, version: int, now: float, seconds: float, priority: int = 0) -> None:
        """Puts a group that found no room behind its equals. ``version``: before the try. ``seconds``: the duration of the try."""
        line = self._lines.setdefault(key.namespace, _Line())
        groups = line.put(key, priority)
        groups[key] = version
        groups.move_to_end(key)
        # Times the number of lines, so that the tries of all namespaces together keep within a tenth of the time.
        line.ready = now + max(seconds * _PAUSES * len(self._lines), _SHORTEST)

    def retry(self, key: GroupKey) -> None:
        """Has a waiting group tried before its equals, because its policy has changed."""
        line = self._lines.get(key.namespace)
        if line is not None and key in line.priority_of:
            groups = line.by_priority[line.priority_of[key]]
            groups[key] = -1
            groups.move_to_end(key, last=False)

    def leave(self, key: GroupKey) -> None:
        """Removes a group that is decided or does not wait any more."""
        line = self._lines.get(key.namespace)
        if line is not None:
            line.remove(key)
            if not line.priority_of:
                del self._lines[key.namespace]

    def next_of(self, namespace: str) -> tuple[GroupKey, float] | None:
        """The next group of a namespace, and when it may be tried; None if no room was freed since the last tries."""
        line = self._lines.get(namespace)
        key = None if line is None else line.first(self.version)
        return None if line is None or key is None else (key, line.ready)

    def next_of_all(self) -> list[tuple[GroupKey, float]]:
        """`next_of` for each namespace. O(namespaces)."""
        return [key for namespace in self._lines if (key := self.next_of(namespace)) is not None]

    def clear(self) -> None:
        """The term has ended."""
        self._lines.clear()


class WaitingGroups:
    """All groups that wait for room: undecided groups in ``lines``, and decided groups without room for some pods."""

    def __init__(self, clock: Clock) -> None:
        self.lines = DecisionLines()
        self._clock = clock
        self._short: dict[GroupKey, None] = {}
        self._freed = asyncio.Event()

    def clear(self) -> None:
        """The term has ended."""
        self.lines.clear()
        self._short.clear()

    def set_short(self, key: GroupKey, *, is_short: bool) -> None:
        """Records whether a decided group lacks room, or may lose its room."""
        if is_short:
            self._short[key] = None
        else:
            self._short.pop(key, None)

    def room_changed(self, change: object = None) -> None:
        """More room may be free now. O(1)."""
        # Called for each change of room, so it costs nothing while no group waits.
        if (self._short or len(self.lines)) and may_free_room(change):
            self._freed.set()

    async def run(
        self, wake: Callable[[GroupKey, float], object], next_try: Callable[[GroupKey], float | None]
    ) -> None:
        """Wakes groups after changes, until cancelled. ``next_try``: the time before which a group is not tried; None if unknown."""
        while True:
            await self._freed.wait()
            self._freed.clear()
            self.lines.version += 1
            for key, when in self.lines.next_of_all():
                wake(key, when)
            for key in list(self._short):
                at = next_try(key)
                if at is not None:
                    wake(key, at)
            await self._clock.sleep(_ROOM_PAUSE)
