"""A service's preemption without the service: index, verbs, the task and a small apiserver, and a hand on the clock.

``Scene.go`` runs what is to be done until nothing moves any more; ``pass_time`` moves the clock and sweeps.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from random import Random
from typing import Any

from extender.kube.timing import BackoffOptions
from extender.model.objects import Object, Pod
from extender.model.preemption import PreemptionPlan
from extender.settings.configuration import Settings
from extender.tasks.events import EventRecorder
from extender.tasks.fair_queue import RateLimiter
from extender.tasks.preemption.executor import ExecutorOptions, PreemptionExecutor, RetryingWriter
from extender.tasks.preemption.manager import PreemptionManager
from extender.telemetry.metrics import PreemptionMetrics
from extender.verbs.filter import FilterVerb
from extender.verbs.preempt import decide_preemption
from extender.wire.extender_v1 import FilterResult
from tests.builders import extender_args, preempting, settings
from tests.contenders import cluster, contender_json
from tests.fakes import FakeClock, settle
from tests.tasks.apiserver import Apiserver

STUCK_AFTER = 60.0
LOOK_SECONDS = 0.2  # of the loops that look around for ever; back-off passes at once


class Counted(PreemptionMetrics):
    """What the task recorded: plans begun, how their writes ended, and what became of them."""

    def __init__(self) -> None:
        self.recorded: Counter[str] = Counter()
        self.victims = 0
        self.violations = 0

    def record_start(self, victims: int) -> None:
        self.recorded["began"] += 1
        self.victims += victims

    def record_violation(self) -> None:
        self.violations += 1

    def record_execution(self, result: str, _seconds: float) -> None:
        self.recorded[result] += 1

    def record_end(self, outcome: str, _seconds: float) -> None:
        self.recorded[f"ended {outcome}"] += 1


class Scene:
    """One cluster, and one leader at work in it."""

    def __init__(self, *objects: Object, graceful: bool = True, api: Apiserver | None = None, **sections: Any) -> None:
        self.clock = FakeClock(held=LOOK_SECONDS.__eq__)
        self.api = api or Apiserver(cluster(), *objects, graceful=graceful)
        self.index = self.api.index
        every_name: dict[str, Any] = {"placement": "cooperative"}
        self.settings: Settings = settings(**every_name, **sections)
        self.counted = Counted()
        rate_limiter = RateLimiter(self.clock, 16, 1e9)
        retrying = RetryingWriter(rate_limiter, self.api, self.clock, BackoffOptions(0.1, 5.0), Random(1))
        evicting = PreemptionExecutor(
            self.index.view,
            self.api,
            retrying,
            EventRecorder(self.api.create_event, self.clock, urgent=rate_limiter),
            self.clock,
            lambda: datetime(2026, 1, 1, tzinfo=UTC),
            ExecutorOptions(evicts=self.settings.preemption.eviction == "evict"),
        )
        self.preempting = PreemptionManager(self.index, evicting, self.clock, self.counted, STUCK_AFTER)
        self.filter_verb = FilterVerb(self.index.view, self.settings)

    # -- the scheduler's questions --------------------------------------------------------------------------------

    def filter(self, *names: str, **pod: Any) -> FilterResult:
        """The answer to filter, with the plan submitted that goes with it."""
        args = extender_args(contender_json(**pod), *(names or self.index.view.known))
        decision = self.filter_verb.decide(args, 0)
        if decision.plan is not None:
            self.preempting.submit(decision.plan)
        return decision.result

    def preempt(self, candidates: dict[str, list[str]], **pod: Any) -> None:
        """The scheduler's preempt question; in this mode the answer is always empty."""
        uids = {node: [f"uid-{name}" for name in names] for node, names in candidates.items()}
        decision = decide_preemption(preempting(contender_json(**pod), uids), self.index.view, self.settings, 0)
        assert list(decision.candidates) == []
        if decision.plan is not None:
            self.preempting.submit(decision.plan)

    # -- what goes on -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Scene]:
        """The leader is at work until the block is left; then it is cut off."""
        job = asyncio.ensure_future(self.preempting.run())
        try:
            yield self
        finally:
            job.cancel()
            await asyncio.wait({job})

    @asynccontextmanager
    async def begun(self, *plans: PreemptionPlan) -> AsyncIterator[Scene]:
        """The leader is at work and has written all that these plans need at first."""
        async with self.running():
            for planned in plans:
                self.preempting.submit(planned)
            await self.go()
            yield self

    async def go(self) -> None:
        """Let everything happen that can happen without time passing for the loops."""
        await settle()

    async def pass_time(self, seconds: float, times: int = 1) -> None:
        """Time passes so many times, and the leader looks around each time."""
        for _ in range(times):
            self.clock.time += seconds
            for follow_up in self.preempting.sweep():
                await follow_up
            await self.go()

    def shown(self, name: str) -> Pod:
        return self.api.pods["default", name]

    def phases(self) -> dict[str, int]:
        """How many preemptions are how far, without zeros."""
        return {name: count for name, count in self.preempting.statistics().items() if count}


def plan(pod: Pod, node: str, *victims: Pod, displaced: tuple[Pod, ...] = ()) -> PreemptionPlan:
    """A plan as a verb would have made it."""
    return PreemptionPlan(pod, node, victims, displaced)
