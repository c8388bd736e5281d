"""Moves with a real kube-scheduler and kube-controller-manager, in the cases of `config/scenarios/moves.yaml`.

Another program that evicts pods can be measured in the same cases beside the plain kube-scheduler: MOVES_COMMAND is its command for one
round, with the kubeconfig in the place of KUBECONFIG. The tables are written to results/.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from extender.simulator.scenario.report import is_within
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import scheduler_document
from tests.e2e.moved_workloads import Found, Watching, built, expected, lines, policy_and_budget, upset
from tests.e2e.policing import policed
from tests.e2e.spread_deployments import need_controllers

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

RESULTS = Path(__file__).resolve().parents[2] / "results"
PLAIN = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
MOST_ROUNDS = 30
QUIET = 40.0  # seconds; rounds of the extender are 5 s apart


def write(name: str, found: dict[str, Found], notes: Sequence[str] = ()) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / name).write_text("\n".join([*lines(found), *notes, ""]), "utf-8")


async def test_pods_move_as_in_the_scenario_and_then_rest(cluster: Cluster, assets: Path) -> None:
    need_controllers(assets)
    policy, _ = policy_and_budget()
    async with policed(cluster, {"execution": {"maxPerMinute": 600}}) as placed, AsyncExitStack() as stack:
        stack.callback(cluster.plane.scheduler.stop)
        await asyncio.to_thread(cluster.plane.start_scheduler, scheduler_document("offload", placed.extender.url))
        pods = await built(cluster, stack, assets)
        await upset(cluster, pods)
        watching = Watching(cluster)
        await placed.apply(policy)
        await watching.quiet(QUIET, within=600)
        watching.end_round()
        found = await watching.found()
        write("moves.md", found)
    for case, wanted in expected().items():
        end = found[case]
        for figure, amount in ((sum(end.evictions), wanted.evictions), (end.broken, wanted.broken)):
            assert amount is None or is_within(figure, amount), (case, end)
        assert (end.mendable, end.pending) == (0, 0), (case, end)
        assert end.worst <= 1, (case, end)


@pytest.mark.skipif("MOVES_COMMAND" not in os.environ, reason="MOVES_COMMAND is not set: nothing is compared")
async def test_another_program_in_the_same_cases(cluster: Cluster, assets: Path) -> None:
    need_controllers(assets)
    command = shlex.split(os.environ["MOVES_COMMAND"].replace("KUBECONFIG", str(cluster.plane.kubeconfig)))
    async with AsyncExitStack() as stack:
        stack.callback(cluster.plane.scheduler.stop)
        await asyncio.to_thread(cluster.plane.start_scheduler, PLAIN)
        pods = await built(cluster, stack, assets)
        await upset(cluster, pods)
        watching = Watching(cluster)
        for number in range(MOST_ROUNDS):
            ended = await asyncio.create_subprocess_exec(*command, cwd=cluster.folder)
            assert await ended.wait() == 0, number
            await watching.calm()
            if not watching.end_round():
                break
        found = await watching.found()
        write("moves-compared.md", found, [f"- {case}: {end.evictions}" for case, end in found.items()])
