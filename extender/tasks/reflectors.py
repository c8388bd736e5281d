"""Pumps the feeds into the index and knows what is still missing before questions can be answered.

Decides nothing about objects: they go to the index as they come. One pump per kind, each its own task under the
supervisor; a pump that dies begins again with a list, while answers go on from what the index holds.

Order: pods and workloads are taken in once namespaces and nodes stand, since what a pod counts for depends on both;
the index would be right in any order, but would have to move every pod. A first list is taken in by slices, as nobody
is answered yet. What a later one changes is swapped in at once, between two answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from extender.index.objects.known_objects import KnownObjects
from extender.kube.reflector_status import Phase, ReflectorStatus
from extender.model.objects import Object
from extender.settings import TopologySpread
from extender.tasks.ports import Clock, IndexSink, ObjectFeed

_LOG = logging.getLogger(__name__)

FOUNDATION: Final = frozenset({"namespaces", "nodes"})


@dataclass(frozen=True, slots=True)
class ReflectorsOptions:
    """Seconds. ``slice_seconds``: how long objects are taken in before others get their turn.

    ``stale_after``: a kind of which nothing was heard for so long, not even a bookmark, counts as not ready. Where it is
    known that changes are missed, as no watch is granted, it counts as not ready at once.
    """

    slice_seconds: float = 0.003
    stale_after: float = 180.0


def _nobody_asks(_kind: str, _begun: float) -> None:
    """Nobody wants to know of lists."""


def reads_workloads(spread: TopologySpread) -> bool:
    """Whether Services, ReplicaSets, StatefulSets and ReplicationControllers are needed at all.

    Only default constraints are: their selector is deduced from what the pod belongs to. Clusters hold ten times more
    ReplicaSets than anybody looks at, so they are not watched without need.
    """
    return spread.enabled and (spread.defaulting_type == "System" or bool(spread.default_constraints))


class Reflectors:
    """All pumps together: what to run, and whether the index can be trusted."""

    def __init__(
        self,
        index: IndexSink,
        feeds: Sequence[ObjectFeed],
        clock: Clock,
        options: ReflectorsOptions | None = None,
        on_synced: Callable[[], None] | None = None,
        on_listed: Callable[[str, float], None] = _nobody_asks,
    ) -> None:
        """``on_synced`` is called once, when everything is in and before anybody is answered.

        ``on_listed`` is called with a kind after each later list of it, and with the time at which that was asked for.
        """
        self._clock = clock
        self._options = options or ReflectorsOptions()
        self._on_synced = on_synced
        self.on_listed = on_listed
        self._foundation = asyncio.Event()
        self._all = asyncio.Event()
        self._pumps = [_KindReflector(self, index, feed, clock, self._options.slice_seconds) for feed in feeds]
        if FOUNDATION.isdisjoint(pump.name for pump in self._pumps):
            self._foundation.set()

    def jobs(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        """(name, what to run) for each feed, to be kept running by the supervisor."""
        return [(f"feed {pump.name}", pump.run) for pump in self._pumps]

    async def synced(self) -> None:
        """Wait until every kind has been listed and taken in."""
        await self._all.wait()

    @property
    def is_ready(self) -> bool:
        """Everything is in, followed by a watch, and nothing is stale. Cheap enough for every request."""
        if not self._all.is_set():
            return False
        oldest = self._clock.now() - self._options.stale_after
        return all(pump.feed.last_heard >= oldest and not pump.feed.outage for pump in self._pumps)

    @property
    def is_stale(self) -> bool:
        """Everything was in, but changes are missed, or something was not heard of for too long."""
        return self._all.is_set() and not self.is_ready

    def checks(self) -> dict[str, str]:
        """By kind what is missing; an empty text is a pass."""
        now, limit = self._clock.now(), self._options.stale_after
        return {pump.name: pump.missing(now, limit) for pump in self._pumps}

    def report(self) -> list[str]:
        """A line per kind for people: "pods: listing (page 3)", "nodes: synced"."""
        return [f"{name}: {missing or 'synced'}" for name, missing in self.checks().items()]

    async def catch_up(self) -> None:
        """Take in what has arrived by now and was not read: what a process was told and did not hear, it does not know.

        One system call for each kind where there is nothing (1 µs). Under a flood it waits for what lies there now, not
        for what comes meanwhile.
        """
        for feed in [pump.feed for pump in self._pumps if pump.feed.is_behind]:
            await feed.caught_up()

    def known_until(self, kind: str) -> Callable[[], float]:
        """When called, the time up to which all that the API server told of a kind has been taken in."""
        (feed,) = (pump.feed for pump in self._pumps if pump.name == kind)
        return lambda: feed.last_heard

    def statuses(self) -> Mapping[str, ReflectorStatus]:
        """Every feed's own status by kind, for metrics."""
        return {pump.name: pump.feed.status() for pump in self._pumps}

    def relist_changes(self) -> dict[str, int]:
        """By kind the objects changed by later lists: what the watch had not told, so 0 in a well-behaved cluster."""
        return {pump.name: pump.relist_changes for pump in self._pumps}

    async def foundation(self, kind: str) -> None:
        """Wait until ``kind`` may be taken in."""
        if kind not in FOUNDATION:
            await self._foundation.wait()

    def taken_in(self) -> None:
        """A pump tells that its kind is in: see whether that was the last one."""
        if all(pump.is_in for pump in self._pumps if pump.name in FOUNDATION):
            self._foundation.set()
        if not self._all.is_set() and all(pump.is_in for pump in self._pumps):
            if self._on_synced:
                self._on_synced()
            self._all.set()
            _LOG.info("all %d kinds are in", len(self._pumps))


class _KindReflector:
    """One kind's way into the index: the sink of its feed.

    A later list is compared with what was put in by slices, and only the differences are applied, in one step.
    """

    def __init__(
        self, reflectors: Reflectors, index: IndexSink, feed: ObjectFeed, clock: Clock, seconds: float
    ) -> None:
        self.name = feed.name
        self.feed = feed
        self.is_in = False
        self.relist_changes = 0
        self._reflectors = reflectors
        self._clock = clock
        self._seconds = seconds
        self._known = KnownObjects(index)
        self._loading: tuple[int, int] | None = None
        self._waits = False

    async def run(self) -> None:
        await self.feed.run(self)

    async def replace(self, objects: Sequence[Object], unreadable: Collection[str] = ()) -> None:
        if self.is_in:
            await self._swap(objects, unreadable)
            return
        self._waits = True
        await self._reflectors.foundation(self.name)
        self._waits = False
        await self._load(objects, unreadable)
        self.is_in = True
        self._reflectors.taken_in()

    async def apply(self, changes: Sequence[tuple[Object, bool]]) -> None:
        turn = _Turn(self._clock, self._seconds)
        for found, gone in changes:
            self._known.put(found, gone=gone)
            if turn.is_over():
                await turn.give_way()

    async def _load(self, objects: Sequence[Object], unreadable: Collection[str]) -> None:
        """The first list, taken in by slices; what an attempt before it has left behind goes out."""
        turn = _Turn(self._clock, self._seconds)
        for count, difference in enumerate(self._known.differences(objects, unreadable)):
            if difference:
                self._known.put(difference[0], gone=difference[1])
            if turn.is_over():
                self._loading = (min(count + 1, len(objects)), len(objects))
                await turn.give_way()
        self._loading = None

    async def _swap(self, objects: Sequence[Object], unreadable: Collection[str]) -> None:
        """A later list: compared by slices, while answers go on from the old state, then applied without a pause."""
        turn, changes = _Turn(self._clock, self._seconds), list[tuple[Object, bool]]()
        for difference in self._known.differences(objects, unreadable):
            if difference:
                changes.append(difference)
            if turn.is_over():
                await turn.give_way()
        changed = sum(self._known.put(found, gone=gone) for found, gone in changes)
        self._reflectors.on_listed(self.name, self.feed.status().list_begun)
        self.relist_changes += changed
        _LOG.info("%s: listed again, %d objects, %d changes", self.name, len(objects), changed)

    def missing(self, now: float, stale_after: float) -> str:
        """What keeps this kind from being ready; empty if nothing does."""
        status = self.feed.status()
        if not self.is_in:
            return self._progress(status)
        if status.outage:
            return status.outage
        lag = now - self.feed.last_heard
        if lag <= stale_after:
            return ""
        return f"watch silent for {lag:.0f} s" + (f": {status.error}" if status.error else "")

    def _progress(self, status: ReflectorStatus) -> str:
        if self._loading:
            return "loading ({:,} of {:,})".format(*self._loading)
        if self._waits:
            return f"waiting for {', '.join(sorted(FOUNDATION))}"
        if status.phase is Phase.WAITING:
            return f"trying again: {status.error}"
        if status.phase is Phase.LISTING and status.listed and not status.page:
            return f"listing ({status.listed:,} objects)"
        if status.phase is Phase.LISTING:
            return f"listing (page {status.page + 1})"
        return "not begun"


class _Turn:
    """How long a loop without an ``await`` of its own may still go on."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._deadline = clock.now() + seconds

    def is_over(self) -> bool:
        return self._clock.now() >= self._deadline

    async def give_way(self) -> None:
        await asyncio.sleep(0)
        self._deadline = self._clock.now() + self._seconds
