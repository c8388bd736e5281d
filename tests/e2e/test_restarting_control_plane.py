"""kube-apiserver restarts every half minute while pods are preempted and groups are released: nothing is lost, nothing is wrong.

RESTARTING_SECONDS says for how long, for example 600.
"""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.making_room import priority_class
from tests.e2e.pod_groups import SETTINGS
from tests.e2e.restarting_control_plane import ALONE, FULL, GANG, SECONDS, Round, restarting
from tests.e2e.test_gangs import released
from tests.e2e.test_group_preferences import releasing
from tests.simulator.plain import ZONE

__all__ = ["released"]  # the fixture
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(700 + 3 * SECONDS)]


async def test_nothing_is_lost_or_wrong_while_the_api_server_restarts_again_and_again(released: Cluster) -> None:
    api = released.api
    await released.add_nodes(zones=2, per_zone=FULL // 2, cpu="2")
    for name, value in (("high", 1000), ("middle", 10)):
        await api.request(
            "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority_class(name, value), allow=[409]
        )
    await releasing(released, "zone", topology=[ZONE], noRoom=[{"action": "Preempt"}])
    wrong: dict[int, list[str]] = {}
    async with released.scheduled(settings={**SETTINGS, "preemption": {"mode": "execute"}}) as extender:
        running = asyncio.create_task(restarting(released))
        for number in count():
            if running.done():
                break
            played = Round(released, number)
            if found := await played.play():
                wrong[number] = found
            await played.remove()
        log = extender.program.log()
    print(f"{await running} restarts, {number} rounds of {GANG + ALONE} preemptions")  # noqa: T201 -- shown by -s
    assert wrong == {}
    assert number >= 2
    assert "Traceback" not in log
    assert await released.faults() == []
