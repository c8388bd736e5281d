"""Rejected pods, the rechecker and the writer that requeues them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from extender.kube.effects import PodRef
from extender.model.objects import Pod
from extender.settings.configuration import Settings
from extender.tasks.rejected_pods import REQUEUE_ANNOTATION, TURN_STEP_SECONDS, Rechecker, RejectedPodWriter, Requeuer
from extender.verbs.filter import FilterVerb
from extender.verbs.select_host import find_node_elsewhere
from extender.wire.extender_v1 import FilterResult
from tests.builders import extender_args, index_of, node, pod, pod_json, term
from tests.fakes import FakeClock, FakeWriter, until
from tests.features.quotas.tenants import NODES, Tenants, limited, quotas_of, reaching_json

APART = term("host", app="web")


def web(name: str, on: str = "") -> Any:
    """The JSON of a pod that keeps away from its like."""
    return pod_json(name, on=on, app="web", apart=[APART])


class AnsweredWriter(FakeWriter):
    """A writer whose requeued pods the scheduler tries again at once."""

    answer: Callable[[str], object] = staticmethod(lambda _name: None)

    async def annotate(self, pod: PodRef, key: str, value: str | None) -> None:
        await super().annotate(pod, key, value)
        self.answer(pod.name)


class Scene:
    """Nodes with one such pod each, and the rechecker beside the real filter verb, on a clock of its own."""

    def __init__(self, nodes: int = 2) -> None:
        self.names = [f"n{number}" for number in range(nodes)]
        self.index = index_of(*(node(name, allocatable={"pods": "10"}) for name in self.names))
        for name in self.names:
            self.index.upsert(pod(f"on-{name}", on=name, app="web", apart=[APART]))
        self.clock, self.writer, self.searched = FakeClock(), AnsweredWriter(), list[str]()
        self.writes = RejectedPodWriter(self.index, self.writer, lambda _: ("", False))
        self.verb = FilterVerb(self.index.view, Settings())
        self.rechecker = Rechecker(
            self.writes, self.clock, 100.0, self.verb.would_pass, [lambda args: self.searched.append(args.pod.name)]
        )

    def filter(self, name: str) -> FilterResult:
        """The answer about a pending pod with every node, as the filter service gives it; one that passes is assumed."""
        self.index.upsert(pod(name, app="web", apart=[APART]))
        args = extender_args(web(name), *self.names)
        result = self.verb.decide(args, 0).result
        if result.passed:
            self.index.assume(args.pod, result.passed, self.clock.now())
        else:
            self.rechecker.consider(args)
        return result

    def delete(self, name: str) -> None:
        """The watch shows at last that a pod is deleted."""
        self.index.delete(self.index.pods[f"uid-{name}"])

    def requeued(self) -> list[str]:
        """The pods whose annotation was patched, in order."""
        return self.writer.annotated(REQUEUE_ANNOTATION)

    @property
    def rounds(self) -> int:
        return self.clock.slept.count(0.1)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        job = asyncio.create_task(self.rechecker.run())
        try:
            yield
        finally:
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)


WAITING = 30


class Requeued(Tenants):
    """Tenants whose rejected pods are requeued."""

    def __init__(self, *objects: object, **section: object) -> None:
        super().__init__(*objects, **section)  # type: ignore[arg-type]  # as the base takes them
        self.writer = FakeWriter()

        def find(pod: Pod) -> tuple[str, bool]:
            return find_node_elsewhere(pod, self.index.view, self.settings, 0)

        self.turns = FakeClock(held=TURN_STEP_SECONDS.__eq__)  # until `release`
        self.requeuer = Requeuer(RejectedPodWriter(self.index, self.writer, find), self.turns, per_second=1000)

    async def reject(self, name: str) -> None:
        assert not await self.passes(name)
        self.requeuer.consider(extender_args(reaching_json(name), *NODES))

    @property
    def woken(self) -> list[str]:
        """The names of the pods that were requeued, in order."""
        return [effect.split()[1] for effect in self.writer.effects]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        subscribed = len(quotas_of(self.index).changes)
        task = asyncio.create_task(self.requeuer.run())
        try:
            await until(lambda: len(quotas_of(self.index).changes) > subscribed)
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def idle() -> None:
    """Lets the requeuer do all that it has to do now."""
    for _ in range(20 * WAITING):
        await asyncio.sleep(0)


@asynccontextmanager
async def first_three() -> AsyncIterator[Requeued]:
    """Pods that a quota rejected, of which the first three were requeued when it had three places."""
    tenants = Requeued(limited(0))
    for number in range(WAITING):
        await tenants.reject(f"w{number}")
    async with tenants.running():
        tenants.put(limited(3))
        await until(lambda: len(tenants.woken) == 3)
        yield tenants
