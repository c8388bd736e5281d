"""Builds the task that executes preemption plans, with its own connections, rate limit and metrics. Called by `service`."""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Final

import msgspec

from extender.compose.leadership import Replica
from extender.index.cluster import ClusterIndex
from extender.kube.session import Session
from extender.kube.timing import BackoffOptions, Clock
from extender.kube.writer import Writer
from extender.model.objects import Pod
from extender.model.preemption import PreemptionPlan
from extender.settings import Preemption, Settings
from extender.tasks.preemption.event_recorder import EventRecorder
from extender.tasks.preemption.executor import ExecutorOptions, PreemptionExecutor
from extender.tasks.preemption.manager import PreemptionManager
from extender.tasks.preemption.retrying_writer import RateLimiter, RetryingWriter
from extender.tasks.reflectors import Reflectors
from extender.telemetry import scraped
from extender.telemetry.metrics import Metrics

_LOG = logging.getLogger(__name__)
# Under this name events are reported.
COMPONENT: Final = "placement-extender"


def without_writes(settings: Settings) -> Settings:
    """The settings of a service that has no cluster in which it could preempt."""
    if settings.preemption.mode != "execute":
        return settings
    return msgspec.structs.replace(settings, preemption=msgspec.structs.replace(settings.preemption, mode="advise"))


class NullPlanTarget:
    """Accepts no plan: for settings that execute none, and for a service without a cluster."""

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


def make_preemption(
    index: ClusterIndex,
    settings: Preemption,
    session: Session,
    clock: Clock,
    rng: Random,
    reflectors: Reflectors,
    metrics: Metrics,
    replica: Replica,
) -> PreemptionTask:
    """The task. It begins once the index holds the whole cluster."""
    direct = Writer(session.removals, COMPONENT, socket.gethostname(), observe=metrics.record_write)
    writer = replica.guard(direct)
    rate_limiter = RateLimiter(clock, settings.max_parallel_deletes, settings.writes_per_second)
    backoff = BackoffOptions(settings.backoff.initial, settings.backoff.max)
    retrying = RetryingWriter(rate_limiter, direct, clock, backoff, rng)
    options = ExecutorOptions(
        settings.deadline, at_once=settings.max_parallel_deletes, evicts=settings.eviction == "evict"
    )
    recorder = EventRecorder(writer, rate_limiter, clock)
    executor = PreemptionExecutor(index.view, writer, retrying, recorder, clock, lambda: datetime.now(UTC), options)
    task = PreemptionManager(index, executor, clock, metrics.preemption(), settings.stuck_after)
    metrics.report(scraped.PREEMPTIONS, task.statistics)

    async def run() -> None:
        await reflectors.wait_until_synced()
        found = task.recover()
        if found:
            _LOG.info("preemptions of an earlier leader resumed", extra={"preemptions": found})
        await task.run()

    return PreemptionTask(task, replica.run_while_leading(run), settings.deadline)
