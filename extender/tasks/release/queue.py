"""The groups with work: each is taken by one worker at a time, those of the namespace that had least work first.

A group that is added while it is worked on is taken again afterwards. A namespace with ten thousand groups delays those of
another namespace by what is under way, until both had as much work. A group may be added for later, also for several times.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from heapq import heappop, heappush
from typing import Final

from extender.model.release import GroupKey
from extender.tasks.namespace_limiter import NamespaceUsage
from extender.tasks.ports import Clock

MOST_IN_WORK: Final = 8
_REST_A_POD: Final = 2e-5  # seconds between two looks at a group, each of which costs 0.1 us a pod


class GroupQueue:
    """`take` returns groups, for one caller at a time; each has to be given back with `done`. O(namespaces with work); all else is O(log groups)."""

    def __init__(self, clock: Clock, most_in_work: int = MOST_IN_WORK) -> None:
        """``most_in_work``: groups of one namespace at a time, so that a worker is left for those of others."""
        self._clock = clock
        self._usage = NamespaceUsage(clock)
        self._ready: dict[str, dict[GroupKey, None]] = {}  # by namespace
        self._later: list[tuple[float, GroupKey]] = []
        self._due: set[tuple[float, GroupKey]] = set()
        self._working: set[GroupKey] = set()
        self._in_work: Counter[str] = Counter()  # groups by namespace
        self._most_in_work = most_in_work
        self._again: set[GroupKey] = set()
        self._resting: dict[GroupKey, float] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._ready.values()))

    def add(self, key: GroupKey) -> None:
        """Work on a group as soon as it is its turn, and has rested."""
        if key in self._working:
            self._again.add(key)
            return
        rests_until = self._resting.get(key)
        if rests_until is not None:
            if self._clock.now() < rests_until:
                self.add_at(key, rests_until)
                return
            del self._resting[key]
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
            open_ = [namespace for namespace in self._ready if self._in_work[namespace] < self._most_in_work]
            if open_:
                namespace = self._usage.least(open_)
                self._usage.charge(namespace)
                groups = self._ready[namespace]
                key = next(iter(groups))
                del groups[key]
                if not groups:
                    del self._ready[namespace]
                self._working.add(key)
                self._in_work[namespace] += 1
                return key
            await self._wait()

    def done(self, key: GroupKey, pods: int = 0) -> None:
        """The worker has left a group, which has so many pods: a large one rests, whatever changes meanwhile."""
        if pods:
            self._resting[key] = self._clock.now() + pods * _REST_A_POD
        else:
            self._resting.pop(key, None)
        if key in self._working:
            self._working.discard(key)
            self._in_work[key.namespace] -= 1
            if not self._in_work[key.namespace]:
                del self._in_work[key.namespace]
            self._changed.set()
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
