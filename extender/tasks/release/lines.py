"""The groups that wait for room, in one line for each namespace: only the first of a line is decided.

A decision looks at all nodes: 20 ms for 5,000. A tenant may create ten thousand groups that nothing can hold, and each change
of room may help any of them. So a group that found no room goes to the end of its line and is not tried again until room has
changed, and all lines together take a tenth of the time. A group of another namespace has a line of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from extender.model.release import GroupKey

_PAUSES: Final = 10.0  # a try is followed by ten times its time without one
_SHORTEST: Final = 0.01


@dataclass(slots=True)
class _Line:
    """The groups of a namespace, each with the version of the room at which it was last tried. ``ready``: no try before."""

    tried: OrderedDict[GroupKey, int] = field(default_factory=OrderedDict)
    ready: float = 0.0


class DecisionLines:
    """``version`` grows with every change that frees room. All methods are O(1)."""

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
