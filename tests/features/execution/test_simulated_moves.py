"""Moves of the real service on a simulated cluster: evictions, a controller that replaces pods, and a scheduler that asks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from extender.cli.main import main
from extender.cli.simulate import lead_to_webhook, read_objects, scenario_settings
from extender.compose.embedded import FREE_PORT, service_running
from extender.simulator.apiserver.kinds import OWN_POLICY_KINDS, PODS
from extender.simulator.scenario.language import parse_scenario
from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from tests.fakes import PATIENCE
from tests.simulator.scenario.playing import scenario

CONFIG: Final = Path(__file__).resolve().parents[3] / "config" / "scenarios" / "moves.yaml"
ZONE: Final = "topology.kubernetes.io/zone"
POLICY: Final[dict[str, Any]] = {
    "apiVersion": "placement.extender.dev/v1alpha1",
    "kind": "ClusterPodSchedulingPolicy",
    "metadata": {"name": "watch", "uid": "watch", "generation": 1},
    "spec": {
        "podSelector": {},
        "namespaceSelector": {},
        "when": ["Execution"],
        "execution": {"mode": "Evict", "after": "0s", "minAge": "0s", "maxPerMinute": 600},
    },
}
SPREAD: Final = {
    "topologySpreadConstraints": [
        {
            "topologyKey": ZONE,
            "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
}


class Kubelet:
    """Makes bound pods ready."""

    def __init__(self, simulated: SimulatedCluster) -> None:
        self._table = simulated.api.store.table(PODS)
        self._url = simulated.api.url
        self._ready: set[str] = set()

    async def run(self) -> None:
        async with aiohttp.ClientSession() as session:
            while True:
                for stored in list(self._table.objects.values()):
                    pod = stored.read()
                    uid = pod["metadata"]["uid"]
                    if pod["spec"].get("nodeName") and uid not in self._ready:
                        self._ready.add(uid)
                        await self._make_ready(session, pod)
                await asyncio.sleep(0.05)

    async def _make_ready(self, session: aiohttp.ClientSession, pod: dict[str, Any]) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        headers = {"Content-Type": "application/merge-patch+json"}
        url = f"{self._url}/api/v1/namespaces/{namespace}/pods/{name}/status"
        async with session.patch(url, json=body, headers=headers) as response:
            await response.read()


@asynccontextmanager
async def serving(
    running: list[dict[str, Any]], controller: str = "ReplicaSet"
) -> AsyncIterator[tuple[SimulatedCluster, str]]:
    document = scenario(
        cluster={
            "files": ["policies/webhook.yaml"],
            "nodes": [{"count": 6, "name": "node-{i}", "zones": 3}],
            "namespaces": [{"name": "shop"}],
            "running": running,
        },
        templates={"web": {"labels": {"app": "web"}, "controller": controller, "spec": SPREAD}},
        scheduler={"podInitialBackoff": "100ms", "podMaxBackoff": "1s"},
        extender={"policies": {"enabled": True}},
    )
    play = parse_scenario(document)
    objects = [*read_objects(play, str(CONFIG)), POLICY]
    async with (
        SimulatedCluster(play, 1, objects) as simulated,
        service_running(scenario_settings(play, "test", FREE_PORT), simulated.api.url, 1, simulated.clock) as served,
    ):
        url, service = served
        await lead_to_webhook(simulated, service)
        await simulated.begin(url)
        kubelet = asyncio.create_task(Kubelet(simulated).run())
        try:
            yield simulated, url
        finally:
            kubelet.cancel()
            await asyncio.gather(kubelet, return_exceptions=True)


def zones(simulated: SimulatedCluster) -> Counter[str]:
    """The living pods by zone; those without a node under the empty name."""
    pods = [stored.read() for stored in simulated.api.store.table(PODS).objects.values()]
    living = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return Counter(
        f"zone-{int(pod['spec']['nodeName'].rpartition('-')[2]) % 3}" if pod["spec"].get("nodeName") else ""
        for pod in living
    )


def names(simulated: SimulatedCluster) -> set[str]:
    return {stored.read()["metadata"]["name"] for stored in simulated.api.store.table(PODS).objects.values()}


@pytest.mark.parametrize("node", ["node-0", "node-*"])
async def test_pods_move_until_the_spread_holds_and_then_rest(node: str) -> None:
    running = {"template": "web", "count": 6, "namespaces": "shop", "nodes": node}
    async with serving([running]) as (simulated, url), asyncio.timeout(PATIENCE):
        while zones(simulated) != {"zone-0": 2, "zone-1": 2, "zone-2": 2}:
            simulated.clock.jump(1)
            await asyncio.sleep(0.05)
        # Two minutes in which nothing is to be done.
        for _ in range(60):
            simulated.clock.jump(2)
            await asyncio.sleep(0.01)
        assert zones(simulated).total() == 6
        assert len([name for name in names(simulated) if "-again-" in name]) == (4 if node == "node-0" else 0)
        # The moves were stored beside the numbers, and no write of one dropped the other.
        (stored,) = simulated.api.store.table(OWN_POLICY_KINDS[1]).objects.values()
        execution = stored.read()["status"]["execution"]
        assert execution["moved"] == (4 if node == "node-0" else 0)
        assert [move["target"] for move in execution.get("moves", ())] != [] or node != "node-0"
        async with aiohttp.ClientSession() as session, session.get(f"{url}/v1/moves?namespace=shop") as response:
            assert (response.status, await response.json()) == (200, {})


async def test_the_moves_of_the_leader_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a controller no pod is moved."""
    running = {"template": "web", "count": 4, "namespaces": "shop", "nodes": "node-0"}
    async with serving([running], controller="") as (simulated, url), asyncio.timeout(PATIENCE):
        code, out = 0, ""
        while "stuck" not in out:
            simulated.clock.jump(1)
            await asyncio.sleep(0.05)
            code = await asyncio.to_thread(main, ["moves", "--url", url])
            out = capsys.readouterr().out
        lines = [line.split() for line in out.splitlines()]
        assert (code, lines[0]) == (0, ["NAMESPACE", "POD", "CONSTRAINT", "SINCE", "FROM", "TO", "STATE", "WHY"])
        assert (lines[1][0], lines[1][2], lines[1][4:7]) == ("shop", "TopologySpread", ["node-0", "-", "stuck"])
        assert await asyncio.to_thread(main, ["explain", "shop/web-old-0", "--url", url]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "shop/web-old-0: on node node-0",
            f"broken: {ZONE}=zone-0 has 4 pods, at most 1 keep the spread",
            "move: no controller replaces the pod",
        ]
