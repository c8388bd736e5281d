"""The preemption scenario, smaller, with the real service on an embedded cluster: which pods go and what evicts them."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.cli.simulate import read_objects, scenario_settings
from extender.compose.embedded import service_running
from extender.simulator.json_objects import JsonObject, labels_of
from extender.simulator.scenario.language import parse_scenario
from extender.simulator.scenario.play import Player
from extender.simulator.scenario.simulated_cluster import SimulatedCluster

SCENARIO = Path(__file__).parents[2] / "config" / "scenarios" / "preemption.yaml"


class Outcome:
    """The pods that stand somewhere in the end, by app, what was expected in vain, and the metrics page."""

    def __init__(self, simulated: SimulatedCluster, player: Player, metrics: str) -> None:
        placed = [stored.read() for stored in simulated.pods() if stored.node]
        self.apps = Counter(labels_of(each)["app"] for each in placed)
        self.guarded = sum("guarded" in labels_of(each) for each in placed)
        self.pending = len(simulated.pending())
        self.failures = player.failures
        self._metrics = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))

    def metric(self, name: str) -> float:
        """One series' value, 0 where there is none."""
        return float(self._metrics.get(name, 0))


async def play(patience: float | None = None, **changes: Any) -> Outcome:
    """Plays the scenario with a fifth of everything, and with these parts changed.

    With ``patience`` it goes on for at most so many seconds until no pod is pending, whatever was expected when.
    """
    document = yaml.safe_load(SCENARIO.read_text("utf-8"))
    cluster, steps = document["cluster"], document["steps"]
    for part in (*cluster["nodes"], *cluster["running"]):
        part["count"] //= 5
    for step in steps:
        for action in ("arrive", "expect"):
            for field in ("count", "placed"):
                if field in step.get(action, {}):
                    step[action][field] //= 5
    for section, values in changes.items():
        document[section] = document.get(section, {}) | values if isinstance(values, dict) else values
    scenario = parse_scenario(document)
    settings = scenario_settings(scenario, str(SCENARIO))
    async with (
        SimulatedCluster(scenario, 1, read_objects(scenario, str(SCENARIO))) as simulated,
        service_running(settings, simulated.api.url, 1) as (url, service),
    ):
        await simulated.begin(url)
        player = Player(simulated)
        await player.run(scenario.steps)
        async with asyncio.timeout(patience):
            while patience and simulated.pending():  # noqa: ASYNC110 - writes that are tried again look like quiet
                await asyncio.sleep(0.1)
        await player.finish()
        return Outcome(simulated, player, service.metrics.render().decode())


@pytest.mark.parametrize("sends_empty_candidates", [False, True], ids=["1.37", "kubernetes#135486"])
async def test_executed_by_us_every_important_pod_gets_a_node_and_no_more_go_than_have_to(
    *, sends_empty_candidates: bool
) -> None:
    outcome = await play(scheduler={"sendsEmptyCandidates": sends_empty_candidates})
    assert (outcome.failures, outcome.pending) == ([], 0)
    assert (outcome.apps["urgent"], outcome.apps["small"], outcome.apps["lonely"]) == (20, 40, 2)
    assert outcome.guarded == 4, "those under a disruption budget go last"
    assert outcome.apps["agent"] == 14, "two agents made room for the two lonely pods"
    gone = (60 - outcome.apps["batch"]) + (16 - outcome.apps["agent"])
    assert outcome.metric("extender_preemption_victims_sum") == gone
    assert outcome.metric('extender_preemption_executions_total{result="success"}') >= 22
    assert outcome.metric('extender_preemption_executions_total{result="error"}') == 0
    assert outcome.metric("extender_preemption_pdb_violations_total") == 0


async def test_advised_by_us_the_scheduler_acts_and_cannot_help_the_lonely() -> None:
    outcome = await play(extender={"preemption": {"mode": "advise"}})
    assert (outcome.apps["urgent"], outcome.apps["lonely"], outcome.pending) == (20, 0, 2)
    assert outcome.apps["agent"] == 16
    assert outcome.metric("extender_preemption_attempts_total") == 0


@pytest.mark.timeout(90)
async def test_a_slow_apiserver_leaves_no_pod_without_a_node() -> None:
    outcome = await play(apiServer={"writeDelay": "100ms"})
    assert (outcome.failures, outcome.pending) == ([], 0)
    assert outcome.metric('extender_preemption_executions_total{result="error"}') == 0


@pytest.mark.timeout(90)
async def test_writes_that_fail_in_every_way_leave_no_pod_without_a_node() -> None:
    faults = [
        {"fail": {"verbs": ["write"], "probability": 0.15}},
        {"throttle": {"verbs": ["write"], "probability": 0.15}},
        {"conflict": {"probability": 0.15}},
        {"loseAnswer": {"probability": 0.15}},
    ]
    hurried = {"podInitialBackoff": "50ms", "podMaxBackoff": "500ms"}  # the scheduler's own writes fail as well
    outcome = await play(patience=60, faults=faults, scheduler=hurried)
    assert outcome.pending == 0
    assert (outcome.apps["urgent"], outcome.apps["lonely"]) == (20, 2)
    assert (outcome.apps["agent"], outcome.guarded) == (14, 4)
    assert outcome.metric('extender_preemption_executions_total{result="error"}') == 0


# -- Several preemptors with hard constraints at once, on a full cluster: how many pods have to go for them in the
#    end

ZONE = "topology.kubernetes.io/zone"
URGENT = {"matchLabels": {"app": "urgent"}}
SPREAD = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": URGENT}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
CONSTRAINTS: dict[str, JsonObject] = {
    "spread": {"topologySpreadConstraints": [SPREAD]},
    "anti-affinity": {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": ZONE, "labelSelector": URGENT}]}}},
}
LESSER, PREEMPTORS = 12, 3


async def victims(mode: str, constraint: str, seed: int) -> int:
    """Twelve full nodes in three zones with one pod each, and three important pods, one for each zone."""
    play = parse_scenario(
        {
            "apiVersion": "placement.extender.dev/v1alpha1",
            "kind": "Scenario",
            "name": "spread",
            "cluster": {
                "nodes": [{"count": LESSER, "zones": 3, "cpu": "2"}],
                "namespaces": [{"name": "default"}],
                "running": [{"template": "lesser", "count": LESSER}],
            },
            "templates": {
                "lesser": {"labels": {"app": "lesser"}, "cpu": "2", "spec": {"priority": 0}},
                "urgent": {
                    "labels": {"app": "urgent"},
                    "cpu": "2",
                    "spec": {"priority": 1000} | CONSTRAINTS[constraint],
                },
            },
            "scheduler": {"preemption": "async", "podInitialBackoff": "50ms", "podMaxBackoff": "500ms"},
            "apiServer": {"kubeletDelay": "100ms"},
            "extender": {"preemption": {"mode": mode}},
            "steps": [
                {"arrive": {"template": "urgent", "count": PREEMPTORS}},
                {"settle": {"timeout": "30s", "calm": "500ms"}},
            ],
        }
    )
    settings = scenario_settings(play, "spread.yaml")
    async with (
        SimulatedCluster(play, seed, []) as simulated,
        service_running(settings, simulated.api.url, seed) as (url, _),
    ):
        await simulated.begin(url)
        player = Player(simulated)
        await player.run(play.steps)
        report = await player.finish()
        assert not report.waiting
        assert not report.violations
        standing = [labels_of(stored.read())["app"] for stored in simulated.pods() if stored.node]
        assert standing.count("urgent") == PREEMPTORS
        return LESSER - standing.count("lesser")


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("seed", range(3))
async def test_one_pod_goes_for_each_preemptor(constraint: str, seed: int) -> None:
    """A preemptor must not be sent where another one, nominated elsewhere in the zone, will keep it out."""
    assert await victims("execute", constraint, seed) == PREEMPTORS
