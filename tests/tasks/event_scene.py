"""What causes events, an API server that counts them, and the recorder between the two."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from extender.kube.effects import ObjectEvent, PodRef
from extender.kube.errors import Rejected
from extender.model.answers.explanations import Explanation
from extender.settings.configuration import Settings
from extender.tasks.browse_service import ExplainService
from extender.tasks.events import EventLimit, EventRecorder
from extender.tasks.fair_queue import RateLimiter
from extender.tasks.rejected_pods import RejectedPodWriter
from extender.tasks.rejection_events import RejectionEvents
from tests.builders import extender_args, index_of, node, pod, pod_json, term
from tests.fakes import FakeClock, FakeWriter, running

Json = dict[str, Any]
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def event(name: str, kind: str = "Warning", reason: str = "Preempted", namespace: str = "default") -> ObjectEvent:
    return ObjectEvent(PodRef(namespace, name, f"uid-{name}"), kind, reason, "Preempting", "text", NOON)


class Stage:
    """An API server that takes events down, and the rate of other writes. ``is_held``: no write ends. ``refuses``: one of them."""

    def __init__(
        self, refuses: str = "", most_waiting: int = 10, at_once: int = 8, limit: EventLimit | None = None
    ) -> None:
        self.clock = FakeClock()
        self.names: list[str] = []
        self.notes: list[str] = []
        self.is_held = False
        self._refuses = refuses
        self.rate_limiter = RateLimiter(self.clock, 4, 1e6)
        self.recorder = EventRecorder(self.create, self.clock, limit, self.rate_limiter, most_waiting, at_once)

    async def create(self, event: ObjectEvent) -> None:
        if event.about.reference()["name"] == self._refuses:
            raise Rejected("403", status=403)
        self.names.append(event.about.reference()["name"])
        self.notes.append(event.note)
        if self.is_held:
            await asyncio.Event().wait()

    @property
    def lost(self) -> int:
        return self.recorder.results["failed"] + self.recorder.results["suppressed"]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Events are written until the block is left."""
        async with running(self.recorder.run):
            yield


def status(*, valid: bool = True, conflicts: int = 0, message: str = "text", pods: int = 3) -> Json:
    found = [{"policy": "other", "field": f"spec.field{each}", "message": "differs"} for each in range(conflicts)]
    conditions = [
        {"type": "Valid", "status": str(valid), "message": message},
        {"type": "Conflicting", "status": str(bool(conflicts)), "message": ""},
    ]
    return {"matchedPods": pods, "conditions": conditions, "conflicts": found}


APART: dict[str, Any] = {"app": "web", "apart": [term("host", app="web")]}


class Scene:
    """One node with a web pod, and the events, on a clock that only sleeping moves."""

    def __init__(self, also: Callable[[Explanation], Explanation] = lambda found: found) -> None:
        """``also`` is applied to each explanation."""
        self.index = index_of(node("n1", allocatable={"pods": "99"}), pod("on", on="n1", app="web"))
        self.clock, self.api = FakeClock(), FakeWriter()
        view = self.index.view
        nodes = self.index.assumed.held
        explainer = ExplainService(view, Settings(), self.clock, lambda uid: nodes[uid].nodes if uid in nodes else ())
        shared = RejectedPodWriter(self.index, self.api, lambda _: ("", False))

        async def explain(uid: str) -> Explanation:
            return also(await explainer.rejection(uid))

        self.events = RejectionEvents(shared, self.api, explain, self.clock, lambda: NOON)

    def reject(self, name: str, namespace: str = "default") -> None:
        """The filter has rejected the pod on the only node."""
        fields = {**APART, "namespace": namespace}
        if f"uid-{name}" not in self.index.pods:
            self.index.upsert(pod(name, **fields))
        self.events.consider(extender_args(pod_json(name, **fields), "n1"))

    @property
    def total(self) -> int:
        """How many pods have been dealt with."""
        return self.events.results.total()

    @property
    def recorded(self) -> dict[str, int]:
        return {result: count for result, count in self.events.results.items() if count}

    def leading(self) -> AbstractAsyncContextManager[None]:
        return running(self.events.run)
