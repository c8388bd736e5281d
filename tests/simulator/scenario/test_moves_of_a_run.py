"""Evictions in a run: what a scenario may expect of them, and pods that become ready."""

from __future__ import annotations

from typing import Any

import pytest

from extender.simulator.apiserver.kinds import PODS, Target
from extender.simulator.json_objects import JsonObject, condition_of
from extender.simulator.scenario.language import parse_scenario
from extender.simulator.scenario.play import Player
from extender.simulator.scenario.report import make_report
from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from tests.fakes import until
from tests.simulator.fake_extender import FakeExtender
from tests.simulator.plain import spread
from tests.simulator.scenario.playing import scenario

WATCHING: JsonObject = {
    "apiVersion": "placement.extender.dev/v1alpha1",
    "kind": "ClusterPodSchedulingPolicy",
    "metadata": {"name": "watch"},
    "spec": {"podSelector": {}, "namespaceSelector": {}, "when": ["Execution"], "execution": {"mode": "Evict"}},
}


def document(*steps: JsonObject, **parts: Any) -> dict[str, Any]:
    """Two pods in one of two zones."""
    web = {"labels": {"app": "web"}, "controller": "ReplicaSet"}
    return scenario(
        *steps,
        cluster={
            "nodes": [{"count": 2, "zones": 2}],
            "namespaces": [{"name": "shop"}],
            "running": [{"template": "web", "count": 2, "name": "web", "nodes": "node-0"}],
        },
        templates={"web": {**web, "spec": {"topologySpreadConstraints": [spread(labels={"app": "web"})]}}},
        **parts,
    )


async def run(*steps: JsonObject, evict: str = "") -> tuple[list[str], tuple[str, ...]]:
    """The expectations that failed, and the failures of the report."""
    play, fake = parse_scenario(document(*steps, apiServer={"readyDelay": "0s"})), FakeExtender()
    async with fake.running(), SimulatedCluster(play, 1, [WATCHING]) as simulated:
        await simulated.begin(fake.url)
        player = Player(simulated)
        if evict:
            simulated.api.pods.evict(Target(PODS, "shop", evict), {})
            assert await simulated.settle(within=30, calm=0.1)
        await player.run(play.steps)
        return player.failures, make_report(simulated, [], 1.0, 1.0).failures


async def test_what_is_broken_and_could_be_mended_fails_a_run() -> None:
    expected = {"moves": {"shop": {"evictions": 0, "broken": 2, "worst": 0}}}
    assert await run({"expect": expected}) == ([], ("not mended: shop/web-0", "not mended: shop/web-1"))


async def test_a_move_in_vain_fails_a_run() -> None:
    # The fake extender lets every node pass, and both nodes are alike to the scheduler: where the pod goes does not matter here.
    failures, report = await run({"expect": {"moves": {"shop": {"evictions": [1, 1]}}}}, evict="web-0")
    assert failures == []
    assert all(text.startswith(("in vain: shop/web-0: node-0", "not mended: shop/")) for text in report)


@pytest.mark.parametrize(
    ("expected", "failure"),
    [
        ({"shop": {"evictions": [1, 2]}}, "steps[0].expect.moves.shop.evictions: expected (1, 2), got 0"),
        ({"shop": {"broken": 0}}, "steps[0].expect.moves.shop.broken: expected 0, got 2"),
        ({}, "steps[0].expect.moves.shop.broken: expected 0, got 2"),
    ],
)
async def test_a_number_that_differs_is_named(expected: JsonObject, failure: str) -> None:
    assert (await run({"expect": {"moves": expected}}))[0] == [failure]


@pytest.mark.parametrize("delay", ["0s", None])
async def test_a_bound_pod_becomes_ready_if_a_kubelet_reports_it(delay: str | None) -> None:
    arriving = {"arrive": {"template": "web", "count": 1, "name": "new"}}
    play = parse_scenario(document(arriving, apiServer={} if delay is None else {"readyDelay": delay}))
    fake = FakeExtender()
    async with fake.running(), SimulatedCluster(play, 1) as simulated:
        await simulated.begin(fake.url)
        await Player(simulated).run(play.steps)
        assert await simulated.settle(within=30, calm=0.1)

        def readiness() -> str | None:
            pod = simulated.api.store.find(PODS, "shop/new-0").read()
            return (condition_of(pod, "Ready") or {}).get("status")

        if delay is None:
            assert readiness() is None
        else:
            await until(lambda: readiness() == "True")


async def test_with_several_schedulers_the_replacement_of_a_pod_that_ran_at_the_start_gets_one_of_them() -> None:
    play = parse_scenario(document(scheduler={"count": 2}))
    fake = FakeExtender()
    async with fake.running(), SimulatedCluster(play, 1) as simulated:
        await simulated.begin(fake.url)
        for number in range(2):
            simulated.api.pods.evict(Target(PODS, "shop", f"web-{number}"), {})
        assert await simulated.settle(within=30, calm=0.1)
        assert simulated.pending() == []
        pods = [stored.read() for stored in simulated.pods()]
        assert {pod["spec"]["schedulerName"] for pod in pods} <= {"scheduler-0", "scheduler-1"}
