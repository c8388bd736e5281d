"""Pods that are resized in place: kube-scheduler leaves as much room beside them as we count."""

from __future__ import annotations

from typing import Final

import pytest

from extender.model.resources import CPU
from extender.simulator.json_objects import JsonObject, name_of
from tests.builders import read_pod
from tests.e2e.client import pod_path
from tests.e2e.cluster import Cluster
from tests.simulator.plain import HOSTNAME, pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

_NODE: Final = 4000  # milli-CPU

# By name: what the spec requests, what is allocated and what the container has, in milli-CPU, and why the resize is pending.
RESIZES: Final = {
    "none": (1000, 1000, 1000, ""),
    "infeasible": (3000, 1000, 1000, "Infeasible"),
    "deferred": (3000, 1000, 1000, "Deferred"),
    "begun": (500, 2000, 1000, ""),
    "not-given-back": (500, 500, 2500, ""),
    "infeasible-and-more": (3000, 1000, 2000, "Infeasible"),
}


def status_of(allocated: int, actual: int, pending: str) -> JsonObject:
    requests = [{"cpu": f"{amount}m", "memory": "64Mi"} for amount in (allocated, actual)]
    shown = {"name": "main", "image": "pause", "imageID": "", "ready": True, "restartCount": 0}
    shown |= {"allocatedResources": requests[0], "resources": {"requests": requests[1]}}
    found: JsonObject = {"phase": "Running", "containerStatuses": [shown]}
    return found | (
        {"conditions": [{"type": "PodResizePending", "status": "True", "reason": pending}]} if pending else {}
    )


async def test_the_scheduler_leaves_the_room_that_we_count(cluster: Cluster) -> None:
    """Beside each pod one fits that requests exactly what is left by our count, and none that requests a thousandth more."""
    api, board = cluster.api, cluster.board
    nodes = await cluster.add_nodes(zones=1, per_zone=len(RESIZES))
    fitting, larger = [], []
    for node, (name, (spec, allocated, actual, pending)) in zip(nodes, RESIZES.items(), strict=True):
        resized = pod(name, on=node, cpu=f"{spec}m")
        await api.create(resized)
        shown = await api.patch(f"{pod_path(resized)}/status", {"status": status_of(allocated, actual, pending)})
        left = _NODE - read_pod(shown).requests[CPU]
        fitting.append(pod(f"fits-{name}", cpu=f"{left}m", nodeSelector={HOSTNAME: node}))
        larger.append(pod(f"larger-{name}", cpu=f"{left + 1}m", nodeSelector={HOSTNAME: node}))
    async with cluster.scheduled():
        await api.create(*larger)
        for body in larger:
            assert "Insufficient cpu" in await board.rejected(body), name_of(body)
        await api.create(*fitting)
        assert await board.bound(*fitting) == nodes
