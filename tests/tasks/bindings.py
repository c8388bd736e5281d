"""A binder over one pod, and API servers that answer, fail or stay silent."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import orjson

from extender.index.cluster import ClusterIndex
from extender.kube.effects import PodRef
from extender.kube.errors import KubeError, Unreachable
from extender.kube.writer import Writer
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings
from extender.tasks.filter_service import AssumedPodOptions, FilterService, WatchedPods
from extender.tasks.preempt_and_bind import BindService, UnansweredBindings
from extender.verbs.filter import FilterVerb
from extender.wire.extender_v1 import FilterResult, decode_args
from extender.wire.objects.kinds import NODES
from tests.builders import read_pod
from tests.deciding import KeptPlans
from tests.fakes import FakeClock, FakeWriter

JsonObject = dict[str, Any]
POD: JsonObject = {"metadata": {"name": "w", "namespace": "ns", "uid": "u"}, "spec": {}}
TIMED_OUT = Unreachable("POST /api/v1/namespaces/ns/pods/w/binding: timed out")


def cluster() -> ClusterIndex:
    """Two nodes and a pending pod that was let through to either."""
    index = ClusterIndex(Settings().rules, counts_of_rules())
    for name in ("n1", "n2"):
        index.upsert(NODES.decode_object(orjson.dumps({"metadata": {"name": name}})))
    pod = read_pod(POD)
    index.upsert(pod)
    index.assume(pod, ("n1", "n2"), 0.0)
    return index


def binder(index: ClusterIndex, writer: FakeWriter) -> BindService:
    """The verb, where nothing asks about bindings without an answer."""
    clock = FakeClock()
    return BindService(index, writer, clock, UnansweredBindings(index, Answers(), clock))


class Answers(Writer):
    """The API server's answers about a pod, in turn: its node, or an error. The last one is repeated."""

    def __init__(self, *answers: str | KubeError) -> None:
        self.answers = list(answers)
        self.reads = 0

    async def node_of(self, _pod: PodRef) -> str:
        self.reads += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, KubeError):
            raise answer
        return answer


class Unanswered:
    """A binding that failed with an error, and the filter service that is asked again about its pod."""

    def __init__(self, answers: Answers, error: KubeError = TIMED_OUT) -> None:
        self.index = cluster()
        self.clock = FakeClock()
        self.answers = answers
        self.unanswered = UnansweredBindings(self.index, answers, self.clock)
        self.writer = FakeWriter(failures=[error])
        self.binder = BindService(self.index, self.writer, self.clock, self.unanswered)
        settings = Settings(placement="cooperative")
        self.filter_service = FilterService(
            self.index,
            WatchedPods(self.index, self.clock, 0.0, 1),
            self.clock,
            AssumedPodOptions(),
            FilterVerb(self.index.view, settings),
            Random(1),
            KeptPlans(),
        )

    @property
    def assumed(self) -> list[str]:
        """The nodes that the pod is assumed on."""
        held = self.index.assumed.held.get("u")
        return [] if held is None else list(held.nodes)

    async def filter(self) -> FilterResult:
        """What the scheduler asks after the failure."""
        body = orjson.dumps({"Pod": POD, "NodeNames": ["n1", "n2"]})
        return await self.filter_service.filter(decode_args(body))

    def report(self) -> None:
        """The watch shows what the scheduler reports of the failure."""
        text = 'running Bind plugin "DefaultBinder": timed out'
        condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": text}
        self.show({"status": {"phase": "Pending", "conditions": [condition]}})

    def show(self, more: JsonObject) -> None:
        self.index.upsert(read_pod(POD | more))


class HeldWriter(FakeWriter):
    """A writer whose bindings take until the test lets them go."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = 0
        self.go = asyncio.Event()

    async def bind(self, pod: PodRef, node: str) -> None:
        self.requests += 1
        await self.go.wait()
        await super().bind(pod, node)
