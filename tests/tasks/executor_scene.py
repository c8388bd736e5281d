"""One preemption plan and the writes that carry it out."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from random import Random

from extender.kube.timing import BackoffOptions
from extender.model.objects import Object
from extender.model.preemption import PreemptionPlan
from extender.tasks.events import EventRecorder
from extender.tasks.fair_queue import RateLimiter
from extender.tasks.preemption.executor import ExecutorOptions, PreemptionExecutor, RetryingWriter
from tests.contenders import cluster, contender, stage
from tests.fakes import FakeClock
from tests.tasks.apiserver import Apiserver

INCOMING = contender("asking", priority=100)
LOWER = contender("lower", priority=50, nominated="n1")
FIRST, SECOND = contender("first", on="n1", priority=2), contender("second", on="n1", priority=1)
PLAN = PreemptionPlan(INCOMING, "n1", (FIRST, SECOND), (LOWER,))
ALL = [
    "nominate lower -",
    "nominate asking n1",
    "condition second DisruptionTarget PreemptionByScheduler",
    "delete second",
    "condition first DisruptionTarget PreemptionByScheduler",
    "delete first",
    "event second Preempted",
    "event first Preempted",
]


class Scene:
    """A cluster with the preemptor, its victims and a less important pod that is nominated to the same node."""

    def __init__(
        self, *objects: Object, evicts: bool = False, at_once: int = 1, victims_at_once: int = 1, graceful: bool = False
    ) -> None:
        self.clock = FakeClock()
        self.waits: list[float] = []  # between retries; events of the victims wait later
        self.api = Apiserver(cluster(stage()), *(objects or (INCOMING, LOWER, FIRST, SECOND)), graceful=graceful)
        rate_limiter = RateLimiter(self.clock, at_once, 1e6)
        self.retrying = RetryingWriter(rate_limiter, self.api, self.clock, BackoffOptions(0.1, 5.0), Random(1))
        self.recorder = EventRecorder(self.api.create_event, self.clock, urgent=rate_limiter)
        self.evicting = PreemptionExecutor(
            self.api.index.view,
            self.api,
            self.retrying,
            self.recorder,
            self.clock,
            lambda: datetime(2026, 1, 1, tzinfo=UTC),
            ExecutorOptions(30.0, evicts=evicts, at_once=victims_at_once),
        )

    async def carry_out(self, plan: PreemptionPlan = PLAN) -> list[str]:
        """What has been written in the end, the events last."""
        await self.evicting.execute(plan)
        self.waits = [pause for pause in self.clock.slept if pause >= 0.05]
        job = asyncio.ensure_future(self.recorder.run())
        await self.recorder.flush()
        job.cancel()
        return self.api.effects


def same(effects: list[str]) -> list[str]:
    return sorted(effects)
