"""Pods that kube-scheduler gave up on, and the task that requeues them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from extender.kube.effects import PodRef
from extender.kube.errors import Unreachable
from extender.model.objects import Object, Pod
from extender.settings.configuration import Settings
from extender.tasks.overlooked_pods import WAITS, OverlookedPods
from extender.tasks.rejected_pods import RejectedPodWriter, Requeuer
from extender.verbs.preempt import node_with_victims
from extender.verbs.select_host import find_node_elsewhere
from tests.builders import index_of
from tests.fakes import FakeClock, FakeWriter, running, until

GIVEN_UP = "Unschedulable: 0/3 nodes are available"
PER_SECOND = 50.0


def given_up(found: Pod, why: str = GIVEN_UP, **fields: Any) -> Pod:
    """The pod as the watch shows it after an attempt of kube-scheduler."""
    return msgspec.structs.replace(found, rejection=why, **fields)


class FailingWriter(FakeWriter):
    """So many times a nomination cannot be cleared."""

    uncleared = 0

    async def nominate(self, pod: PodRef, node: str) -> None:
        if not node and self.uncleared:
            self.uncleared -= 1
            raise Unreachable("cut")
        await super().nominate(pod, node)


class Scene:
    """A cluster after the start of a leader. ``searched`` are the pods for which all nodes were searched."""

    def __init__(self, *objects: Object) -> None:
        self.clock, self.writer = FakeClock(held=self._is_held), FailingWriter()
        self.looks_left = 1
        self.index = index_of(*objects)
        self.settings = Settings()
        self.searched: list[str] = []
        self.writes = RejectedPodWriter(self.index, self.writer, self._find)
        self.requeuer = Requeuer(self.writes, self.clock, PER_SECOND)
        self.overlooked = OverlookedPods(
            self.writes,
            lambda found: node_with_victims(found, self.index.view, self.settings, 0),
            self.clock,
            PER_SECOND,
            self.requeuer.note_pending,
        )

    def _find(self, found: Pod) -> tuple[str, bool]:
        self.searched.append(found.name)
        return find_node_elsewhere(found, self.index.view, self.settings, 0)

    def _is_held(self, seconds: float) -> bool:
        """Time passes for so many looks, and no further."""
        self.looks_left -= seconds in WAITS
        return seconds in WAITS and self.looks_left < 0

    @asynccontextmanager
    async def looked(self, times: int = 1) -> AsyncIterator[Scene]:
        """The leader has looked so many times, and looks no more before a test lets it."""
        self.looks_left = times
        async with running(self.overlooked.run):
            await until(lambda: self.overlooked.looks >= times)
            yield self

    def effects(self) -> list[str]:
        """The writes, without the time of the annotation."""
        return [effect.partition("=")[0] for effect in self.writer.effects]
