"""A preemption that is interrupted before a write, and the scheduler that sees the result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from extender.model.objects import Pod
from extender.tasks.overlooked_pods import OverlookedPods
from extender.tasks.rejected_pods import RejectedPodWriter
from extender.verbs.preempt import node_with_victims
from extender.verbs.select_host import find_node_elsewhere
from tests.contenders import cluster
from tests.fakes import FakeClock, running, until
from tests.tasks.apiserver import Apiserver
from tests.tasks.preemption_scene import Scene


class Interrupted(Apiserver):
    """Carries out so many writes; those after them get no answer."""

    left = 1000

    def __init__(self) -> None:
        super().__init__(cluster())
        self.stopped = asyncio.Event()

    async def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            self.stopped.set()
            await asyncio.Event().wait()

    async def nominate(self, pod: Any, node: str) -> None:
        await self._count()
        await super().nominate(pod, node)

    async def set_condition(self, pod: Any, condition: Any) -> None:
        await self._count()
        await super().set_condition(pod, condition)

    async def delete(self, pod: Any, grace_seconds: int | None = None) -> None:
        await self._count()
        await super().delete(pod, grace_seconds)


class Scheduler:
    """kube-scheduler with one pending pod: asks about it once, and again whenever the pod is requeued."""

    def __init__(self, api: Apiserver, incoming: dict[str, Any]) -> None:
        self._api = api
        self._incoming = incoming
        self._known = 0

    def request(self, leader: Scene) -> None:
        """One attempt, and what comes of it: a binding, a preemption, or a condition."""
        incoming = self._api.pods["default", "asking"]
        full = sum(pod.requests.get("cpu", 0) for pod in self._on_node()) + incoming.requests.get("cpu", 0) > 3000
        if not full and leader.filter("n1", **self._incoming).passed:
            self._api.put(msgspec.structs.replace(incoming, node="n1"))
            return
        if full:
            leader.preempt({"n1": [pod.name for pod in self._on_node()]}, **self._incoming)
        self._api.put(msgspec.structs.replace(incoming, rejection="Unschedulable: 0/1 nodes are available"))

    def request_if_requeued(self, leader: Scene) -> bool:
        """Whether the pod is bound. The end of a pod makes kube-scheduler try others too."""
        effects = self._api.effects
        new, self._known = effects[self._known :], len(effects)
        if any(effect.startswith(("annotate asking", "delete", "nominate asking -")) for effect in new):
            self.request(leader)
        return bool(self._api.pods["default", "asking"].node)

    def _on_node(self) -> list[Pod]:
        return [pod for pod in self._api.pods.values() if pod.node == "n1"]


@asynccontextmanager
async def overlooking(leader: Scene) -> AsyncIterator[None]:
    """The leader looks at pending pods too."""
    index, settings = leader.index, leader.settings
    writes = RejectedPodWriter(index, leader.api, lambda pod: find_node_elsewhere(pod, index.view, settings, 0))
    look = OverlookedPods(
        writes, lambda pod: node_with_victims(pod, index.view, settings, 0), FakeClock(), 50.0, lambda _pod: None
    )
    async with running(look.run):
        await until(lambda: look.looks)
        yield
