"""A leader that is killed before any write of a preemption: the next one finishes it, and no pod goes in vain."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import term
from tests.contenders import contender, stage
from tests.tasks.interrupted_preemptions import Interrupted, Scheduler, overlooking
from tests.tasks.preemption_scene import Scene

VICTIMS = 3
WRITES = 1 + 2 * VICTIMS
BY_ROOM: dict[str, Any] = {"name": "asking", "priority": 100, "cpu": 3000}
BY_RULE: dict[str, Any] = {"name": "asking", "priority": 100, "apart": [term("host", app="low")]}


@pytest.mark.parametrize("incoming", [BY_ROOM, BY_RULE], ids=["room", "rule"])
@pytest.mark.parametrize("written", range(WRITES + 1))
async def test_the_next_leader_finishes_a_preemption_whatever_was_written(
    incoming: dict[str, Any], written: int
) -> None:
    api = Interrupted()
    lows = [contender(f"low-{at}", on="n1", cpu=1000, app="low") for at in range(VICTIMS)]
    api.put(stage("n1", cpu=3000))
    for pod in (contender(**incoming), *lows):
        api.put(pod)
    scheduler = Scheduler(api, incoming)
    api.left = written
    async with Scene(api=api).running() as killed:
        scheduler.request(killed)
        await killed.go()
        if written < WRITES:
            await api.stopped.wait()
    api.left = 1000
    async with Scene(api=api).running() as leader:
        leader.preempting.recover()
        async with overlooking(leader):
            for _ in range(20):
                if scheduler.request_if_requeued(leader):
                    break
                await leader.pass_time(0.5)
    assert api.pods["default", "asking"].node == "n1"
    assert len(api.said("delete")) == VICTIMS
