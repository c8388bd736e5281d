"""A group that preempts, and the pods of lower priority in its way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from extender.index.trial import TrialSteps
from extender.model.objects import Pod
from extender.model.release import GroupKey, Level, NoRoom, Proposal, Slot
from extender.verbs.release.progress import GroupState
from tests.gangs import actions
from tests.tasks.release.scene import Scene


class Contest(Scene):
    """Zone a is full of pods of a group of priority 0, and another group needs as many places."""

    def __init__(self, **release: Any) -> None:
        super().__init__({"a": 2}, **{"no_room": actions(NoRoom.PREEMPT)} | release)
        self.fails = False
        self.create("low", 0, 1)

    async def begin(self) -> None:
        await self.pass_time(1)
        self.bind()
        self.create("high", 0, 1, priority=1000)
        await self.pass_time(1)

    def propose(
        self,
        group: GroupState,
        levels: Sequence[Level] | None,
        taken: Sequence[tuple[GroupKey, Sequence[Level]]] = (),
        excess: Callable[[Sequence[Level]], str] = lambda _: "",
    ) -> TrialSteps[Proposal]:
        """As the release does: victims where no zone has room, and none while others are being removed for the group."""
        found = yield from super().propose(group, levels, taken, excess)
        lower = [pod for pod in self.index.pods.values() if pod.node == "a" and pod.priority < group.priority]
        if found.slots or levels or not lower or self.index.reserved.pods_of(group.key):
            return found
        slots = tuple(Slot(pod.uid, "a") for pod in group.waiting)
        return replace(found, slots=slots, victims=tuple(sorted(pod.uid for pod in lower)))

    async def remove(self, pod: Pod, victims: Sequence[Pod]) -> bool:
        await super().remove(pod, victims)
        return not self.fails
