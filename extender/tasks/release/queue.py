"""The groups with work: each is taken by one worker at a time, and namespaces take turns.

A group that is added while it is worked on is taken again afterwards. A namespace with ten thousand groups delays a group of
another namespace by one of its own. A group may be added for later, also for several times.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from heapq import heappop, heappush

from extender.model.release import GroupKey
from extender.tasks.ports import Clock


class GroupQueue:
    """`take` returns groups, for one caller at a time; each has to be given back with `done`. All else is O(log groups)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: OrderedDict[str, dict[GroupKey, None]] = OrderedDict()  # by namespace
        self._later: list[tuple[float, GroupKey]] = []
        self._due: set[tuple[float, GroupKey]] = set()
        self._working: set[GroupKey] = set()
        self._again: set[GroupKey] = set()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._ready.values()))

    def add(self, key: GroupKey) -> None:
        """Work on a group as soon as it is its turn."""
        if key in self._working:
            self._again.add(key)
            return
        self._ready.setdefault(key.namespace, {})[key] = None
        self._changed.set()

    def add_at(self, key: GroupKey, when: float) -> None:
        """Work on a group at a time of the clock, also if it is worked on before."""
        if (when, key) not in self._due:
            self._due.add((when, key))
            heappush(self._later, (when, key))
            self._changed.set()

    async def take(self) -> GroupKey:
        """The next group; waits until there is one."""
        while True:
            self._move_due()
            if self._ready:
                namespace, groups = self._ready.popitem(last=False)
                key = next(iter(groups))
                del groups[key]
                if groups:
                    self._ready[namespace] = groups  # at the end: the others are first
                self._working.add(key)
                return key
            await self._wait()

    def done(self, key: GroupKey) -> None:
        """The worker has left a group."""
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _move_due(self) -> None:
        now = self._clock.now()
        while self._later and self._later[0][0] <= now:
            found = heappop(self._later)
            self._due.discard(found)
            self.add(found[1])

    async def _wait(self) -> None:
        """Until a group is added, or the first of the later ones is due."""
        self._changed.clear()
        if not self._later:
            await self._changed.wait()
            return
        changed = asyncio.ensure_future(self._changed.wait())
        due = asyncio.ensure_future(self._clock.sleep(max(self._later[0][0] - self._clock.now(), 0.0)))
        try:
            await asyncio.wait({changed, due}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            due.cancel()
