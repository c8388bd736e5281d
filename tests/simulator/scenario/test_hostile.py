"""Hostile tenants beside honest ones: the shipped scenario with fewer pods, and what a comparison prints."""

from __future__ import annotations

import re
from typing import Any

import yaml

from extender.cli.simulate import Round, describe, excesses
from extender.model.units import ByteSize
from extender.simulator.json_objects import JsonObject
from extender.simulator.scenario.language import CostComparison
from extender.simulator.scenario.report import Cost
from tests.builders import REQUIRED
from tests.simulator.plain import HOSTNAME, affinity, term
from tests.simulator.scenario.conftest import SCENARIOS, Simulate
from tests.simulator.scenario.playing import scenario

HOSTILE = SCENARIOS / "hostile.yaml"


def hostile(*steps: JsonObject, **comparison: Any) -> dict[str, Any]:
    """Two good pods and one that is above a limit, unless the steps say else."""
    terms = {"repeat": 101, "each": {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "{n}"}}}}
    beside = affinity(term(HOSTNAME, app="web"))
    return scenario(
        *(steps or (arrive("web", 2), arrive("big", 1, "bad"), settle(100), {"expect": {"placed": 2, "pending": 1}})),
        comparison={"without": "bad", **comparison},
        cluster={"nodes": [{"count": 3}], "namespaces": [{"name": "good"}, {"name": "bad"}]},
        templates={
            "web": {"labels": {"app": "web"}},
            "big": {"spec": {"affinity": {"podAntiAffinity": {REQUIRED: terms}}}},
            "urgent": {"spec": {"priority": 1000}},
            "beside": {"labels": {"app": "beside"}, "spec": {"affinity": beside}},
        },
    )


def arrive(template: str, count: int, namespaces: str = "good") -> JsonObject:
    return {"arrive": {"template": template, "count": count, "namespaces": namespaces}}


def settle(milliseconds: int) -> JsonObject:
    return {"settle": {"calm": f"{milliseconds}ms"}}


def test_a_run_without_some_pods_says_what_the_others_cost(simulate: Simulate) -> None:
    run = simulate("test", hostile(), "--without", "bad", "-o", "json")
    report, answers = run.report, run.report["answers"]
    assert (run.code, report["placed"], report["pending"], answers["count"]) == (0, 2, 0, 2)
    assert 0 < answers["p50Seconds"] <= answers["p99Seconds"]
    assert answers["p99ProcessorSeconds"] > 0
    assert report["residentMegabytes"] > 0


def test_answers_for_the_compared_pods_do_not_count(simulate: Simulate) -> None:
    run = simulate("test", hostile(), "--without", "", "-o", "json")
    report = run.report
    assert (run.code, report["placed"], report["pending"], report["answers"]["count"]) == (0, 2, 1, 2)


def test_what_is_worse_than_the_scenario_allows_is_reported_and_gives_1(simulate: Simulate) -> None:
    run = simulate("test", hostile(maxSlowdown=1e-6))
    assert run.code == 1
    assert "\nunexpected: comparison.maxSlowdown: expected at most 1e-06, got " in run.out
    assert run.last_line == "placed 2, pending 1, violations 0"


def test_pods_of_others_that_come_later_and_are_answered_before_a_backlog_are_reported(simulate: Simulate) -> None:
    """Three of higher priority come while the scheduler has answered few of a hundred pods."""
    document = hostile(arrive("web", 100), arrive("urgent", 3, "bad"), settle(600), maxOvertaken=2)
    run = simulate("test", document | {"scheduler": {"cacheDelay": "300ms"}})
    assert run.code == 1
    assert "unexpected: comparison.maxOvertaken: expected at most 2, got 3" in run.out.splitlines()


def test_answers_to_others_while_a_rejected_pod_waits_for_an_event_or_its_backoff_are_no_overtaking(
    simulate: Simulate,
) -> None:
    """A pod waits for another one of its namespace. How many of the others are answered meanwhile depends on the machine."""
    steps = (arrive("beside", 1), settle(100), arrive("big", 3, "bad"), settle(100), arrive("web", 1), settle(300))
    document = hostile(*steps, {"expect": {"placed": 2, "pending": 3}}, maxOvertaken=0)
    assert simulate("test", document | {"scheduler": {"podInitialBackoff": "50ms", "podMaxBackoff": "50ms"}}).code == 0


def test_each_round_is_a_pair_of_runs_and_their_median_is_judged(simulate: Simulate) -> None:
    run = simulate("test", hostile(rounds=2, maxOvertaken=0))
    assert run.code == 0
    assert run.out.count("\nfilter without bad: 2 answers, p50 ") == 2
    assert run.out.count("\nfilter with these pods, for all other pods: 2 answers, p50 ") == 2
    assert re.search(
        r"\np99 of processor time [\d.]+ times \(the median of [\d.]+, [\d.]+\), overtaken by 0, waiting [\d.]+ times, memory",
        run.out,
    )


def test_a_run_without_them_that_fails_is_reported(simulate: Simulate) -> None:
    run = simulate(
        "test", hostile() | {"cluster": {"nodes": [{"count": 0}], "namespaces": [{"name": "good"}, {"name": "bad"}]}}
    )
    assert run.code == 1
    assert "the run without bad has violations, failures or pending pods" in run.err


def round_of(processor: float, resident: float, waited: float = 1.0, overtaken: int = 0) -> Round:
    alone = Cost(9, 0.001, 0.002, 0.002, 100.0, 1.0, 0)
    return Round(alone, Cost(9, 0.001, 0.002, processor, resident, waited, overtaken))


def test_one_round_of_three_that_is_out_of_the_ordinary_is_not_judged() -> None:
    comparison = CostComparison(without="bad", max_slowdown=1.5, max_overtaken=2, max_growth=ByteSize(50_000_000))
    rounds = [round_of(0.002, 110.0), round_of(0.009, 110.0), round_of(0.0024, 190.0, 2.5, 9)]
    assert list(excesses(rounds, comparison)) == []
    assert list(describe(rounds, comparison))[-1] == (
        "p99 of processor time 1.20 times (the median of 1.00, 4.50, 1.20), overtaken by 0, waiting 1.00 times, "
        "memory +10 MB"
    )
    rounds[0] = round_of(0.004, 151.0, 2.25, 3)
    assert list(excesses(rounds, comparison)) == [
        "comparison.maxSlowdown: expected at most 1.5, got 2.00",
        "comparison.maxOvertaken: expected at most 2, got 3",
        "comparison.maxGrowth: expected at most 50 MB, got 51 MB",
    ]


def test_the_sample_of_the_document_has_the_lines_that_are_printed() -> None:
    text = (HOSTILE.parents[1] / "how-to" / "simulate.md").read_text("utf-8")
    sample = text[text.index("`hostile.yaml` is played without and with") :].split("```")[1].splitlines()
    rounds = yaml.safe_load(HOSTILE.read_text("utf-8"))["comparison"]["rounds"]["full"]
    printed = describe([round_of(0.004, 151.0)] * rounds, CostComparison(without="hostile-*"))
    shapes = [re.sub(r"[\d.]+", "0", line) for line in printed]
    assert [re.sub(r"[\d.]+", "0", line) for line in sample if line.startswith(("filter ", "p99 "))] == shapes
