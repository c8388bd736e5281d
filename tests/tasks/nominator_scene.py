"""A nominator with its index, its writer and pods that the scheduler has rejected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sized
from contextlib import asynccontextmanager
from typing import Any

import orjson

from extender.index.cluster import ClusterIndex
from extender.kube.effects import PodRef
from extender.kube.errors import Conflict
from extender.kube.timing import Clock, SystemClock
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings
from extender.tasks.rejected_pods import REQUEUE_ANNOTATION, Nominator, NominatorOptions, RejectedPodWriter, Requeuer
from extender.tasks.sliced_work import Traffic
from extender.verbs.select_host import find_node_elsewhere
from extender.wire.extender_v1 import FilterResult, decode_args
from extender.wire.objects.kinds import NAMESPACES, NODES
from tests.builders import read_pod
from tests.deciding import filter_nodes
from tests.fakes import FakeClock, FakeWriter, until

JsonObject = dict[str, Any]
HOST = "kubernetes.io/hostname"
TEAM = {"labelSelector": {"matchLabels": {"app": "web"}}, "namespaceSelector": {"matchLabels": {"team": "a"}}}


def term(kind: str) -> JsonObject:
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [{**TEAM, "topologyKey": HOST}]}
    return {"affinity": {kind: rule}}


APART, NEAR = term("podAntiAffinity"), term("podAffinity")
ALONE: JsonObject = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "web"}}}
            ]
        }
    }
}
OTHER: JsonObject = {
    "affinity": {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "nobody"}}}
            ]
        }
    }
}


class Scene:
    """Four nodes of which the scheduler asks about two, with a web pod on the first three."""

    def __init__(self, *, nominates: bool = True, clock: Clock | None = None, writer: FakeWriter | None = None) -> None:
        self.settings = Settings(placement="cooperative")
        self.index = ClusterIndex(self.settings.rules, counts_of_rules())
        self.writer = writer or FakeWriter()
        self.relabel("ns", team="a")
        for number in range(4):
            self.node(f"n{number}")
        for number in range(3):
            self.show(f"web-{number}", {"nodeName": f"n{number}"})

        def find(pod: Any) -> tuple[str, bool]:
            return find_node_elsewhere(pod, self.index.view, self.settings, 0)

        self.writes, clock = RejectedPodWriter(self.index, self.writer, find), clock or SystemClock()
        self.traffic = Traffic(clock)
        self.requeuer = Requeuer(self.writes, clock, per_second=1000, traffic=self.traffic)
        self.nominator = Nominator(self.writes, clock, NominatorOptions(per_second=1000), [self.requeuer.await_request])
        self.on_rejection = [self.requeuer.consider, *([self.nominator.consider] * nominates)]

    def node(self, name: str, **spec: Any) -> None:
        offered = {"cpu": "4", "memory": "8Gi", "pods": "10"}
        raw = {"metadata": {"name": name, "labels": {HOST: name}}, "spec": spec, "status": {"allocatable": offered}}
        self.index.upsert(NODES.decode_object(orjson.dumps(raw)))

    def relabel(self, name: str, **labels: str) -> None:
        self.index.upsert(NAMESPACES.decode_object(orjson.dumps({"metadata": {"name": name, "labels": labels}})))

    def show(self, name: str, spec: JsonObject, **status: Any) -> None:
        self.index.upsert(read_pod({**pod(name, spec), "status": status}))

    def nominated(self) -> list[tuple[str, str]]:
        """Pod and node of each nomination written."""
        lines = [effect.split() for effect in self.writer.effects]
        return [(name, node) for kind, name, node in lines if kind == "nominate"]

    async def requeued_by_relabelling(self) -> list[str]:
        """The first pods that are requeued once the namespace is of team a."""
        async with self.running():
            await asyncio.sleep(0)
            self.relabel("ns", team="a")
            await until(lambda: bool(self.requeued()))
        return self.requeued()

    def subscribers(self) -> tuple[Sized, ...]:
        """The lists of subscribers to the changes that the scheduler does not watch."""
        return self.index.namespaces.changes, self.index.workloads.changes, self.index.assumed.unconfirmed

    def requeued(self) -> list[str]:
        return self.writer.annotated(REQUEUE_ANNOTATION)

    def filter(self, name: str, spec: JsonObject, *nodes: str) -> FilterResult:
        """Asks about a pending pod, which the watch shows from now on at the latest."""
        if name not in self.index.pods:
            self.show(name, spec)
        args = decode_args(orjson.dumps({"Pod": pod(name, spec), "NodeNames": nodes}))
        result = filter_nodes(args, self.index.view, self.settings, 0)
        if not result.passed:
            for consider in self.on_rejection:
                consider(args)
        return result

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        jobs = [asyncio.create_task(self.nominator.run()), asyncio.create_task(self.requeuer.run())]
        try:
            yield
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)


class LateFailure(FakeWriter):
    """Refuses the nomination after ``answer``."""

    def __init__(self) -> None:
        super().__init__(failures=[Conflict("another client was faster")])
        self.requested, self.answer = asyncio.Event(), asyncio.Event()

    async def nominate(self, pod: PodRef, node: str) -> None:
        self.requested.set()
        await self.answer.wait()
        await super().nominate(pod, node)


def pod(name: str, spec: JsonObject) -> JsonObject:
    return {"metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": "web"}}, "spec": spec}


class RequestingWriter(FakeWriter):
    """The scheduler asks as soon as a pod is annotated, and has its answer at once."""

    traffic: Traffic

    async def annotate(self, pod: PodRef, key: str, value: str | None) -> None:
        await super().annotate(pod, key, value)
        self.traffic.begin()
        self.traffic.end()


async def at_rest(clock: FakeClock) -> None:
    """Return when no task waits for the clock any more."""
    count = -1
    while len(clock.slept) != count:
        count = len(clock.slept)
        for _ in range(10):
            await asyncio.sleep(0)


def nominated(scene: Scene, clock: FakeClock, name: str = "asking") -> None:
    """The pod is nominated now, as the watch shows too."""
    scene.show(name, APART, nominatedNodeName="n3")
    incoming = scene.index.pods[name]
    scene.index.assume(incoming, ("n3",), clock.now(), doubted=True)
    scene.requeuer.await_request(incoming, "n3")
