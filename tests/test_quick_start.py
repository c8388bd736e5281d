"""README's quick start, followed literally by a shell, in front of the embedded control plane.

tests/e2e/test_quick_start.py follows it in front of a real one, with a real kube-scheduler.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import yaml

from extender.simulator.apiserver.kinds import PODS
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.json_objects import node_of
from extender.simulator.scheduler.extender_client import ExtenderEntry
from extender.simulator.scheduler.loop import LoopSettings, SchedulingLoop
from tests.quick_start import follow, prepared, shell
from tests.simulator.plain import namespace, node, pod

pytestmark = pytest.mark.timeout(120)


async def place_a_pod(api: ApiServer, configuration: str) -> str:
    """Have a scheduler with that configuration place a pod; the node that it gets."""
    (entry,) = yaml.safe_load(configuration)["extenders"]
    entry = ExtenderEntry(
        url_prefix=entry["urlPrefix"], filter_verb=entry["filterVerb"], prioritize_verb=entry.get("prioritizeVerb", "")
    )
    loop = SchedulingLoop(api.store, api.url, entry, LoopSettings())
    await loop.start()
    api.operations.create(PODS, pod("web"))
    assert await loop.settle(within=30.0, calm=0.2)
    await loop.stop()
    return node_of(api.store.find(PODS, "default/web").read())


async def test_the_quick_start_of_the_readme_leads_to_a_set_up_without_a_finding(tmp_path: Path) -> None:
    async with ApiServer() as api:
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
        serve, generate, _, prove = prepared(tmp_path, kubeconfig)
        api.store.load([namespace("default"), node("node-a", "z1")])
        environment = {
            "KUBECONFIG": str(kubeconfig),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        async with shell(tmp_path, environment) as process:
            assert "readyz check passed" in await follow(process, serve)
            await follow(process, generate)
            assert await place_a_pod(api, await follow(process, "cat kube-scheduler.yaml")) == "node-a"
            proven = await follow(process, prove)
    assert "0 errors, 0 warnings" in proven
    assert 'extender_requests_total{code="200",verb="filter"} 1.0' in proven
