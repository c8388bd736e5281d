"""Shares work and writes between namespaces: the namespace that used least is first."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Container, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Final, Generic, TypeVar

from extender.kube.timing import Clock
from extender.model.bounded import Steps
from extender.model.release import GroupKey

_HALF_LIFE: Final = 60.0  # seconds: what was used so long ago counts half
_NOTHING: Final = 0.01
_MOST_KEPT: Final = 1000  # namespaces; above this, namespaces whose usage has decayed are forgotten


class NamespaceUsage:
    """How much each namespace has used lately: what it used decays, so that a burst is not held against it for long."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._used: dict[str, tuple[float, float]] = {}

    def charge(self, namespace: str) -> None:
        """Counts one more use of the namespace. Amortised O(1)."""
        now = self._clock.now()
        self._used[namespace] = self._of(namespace, now) + 1.0, now
        if len(self._used) > _MOST_KEPT:
            self._used = {
                namespace: used for namespace, used in self._used.items() if self._of(namespace, now) > _NOTHING
            }

    def used(self, namespace: str) -> float:
        """What the namespace has used, decayed until now. O(1)."""
        return self._of(namespace, self._clock.now())

    def least(self, namespaces: Iterable[str]) -> str:
        """The namespace that has used least; the first of equals. O(namespaces)."""
        now = self._clock.now()
        return min(namespaces, key=lambda namespace: self._of(namespace, now))

    def _of(self, namespace: str, now: float) -> float:
        used, when = self._used.get(namespace, (0.0, now))
        left: float = used * 0.5 ** ((now - when) / _HALF_LIFE)
        return left


T = TypeVar("T")


class FairBacklog(Generic[T]):
    """Waiting items by namespace. Above ``longest`` the namespace with most items loses its last one."""

    def __init__(self, clock: Clock, longest: float = inf) -> None:
        self._usage = NamespaceUsage(clock)
        self._longest = longest
        self._waiting: dict[str, deque[T]] = {}
        self._count = 0
        self._added = asyncio.Event()

    def __len__(self) -> int:
        return self._count

    def add(self, namespace: str, item: T) -> T | None:
        """Adds an item; returns the item that is dropped for it, perhaps the new one. O(1), or O(namespaces) when full."""
        self._waiting.setdefault(namespace, deque()).append(item)
        self._count += 1
        self._added.set()
        if self._count <= self._longest:
            return None
        # Among equals the namespace of the new item loses it, so that no earlier item is dropped for it.
        largest = max(self._waiting, key=lambda name: (len(self._waiting[name]), name == namespace))
        return self._remove(largest, -1)

    def pop(self, closed: Container[str] = ()) -> T | None:
        """The first item of the namespace that used least and is not ``closed``; None if there is none. O(namespaces)."""
        open_ = [namespace for namespace in self._waiting if namespace not in closed]
        if not open_:
            return None
        namespace = self._usage.least(open_)
        self._usage.charge(namespace)
        return self._remove(namespace, 0)

    async def take(self) -> T:
        """Waits for an item and pops it. For one caller or several."""
        while (item := self.pop()) is None:
            self._added.clear()
            await self._added.wait()
        return item

    def _remove(self, namespace: str, place: int) -> T:
        here = self._waiting[namespace]
        item = here[place]
        del here[place]
        if not here:
            del self._waiting[namespace]
        self._count -= 1
        return item


class RateLimiter:
    """At most ``at_once`` holders, and ``per_second`` new ones a second; as many as ``at_once`` may begin in a burst.

    Each namespace is first in, first out. A place is given only when its holder may begin at once. Otherwise the first
    callers would take all places in advance, and a namespace that comes later would wait behind them.
    """

    def __init__(self, clock: Clock, at_once: int, per_second: float) -> None:
        self._clock = clock
        self._free = at_once
        self._gap = 1.0 / per_second
        self._burst = self._gap * at_once
        self._next = clock.now()
        self._usage = NamespaceUsage(clock)
        self._waiting: dict[str, deque[asyncio.Future[float]]] = {}
        self._is_pacing = False
        self._users = 0
        self._last_release = float("-inf")

    @property
    def last_busy(self) -> float:
        """When a place was last held or waited for: now, while one is."""
        return self._clock.now() if self._users else self._last_release

    @asynccontextmanager
    async def acquire(self, namespace: str = "") -> AsyncIterator[None]:
        """Waits for the turn of the namespace, a free place and the rate, and holds the place until the block is left.

        Without a namespace callers are first in, first out: for equally urgent writes, such as all writes of preemptions.
        """
        self._users += 1
        try:
            seconds = await self._turn(namespace)
            try:
                if seconds > 0:
                    await self._pace(seconds)
                yield
            finally:
                self._free += 1
                self._grant()
        finally:
            self._users -= 1
            self._last_release = self._clock.now()

    async def _turn(self, namespace: str) -> float:
        """Waits for a place; returns the seconds until the rate allows the holder to begin."""
        waiter: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(waiter)
        self._grant()
        try:
            return await waiter
        except asyncio.CancelledError:
            # The place may have been given in the same iteration of the loop in which the caller was cancelled. It would be
            # lost, and with `is_pacing` all later callers would wait for a sleep that nothing does.
            if waiter.done() and not waiter.cancelled():
                self._free += 1
                self._is_pacing = self._is_pacing and waiter.result() <= 0
                self._grant()
            raise

    async def _pace(self, seconds: float) -> None:
        """Waits until the rate allows one more. Until then no other caller gets a place."""
        try:
            await self._clock.sleep(seconds)
        finally:
            self._is_pacing = False
            self._grant()

    def _grant(self) -> None:
        """Gives the free places, each to the namespace that has used least. O(waiting namespaces) for each place."""
        while self._free and not self._is_pacing and self._waiting:
            namespace = self._usage.least(self._waiting)
            waiters = self._waiting[namespace]
            waiter = waiters.popleft()
            if not waiters:
                del self._waiting[namespace]
            if not waiter.done():  # else it was cancelled
                self._usage.charge(namespace)
                self._free -= 1
                # `next` is when the rate allows this holder. After a pause it lags by one burst at most, so that no more
                # than `at_once` holders begin together.
                now = self._clock.now()
                self._next = max(self._next, now - self._burst) + self._gap
                self._is_pacing = self._next > now
                waiter.set_result(self._next - now)


def turns_of_work(clock: Clock) -> RateLimiter:
    """One place without a rate, for `in_turns`."""
    return RateLimiter(clock, 1, inf)


async def in_turns(steps: Steps[T], turns: RateLimiter, namespace: str) -> T:
    """The result of all steps. Each step is a turn, and the namespace that used least has the next turn.

    An iteration of the event loop runs one step, so other tasks wait for one step at most. A turn costs 5 µs.
    """
    while True:
        async with turns.acquire(namespace):
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                await asyncio.sleep(0)  # with the place, else what came in the same iteration would follow in it


MOST_IN_WORK: Final = 8
_REST_A_POD: Final = 2e-5  # seconds between two looks at a group; a look costs 0.1 us a pod


class GroupQueue:
    """Groups to work on. `take` gives a group to one caller at a time, which returns it with `done`.

    `take` costs O(namespaces with work), everything else O(log groups).
    """

    def __init__(self, clock: Clock, most_in_work: int = MOST_IN_WORK) -> None:
        """``most_in_work``: groups of one namespace at a time, so that a worker is left for other namespaces."""
        self._clock = clock
        self._most_in_work = most_in_work
        self._changed = asyncio.Event()
        self.clear()

    def clear(self) -> None:
        """Forgets all groups, also groups in work."""
        self._ready: FairBacklog[GroupKey] = FairBacklog(self._clock)
        self._queued: set[GroupKey] = set()
        self._later: list[tuple[float, GroupKey]] = []
        self._due: set[tuple[float, GroupKey]] = set()
        self._working: set[GroupKey] = set()
        self._in_work: Counter[str] = Counter()  # groups by namespace
        self._again: set[GroupKey] = set()
        self._resting: dict[GroupKey, float] = {}

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, key: GroupKey) -> None:
        """Queues a group. It is taken when it has rested and its turn comes."""
        # 1. A worker has it: `done` queues it again, because the worker may have read it before this change.
        # 2. It rests: queued for the end of the rest, so that a large group that changes all the time leaves room for others.
        # 3. Else it joins the line of its namespace, once.
        if key in self._working:
            self._again.add(key)
            return
        rests_until = self._resting.get(key)
        if rests_until is not None:
            if self._clock.now() < rests_until:
                self.add_at(key, rests_until)
                return
            del self._resting[key]
        if key not in self._queued:
            self._queued.add(key)
            self._ready.add(key.namespace, key)
            self._changed.set()

    def add_at(self, key: GroupKey, when: float) -> None:
        """Queues a group at a time of the clock, even if it is taken before that time too."""
        if (when, key) not in self._due:
            self._due.add((when, key))
            heappush(self._later, (when, key))
            self._changed.set()

    async def take(self) -> GroupKey:
        """The next group; waits until there is one."""
        while True:
            self._move_due()
            full = [namespace for namespace, groups in self._in_work.items() if groups >= self._most_in_work]
            key = self._ready.pop(full)
            if key is not None:
                self._queued.discard(key)
                self._working.add(key)
                self._in_work[key.namespace] += 1
                return key
            await self._wait()

    def done(self, key: GroupKey, pods: int = 0) -> None:
        """Returns a group, which has so many ``pods``. It rests for a time that grows with its pods, whatever changes meanwhile."""
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
            entry = heappop(self._later)
            self._due.discard(entry)
            self.add(entry[1])

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


_PAUSES: Final = 10.0  # after a try no other one begins for ten times its duration
_SHORTEST: Final = 0.01


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
