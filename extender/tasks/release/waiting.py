"""Groups that wait for room, and what wakes them: room that may have become free, and their turn in the line of their namespace."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from extender.index.claims.assumed import Assumed
from extender.kube.timing import Clock
from extender.model.release import GroupKey

_PAUSES: Final = 10.0  # a try is followed by ten times its time without one
_SHORTEST: Final = 0.01
_ROOM_PAUSE: Final = 0.25  # changes that free room within this time lead to one try


def may_free_room(change: object) -> bool:
    """Whether more room may be free after a change of room or of an assumption.

    A pod that was assumed on several nodes keeps less once it is on one of them, on none, or in doubt: then it counts once.
    """
    old = getattr(change, "old", None)
    return not isinstance(old, Assumed) or not old.pod.node


@dataclass(slots=True)
class _Line:
    """The groups of a namespace by priority, each with the version of the room at which it was last tried. ``ready``: no try before."""

    by_priority: dict[int, OrderedDict[GroupKey, int]] = field(default_factory=dict)
    priority_of: dict[GroupKey, int] = field(default_factory=dict)
    ready: float = 0.0

    def put(self, key: GroupKey, priority: int) -> OrderedDict[GroupKey, int]:
        """The groups of its priority, with the group among them: at the end, if it was not."""
        if self.priority_of.get(key, priority) != priority:
            self.remove(key)
        self.priority_of[key] = priority
        groups = self.by_priority.setdefault(priority, OrderedDict())
        groups.setdefault(key, -1)
        return groups

    def remove(self, key: GroupKey) -> None:
        """The group is not in the line any more."""
        priority = self.priority_of.pop(key, None)
        if priority is not None:
            groups = self.by_priority[priority]
            del groups[key]
            if not groups:
                del self.by_priority[priority]

    def first(self, version: int) -> GroupKey | None:
        """The first group of the highest priority of which the first was not tried at this version of the room. O(priorities)."""
        for priority in sorted(self.by_priority, reverse=True):
            key = next(iter(self.by_priority[priority]))
            if self.by_priority[priority][key] != version:
                return key
        return None


class DecisionLines:
    """The groups that wait for room, in one line for each namespace: only the first of a line is decided.

    The higher priority is first, and of equals the group that was tried the longest time ago. Namespaces have lines of their own,
    so the priority of a group takes nothing from the turns of other namespaces.

    A decision looks at all nodes: 20 ms for 5,000. A tenant may create ten thousand groups that nothing can hold. So a group
    that found no room goes behind its equals and is not tried again until room has changed, and all lines together take
    a tenth of the time. ``version`` grows with every change that frees room. All methods are O(priorities of the namespace).
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
        """A group found no room in a try of so many seconds: it goes behind its equals. ``version`` is that before the try."""
        line = self._lines.setdefault(key.namespace, _Line())
        groups = line.put(key, priority)
        groups[key] = version
        groups.move_to_end(key)
        line.ready = now + max(seconds * _PAUSES * len(self._lines), _SHORTEST)

    def retry(self, key: GroupKey) -> None:
        """What its policy asks for has changed: if a group stands in its line, it is tried before its equals."""
        line = self._lines.get(key.namespace)
        if line is not None and key in line.priority_of:
            groups = line.by_priority[line.priority_of[key]]
            groups[key] = -1
            groups.move_to_end(key, last=False)

    def leave(self, key: GroupKey) -> None:
        """A group is decided, or does not wait any more."""
        line = self._lines.get(key.namespace)
        if line is not None:
            line.remove(key)
            if not line.priority_of:
                del self._lines[key.namespace]

    def next_of(self, namespace: str) -> tuple[GroupKey, float] | None:
        """The group of a namespace that is to be tried next, and when; None where room has not changed since its last try."""
        line = self._lines.get(namespace)
        key = None if line is None else line.first(self.version)
        return None if line is None or key is None else (key, line.ready)

    def next_of_all(self) -> list[tuple[GroupKey, float]]:
        """The same for all namespaces. O(namespaces)."""
        return [key for namespace in self._lines if (key := self.next_of(namespace)) is not None]

    def clear(self) -> None:
        """The term has ended."""
        self._lines.clear()


class WaitingGroups:
    """All groups that wait for room: those that are not decided in ``lines``, and decided ones that lack room for some pods."""

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
        """Whether a decided group lacks room, or may lose what it has."""
        if is_short:
            self._short[key] = None
        else:
            self._short.pop(key, None)

    def room_changed(self, change: object = None) -> None:
        """More room may be free now. O(1)."""
        if (self._short or len(self.lines)) and may_free_room(change):
            self._freed.set()

    async def run(
        self, wake: Callable[[GroupKey, float], object], next_try: Callable[[GroupKey], float | None]
    ) -> None:
        """Wakes groups after changes, until cancelled. ``next_try``: before when a decided group is not tried; None for none."""
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
