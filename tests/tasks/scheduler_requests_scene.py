"""Pending pods with their conditions and events, as schedulers write them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import structs

from extender.kube.effects import ObjectEvent
from extender.model.answers.explanations import Asked
from extender.model.objects import Pod
from extender.tasks.events import EventLimit, EventRecorder
from extender.tasks.filter_service import SchedulerCounts
from extender.tasks.scheduler_requests import SchedulerRequests, UnaskedPods
from extender.telemetry.decision_log import DecisionLog
from extender.wire.extender_v1 import FilterResult
from tests.builders import index_of, node, pod
from tests.fakes import FakeClock

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


class Scene:
    """A replica that answers since its start, and what it has heard; NOON is when its clock began."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.begun = self.clock.now()
        self.since: float | None = self.begun
        self.decisions = SchedulerCounts()
        self.log = DecisionLog()
        self.index = index_of(*(node(f"n{at}", allocatable={"cpu": "4", "pods": "9"}) for at in range(6)))
        self.asking = SchedulerRequests(self.decisions, self.log, self.clock, self.now, lambda: self.since)

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.clock.now() - self.begun)

    def add(self, name: str = "web", scheduler: str = "default-schedular", **fields: Any) -> Pod:
        made = structs.replace(pod(name), scheduler=scheduler, created="2026-11-20T11:59:00Z", **fields)
        self.index.upsert(made)
        return made

    def hear(self, scheduler: str, after: float = 0.0, about: Pod | None = None, passed: tuple[str, ...] = ()) -> None:
        self.clock.time += after
        self.decisions.record(scheduler, FilterResult(passed), self.clock.now())
        if about is not None:
            identity = (about.namespace, about.name, about.uid)
            reasons = () if passed else ("affinity",)
            self.log.add(self.now().timestamp(), "filter", identity, 6, passed, reasons)

    def about(self, found: Pod) -> Asked:
        requested = self.asking.about(found)
        assert requested is not None
        return requested


class Events:
    """The job with the API server that takes its events down."""

    def __init__(self, scene: Scene) -> None:
        self.written: list[ObjectEvent] = []
        recorder = EventRecorder(self.create, scene.clock, EventLimit())
        self.jobs = UnaskedPods(scene.index, scene.asking, recorder, scene.clock), recorder

    async def create(self, event: ObjectEvent) -> None:
        self.written.append(event)

    async def run(self) -> None:
        await asyncio.gather(*(job.run() for job in self.jobs))

    @property
    def pods(self) -> list[str]:
        return [str(each.about.reference()["name"]) for each in self.written]
