"""Keeps the index right in the background, in slices: the audit, the recount after policies have changed, gated pods, excluded domains, and long figures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterator
from typing import Final, Generic, TypeVar

from extender.index.availability import DomainExclusion, DomainTable
from extender.index.cluster import ClusterIndex
from extender.index.counts.counts import Counts
from extender.index.gated import GatedGroups
from extender.index.objects.changes import Subscribable
from extender.index.policies import PolicyTable
from extender.kube.timing import Clock

_LOG = logging.getLogger(__name__)

Steps = Callable[[], Iterator[Callable[[], list[str]]]]


class Auditing:
    """Audits the index, one step after each pause. A difference is a bug: it is logged and counted, and the index is rebuilt.

    ``rounds`` counts complete passes, ``differences`` the wrong counts found.
    """

    def __init__(self, index: ClusterIndex, steps: Steps, clock: Clock, pause: float) -> None:
        self.rounds = 0
        self.differences = 0
        self._index = index
        self._steps = steps
        self._clock = clock
        self._pause = pause

    async def run(self) -> None:
        """Runs until cancelled. A difference ends the round: a rebuild replaces the groups that its other steps refer to."""
        while True:
            await self._clock.sleep(self._pause)
            for step in self._steps():
                if self._repairs(step()):
                    break
                await self._clock.sleep(self._pause)
            self.rounds += 1

    def _repairs(self, differences: list[str]) -> bool:
        if not differences:
            return False
        self.differences += len(differences)
        _LOG.error(
            "the index had wrong counts and is rebuilt",
            extra={"differences": len(differences), "first": differences[0]},
        )
        self._index.rebuild()
        return True


SLICE_SECONDS: Final = 0.002
PAUSE_SECONDS: Final = 0.002


class PolicyRecount:
    """Corrects the counts of constraints that policies add to pods on nodes, after policies or namespaces have changed.

    One signature after the other; the counts are consistent after each. Until the round ends some pods count by an earlier
    version of the policies. 5,000 signatures take 50 ms. On every replica. ``recounted`` counts corrected signatures.
    """

    def __init__(self, counts: Counts, policies: PolicyTable, namespace_changes: Subscribable, clock: Clock) -> None:
        self.recounted = 0
        self._counts = counts
        self._policies = policies
        self._clock = clock
        self._changed = asyncio.Event()
        for source in (policies.changes, namespace_changes):
            source.subscribe(self._note)

    def _note(self, _change: object) -> None:
        if self._policies.about_placed_pods or self._counts.has_policy_terms:
            self._changed.set()

    async def run(self) -> None:
        """Recounts after each change. A change meanwhile begins another round."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            # Only after the last round: until then the counts belong to two versions of the policies.
            if await self._round() and not self._changed.is_set():
                self._policies.recounted.notify(None, None)

    async def _round(self) -> bool:
        """Whether any signature was corrected. O(signatures), and O(terms × nodes of its pods) for each corrected one."""
        corrected, begun = 0, self._clock.now()
        for signature in list(self._counts.signatures):
            corrected += self._counts.recheck_policies(signature)
            if self._clock.now() - begun >= SLICE_SECONDS:
                await self._clock.sleep(PAUSE_SECONDS)
                begun = self._clock.now()
        self.recounted += corrected
        return corrected > 0


class GroupUpkeep:
    """Files gated pods again, in slices, after a change of a policy or namespace that concerns thousands of them. On every replica."""

    def __init__(self, gated: GatedGroups, clock: Clock) -> None:
        self._gated = gated
        self._clock = clock

    async def run(self) -> None:
        """Until cancelled; then every change is applied at once again."""
        changed = asyncio.Event()
        # While this task runs, the index only marks such pods and wakes it.
        self._gated.defer_to(changed.set)
        try:
            while True:
                await changed.wait()
                changed.clear()
                begun = self._clock.now()
                while self._gated.file_stale():
                    if self._clock.now() - begun >= SLICE_SECONDS:
                        await self._clock.sleep(PAUSE_SECONDS)
                        begun = self._clock.now()
        finally:
            self._gated.defer_to(None)


STEP_SECONDS: Final = 1.0
_MOST_LOGGED: Final = 100  # domains
_JUMP: Final = 0.5  # seconds between the clocks; less is a clock that is slewed


class ExclusionClock:
    """Begins and ends the exclusion of topology domains in time, at most once a second, and logs both. On every replica.

    The monotonic clock measures how long a domain has been unavailable. The wall clock is compared only with dates that nodes
    and operators wrote. ``steps`` counts the updates. ``wall``: seconds of the Unix epoch.
    """

    def __init__(self, domains: DomainTable, clock: Clock, wall: Callable[[], float]) -> None:
        self.steps = 0
        self._domains = domains
        self._clock = clock
        self._wall = wall
        self._logged: dict[tuple[str, str], DomainExclusion] = {}

    async def run(self) -> None:
        """Runs until cancelled. A domain that returns counts at once, without waiting for a step."""
        ahead = self._wall() - self._clock.now()
        while True:
            now = self._wall()
            # The distance of both clocks changes only if the wall clock is set, or the machine was suspended.
            before, ahead = ahead, now - self._clock.now()
            jumped = ahead - before if abs(ahead - before) >= _JUMP else 0.0
            if jumped or self._domains.due() <= now:
                self.steps += 1
                self._domains.step(now, jumped)
            self._log_changes()
            await self._clock.sleep(STEP_SECONDS)

    def _log_changes(self) -> None:
        excluded = self._domains.names(_MOST_LOGGED)
        for (key, domain), why in excluded.items() if excluded != self._logged else ():
            if (key, domain) not in self._logged:
                extra = {
                    "topology_key": key,
                    "domain": domain,
                    "since": why.since,
                    "by": why.by or "conditions and taints",
                }
                _LOG.warning("topology domain is excluded from spread", extra=extra)
        for key, domain in self._logged.keys() - excluded.keys():
            _LOG.info("topology domain counts again for spread", extra={"topology_key": key, "domain": domain})
        self._logged = excluded


FIGURE_PAUSE_SECONDS: Final = 0.02
EVERY_SECONDS: Final = 10.0
_MOST_SHARE: Final = 0.01  # of the time of the process, for rounds that take long

T = TypeVar("T")


class SlicedFigure(Generic[T]):
    """A figure that is measured in slices. ``value``: the result of the last complete round; ``first`` before that."""

    def __init__(self, measure: Callable[[], Generator[None, None, T]], clock: Clock, first: T) -> None:
        """``measure`` begins a round: a generator of short steps, which returns the figure."""
        self.value = first
        self._measure = measure
        self._clock = clock

    async def run(self) -> None:
        """Measures again and again, until cancelled."""
        while True:
            spent = await self._round()
            await self._clock.sleep(max(EVERY_SECONDS, spent / _MOST_SHARE))

    async def _round(self) -> float:
        """Returns how many seconds its slices took."""
        steps, spent, begun = self._measure(), 0.0, self._clock.now()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                self.value = end.value
                return spent + self._clock.now() - begun
            lasted = self._clock.now() - begun
            if lasted >= SLICE_SECONDS:
                spent += lasted
                await self._clock.sleep(FIGURE_PAUSE_SECONDS)
                begun = self._clock.now()
