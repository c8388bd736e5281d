"""Builds the task that executes preemption plans, with its own connections, rate limit and metrics. Called by `service`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from extender.compose.foundation import Foundation
from extender.kube.timing import BackoffOptions
from extender.model.objects import Pod
from extender.model.preemption import PreemptionPlan
from extender.settings.configuration import Settings
from extender.tasks.events import EventRecorder
from extender.tasks.fair_queue import RateLimiter
from extender.tasks.preemption.executor import ExecutorOptions, PreemptionExecutor, RetryingWriter
from extender.tasks.preemption.manager import PreemptionManager
from extender.tasks.sliced_work import Traffic
from extender.telemetry import catalogue

_LOG = logging.getLogger(__name__)


def without_writes(settings: Settings) -> Settings:
    """The settings of a service without a cluster: it must not preempt."""
    if settings.preemption.mode != "execute":
        return settings
    return msgspec.structs.replace(settings, preemption=msgspec.structs.replace(settings.preemption, mode="advise"))


class NullPlanTarget:
    """Accepts no plan. For settings without preemption, and for a service without a cluster."""

    def submit(self, _plan: PreemptionPlan) -> bool:
        """Always False."""
        return False

    def requeue(self, _pod: Pod, _node: str) -> None:
        """Does nothing."""


@dataclass(frozen=True, slots=True)
class PreemptionTask:
    """The task. ``run`` is a job of the supervisor, ``drain`` a step of its shutdown, of at most ``limit`` seconds."""

    target: PreemptionManager
    run: Callable[[], Awaitable[None]]
    limit: float

    async def drain(self) -> None:
        """Waits until the running executions have ended."""
        await self.target.drain()


def make_preemption(base: Foundation, traffic: Traffic) -> PreemptionTask:
    """The task. It begins once the index holds the whole cluster."""
    settings, clock = base.settings.preemption, base.clock
    writer = base.writer(base.session.removals)
    rate_limiter = RateLimiter(clock, settings.max_parallel_deletes, settings.writes_per_second)
    backoff = BackoffOptions(settings.backoff.initial, settings.backoff.max)
    retrying = RetryingWriter(rate_limiter, writer, clock, backoff, base.rng)
    options = ExecutorOptions(
        settings.deadline, at_once=settings.max_parallel_deletes, evicts=settings.eviction == "evict"
    )
    recorder = EventRecorder(writer.create_event, clock, urgent=rate_limiter)
    executor = PreemptionExecutor(
        base.index.view, writer, retrying, recorder, clock, lambda: datetime.now(UTC), options
    )
    task = PreemptionManager(base.index, executor, clock, base.metrics.preemption(), settings.stuck_after, traffic)
    base.metrics.report(catalogue.PREEMPTIONS, task.statistics)

    async def run() -> None:
        await base.reflectors.wait_until_synced()
        # After the sync: an unfinished preemption shows only in nominations and conditions of pods.
        resumed = task.recover()
        if resumed:
            _LOG.info("preemptions of an earlier leader resumed", extra={"preemptions": resumed})
        await task.run()

    return PreemptionTask(task, base.replica.run_while_leading(run), settings.deadline)
