"""Shares work and writes between namespaces: the one that used least is first."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Container, Iterable
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from math import inf
from typing import Final, Generic, TypeVar

from extender.kube.timing import Clock
from extender.model.bounded import Steps
from extender.model.release import GroupKey

_HALF_LIFE: Final = 60.0  # seconds: what was used so long ago counts half
_NOTHING: Final = 0.01
_MOST_KEPT: Final = 1000  # namespaces, before those that have used nothing for a while are forgotten


class NamespaceUsage:
    """How much each namespace has used lately: what it used decays, so that a burst is not held against it for long."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._used: dict[str, tuple[float, float]] = {}

    def charge(self, namespace: str) -> None:
        """The namespace uses one more. Amortised O(1)."""
        now = self._clock.now()
        self._used[namespace] = self._of(namespace, now) + 1.0, now
        if len(self._used) > _MOST_KEPT:
            self._used = {
                namespace: used for namespace, used in self._used.items() if self._of(namespace, now) > _NOTHING
            }

    def used(self, namespace: str) -> float:
        """How much it has used, as that counts now. O(1)."""
        return self._of(namespace, self._clock.now())

    def least(self, namespaces: Iterable[str]) -> str:
        """The one that has used least; of equals the first. O(namespaces)."""
        now = self._clock.now()
        return min(namespaces, key=lambda namespace: self._of(namespace, now))

    def _of(self, namespace: str, now: float) -> float:
        used, when = self._used.get(namespace, (0.0, now))
        left: float = used * 0.5 ** ((now - when) / _HALF_LIFE)
        return left


T = TypeVar("T")


class FairBacklog(Generic[T]):
    """What waits to be done, by namespace. Above ``longest`` the last of the namespace that has most is dropped."""

    def __init__(self, clock: Clock, longest: float = inf) -> None:
        self._usage = NamespaceUsage(clock)
        self._longest = longest
        self._waiting: dict[str, deque[T]] = {}
        self._count = 0
        self._added = asyncio.Event()

    def __len__(self) -> int:
        return self._count

    def add(self, namespace: str, item: T) -> T | None:
        """Adds an item; returns the one that is dropped for it, which may be itself. O(1), O(namespaces) where it is full."""
        self._waiting.setdefault(namespace, deque()).append(item)
        self._count += 1
        self._added.set()
        if self._count <= self._longest:
            return None
        largest = max(self._waiting, key=lambda name: (len(self._waiting[name]), name == namespace))
        return self._remove(largest, -1)

    def pop(self, closed: Container[str] = ()) -> T | None:
        """The first of the namespace that used least, of those that are not ``closed``. O(namespaces)."""
        open_ = [namespace for namespace in self._waiting if namespace not in closed]
        if not open_:
            return None
        namespace = self._usage.least(open_)
        self._usage.charge(namespace)
        return self._remove(namespace, 0)

    async def take(self) -> T:
        """The same, once there is one. For one caller or several."""
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

    Each namespace is first in, first out. The place that is next is given only when it may begin, so that none is taken
    in advance by those that came first.
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

        Writes that are all equally urgent, as those of preemptions, name no namespace: first in, first out.
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
        """Waits until a place is given; returns the seconds until the rate allows to use it."""
        waiter: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(waiter)
        self._grant()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():  # it was given the place that it does not use
                self._free += 1
                self._is_pacing = self._is_pacing and waiter.result() <= 0
                self._grant()
            raise

    async def _pace(self, seconds: float) -> None:
        """Waits until the rate allows one more. Meanwhile no other is given a place."""
        try:
            await self._clock.sleep(seconds)
        finally:
            self._is_pacing = False
            self._grant()

    def _grant(self) -> None:
        """Gives the next places to the first that wait, of the namespaces that have used least. O(waiting namespaces) for each."""
        while self._free and not self._is_pacing and self._waiting:
            namespace = self._usage.least(self._waiting)
            waiters = self._waiting[namespace]
            waiter = waiters.popleft()
            if not waiters:
                del self._waiting[namespace]
            if not waiter.done():  # else it was cancelled
                self._usage.charge(namespace)
                self._free -= 1
                now = self._clock.now()
                self._next = max(self._next, now - self._burst) + self._gap
                self._is_pacing = self._next > now
                waiter.set_result(self._next - now)


def turns_of_work(clock: Clock) -> RateLimiter:
    """One place without a rate, for `in_turns`."""
    return RateLimiter(clock, 1, inf)


async def in_turns(steps: Steps[T], turns: RateLimiter, namespace: str) -> T:
    """The result of all steps. Each is a turn of the namespace that used least, and one is taken in an iteration of the event loop.

    So what else the loop does waits for one step, however many wait. A turn costs 5 µs.
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
_REST_A_POD: Final = 2e-5  # seconds between two looks at a group, each of which costs 0.1 us a pod


class GroupQueue:
    """`take` returns groups, for one caller at a time; each has to be given back with `done`. O(namespaces with work); all else is O(log groups)."""

    def __init__(self, clock: Clock, most_in_work: int = MOST_IN_WORK) -> None:
        """``most_in_work``: groups of one namespace at a time, so that a worker is left for those of others."""
        self._clock = clock
        self._ready: FairBacklog[GroupKey] = FairBacklog(clock)
        self._queued: set[GroupKey] = set()
        self._later: list[tuple[float, GroupKey]] = []
        self._due: set[tuple[float, GroupKey]] = set()
        self._working: set[GroupKey] = set()
        self._in_work: Counter[str] = Counter()  # groups by namespace
        self._most_in_work = most_in_work
        self._again: set[GroupKey] = set()
        self._resting: dict[GroupKey, float] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready)

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
        if key not in self._queued:
            self._queued.add(key)
            self._ready.add(key.namespace, key)
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
            full = [namespace for namespace, groups in self._in_work.items() if groups >= self._most_in_work]
            key = self._ready.pop(full)
            if key is not None:
                self._queued.discard(key)
                self._working.add(key)
                self._in_work[key.namespace] += 1
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
