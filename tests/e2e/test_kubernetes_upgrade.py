"""kube-apiserver and kube-scheduler are replaced by the next minor version, and taken back, while pods use features."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from extender.simulator.json_objects import JsonObject
from tests.e2e.cluster import Cluster, open_cluster
from tests.e2e.control_plane import ControlPlane, scheduler_document
from tests.e2e.making_room import priority_class
from tests.e2e.pod_groups import SETTINGS
from tests.e2e.programs import NOT_TRIED, OLDER
from tests.e2e.restarting_control_plane import FULL, Round, patiently
from tests.e2e.serving import Extender
from tests.e2e.test_gangs import released
from tests.e2e.test_group_preferences import releasing
from tests.simulator.plain import HOSTNAME, ZONE, anti_affinity, pod, spread, term

__all__ = ["released"]  # the fixture
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

WITHIN = 240.0


@pytest.fixture(scope="module")
def older(assets: Path) -> Iterator[ControlPlane]:
    """A control plane of the earlier minor version."""
    folder = os.environ.get(OLDER)
    if not folder:
        pytest.skip(
            f"{NOT_TRIED}: {OLDER} is not set: it names a folder with the programs of the earlier minor version"
        )
    with ControlPlane(assets, versions={"kube-apiserver": Path(folder), "kube-scheduler": Path(folder)}) as started:
        yield started


@pytest.fixture
async def cluster(older: ControlPlane, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with open_cluster(older, tmp_path) as opened:
        yield opened


def constrained(number: int) -> list[JsonObject]:
    """Pods that only the extender keeps apart and spreads."""
    labels = {"app": f"web-{number}"}
    apart = anti_affinity(term(HOSTNAME, app=labels["app"]))
    even = [spread(ZONE, labels=labels)]
    more: dict[str, Any] = {
        "labels": labels,
        "affinity": apart,
        "topologySpreadConstraints": even,
        "priorityClassName": "high",
    }
    return [pod(f"web-{number}-{at}", cpu="10m", **more) for at in range(6)]


@pytest.mark.core("upgrade and rollback under load")
async def test_nothing_is_lost_or_wrong_while_each_part_is_upgraded_and_taken_back(
    released: Cluster, assets: Path
) -> None:
    """In the order of an upgrade: first the API server, then the scheduler; the way back is the other way round."""
    plane, api = released.plane, released.api
    old = Path(os.environ[OLDER])
    # Two pods of a round fill a node, but for the room of one constrained pod.
    await released.add_nodes(zones=2, per_zone=FULL // 2, cpu="2100m")
    for name, value in (("high", 1000), ("middle", 10)):
        await api.request(
            "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority_class(name, value), allow=[409]
        )
    await releasing(released, "zone", topology=[ZONE], noRoom=[{"action": "Preempt"}])
    wrong: dict[str, list[str]] = {}
    async with released.scheduled(settings={**SETTINGS, "preemption": {"mode": "execute"}}) as extender:
        steps = [
            ("kube-apiserver", assets),
            ("kube-scheduler", assets),
            ("kube-scheduler", old),
            ("kube-apiserver", old),
        ]
        for number, (program, folder) in enumerate(steps):
            replacing = asyncio.create_task(_replace(plane, program, folder, extender))
            played = Round(released, number)
            found = await played.play()
            await replacing
            pods = constrained(number)
            for made in pods:
                await patiently(lambda made=made: api.create(made))  # type: ignore[misc]
            nodes = await released.board.bound(*pods, within=WITHIN)
            if len(set(nodes)) != len(pods):
                found.append(f"pods that keep apart share nodes: {nodes}")
            if found:
                wrong[f"{number}: {program} of {folder.name}"] = found
            await played.remove()
        log = extender.program.log()
    assert wrong == {}
    assert "Traceback" not in log
    assert await released.faults() == []


async def _replace(plane: ControlPlane, program: str, folder: Path, extender: Extender) -> None:
    """End a part amid the round, and start it with the program of another version."""
    await asyncio.sleep(1.0)
    plane.versions[program] = folder
    if program == "kube-apiserver":
        await asyncio.to_thread(plane.apiserver.stop)
        await asyncio.to_thread(plane.start_apiserver)
    else:
        await asyncio.to_thread(plane.scheduler.stop)
        await asyncio.to_thread(plane.start_scheduler, scheduler_document("offload", extender.url))
