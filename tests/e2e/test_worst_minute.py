"""Everything honest at once: pods are created, the API server restarts, a node is lost, and every replica is replaced. Pods wait, none is wrong."""

from __future__ import annotations

import asyncio

import pytest

from extender.simulator.json_objects import JsonObject, name_of, node_of
from tests.deploy.policies.examples import policy
from tests.e2e.board import key_of
from tests.e2e.client import NODES
from tests.e2e.policing import db_pod
from tests.e2e.rolled_out_service import Creating, Installed, applied
from tests.e2e.test_rollout import service
from tests.simulator.plain import HOSTNAME, ZONE, anti_affinity, spread, term

__all__ = ["service"]  # the fixture

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

LOST = "z1-3"
APART = 6  # the zone of the policy has eight nodes, and loses one


def mixed(number: int) -> JsonObject:
    """Every second pod has a hard constraint: few that keep apart by node, and many that spread over the nodes."""
    found = db_pod(f"w{number}", cpu="1m")
    labels = found["metadata"]["labels"]
    if number % 4 == 1:
        labels["apart"] = f"a{number // (4 * APART)}"
        found["spec"]["affinity"] = anti_affinity(term(HOSTNAME, apart=labels["apart"]))
    elif number % 4 == 3:
        labels["even"] = f"e{number // 160}"
        found["spec"]["topologySpreadConstraints"] = [spread(HOSTNAME, skew=2, labels={"even": labels["even"]})]
    return found


async def test_pods_wait_and_none_is_wrong_while_all_goes_wrong_that_honestly_can(service: Installed) -> None:
    api, board, loop = service.api, service.cluster.board, asyncio.get_running_loop()
    await api.create(policy("PodSchedulingPolicy", nodeSelector={ZONE: "z1"}))
    await applied(api)
    first = set(service.kubelet.running)
    creating = Creating(api, mixed, is_patient=True)
    running = asyncio.create_task(creating.run())
    await board.until(lambda: len(board.bound_at) >= 40)
    begun = loop.time()
    await service.cluster.restart_apiserver()
    await asyncio.gather(api.delete(f"{NODES}/{LOST}"), service.restart())
    took, afterwards = loop.time() - begun, len(creating.made)
    creating.is_over = True
    await running
    await board.bound(*creating.made, within=180)
    print(  # noqa: T201 -- shown by -s
        f"{len(creating.made)} creations, {len(creating.problems)} tried again, all of it within {took:.0f} s"
    )
    assert len({name_of(each) for each in creating.made}) == len(creating.made) >= 600
    assert [name_of(each) for each in creating.made if each["spec"].get("nodeSelector") != {ZONE: "z1"}] == []
    late = [key_of(each) for each in creating.made[afterwards:]]
    assert {node_of(board.pods[name]) for name in late} & {LOST} == set()
    assert len(set(service.kubelet.running) - first) >= 2, "every replica was replaced"
    assert "Traceback" not in "".join(each.program.log() for each in service.kubelet.running.values())
    assert await service.cluster.faults() == []
