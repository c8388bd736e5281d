"""Hostile tenants beside honest ones: the shipped scenario with fewer pods, and what a comparison prints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.cli.main import main
from extender.cli.simulate import Round, describe, excesses
from extender.model.units import ByteSize
from extender.simulator.scenario.language import CostComparison
from extender.simulator.scenario.report import Cost

HOSTILE = Path(__file__).parents[3] / "config" / "scenarios" / "hostile.yaml"


def scenario(folder: Path, **comparison: Any) -> str:
    """Two good pods and one that is above a limit."""
    terms = {"repeat": 101, "each": {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "{n}"}}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    document = {
        "apiVersion": "placement.extender.dev/v1alpha1",
        "kind": "Scenario",
        "name": "test",
        "comparison": {"without": "bad", **comparison},
        "cluster": {"nodes": [{"count": 3}], "namespaces": [{"name": "good"}, {"name": "bad"}]},
        "templates": {"web": {"labels": {"app": "web"}}, "big": {"spec": {"affinity": affinity}}},
        "steps": [
            {"arrive": {"template": "web", "count": 2, "namespaces": "good"}},
            {"arrive": {"template": "big", "count": 1, "namespaces": "bad"}},
            {"settle": {"calm": "100ms"}},
            {"expect": {"placed": 2, "pending": 1}},
        ],
    }
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(document), "utf-8")
    return str(path)


def test_a_run_without_some_pods_says_what_the_others_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", scenario(tmp_path), "--without", "bad", "-o", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["placed"], report["pending"], report["answers"]["count"]) == (2, 0, 2)
    assert 0 < report["answers"]["p50Seconds"] <= report["answers"]["p99Seconds"]
    assert report["answers"]["p99ProcessorSeconds"] > 0
    assert report["residentMegabytes"] > 0


def test_answers_for_the_compared_pods_do_not_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", scenario(tmp_path), "--without", "", "-o", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["placed"], report["pending"], report["answers"]["count"]) == (2, 1, 2)


def test_what_is_worse_than_the_scenario_allows_is_reported_and_gives_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", scenario(tmp_path, maxSlowdown=1e-6)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("unexpected: comparison.maxSlowdown: expected at most 1e-06, got ") for line in lines)
    assert lines[-1] == "placed 2, pending 1, violations 0"


def test_pods_of_others_that_come_later_and_are_answered_before_a_backlog_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three of higher priority come while the scheduler has answered few of a hundred pods."""
    path = Path(scenario(tmp_path, maxOvertaken=2))
    document = yaml.safe_load(path.read_text("utf-8"))
    document["templates"]["urgent"] = {"spec": {"priority": 1000}}
    document["scheduler"] = {"cacheDelay": "300ms"}
    document["steps"] = [
        {"arrive": {"template": "web", "count": 100, "namespaces": "good"}},
        {"arrive": {"template": "urgent", "count": 3, "namespaces": "bad"}},
        {"settle": {"calm": "600ms"}},
    ]
    path.write_text(yaml.safe_dump(document), "utf-8")
    assert main(["simulate", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "unexpected: comparison.maxOvertaken: expected at most 2, got 3" in lines


def test_answers_to_others_while_a_rejected_pod_waits_for_an_event_or_its_backoff_are_no_overtaking(
    tmp_path: Path,
) -> None:
    """A pod waits for another one of its namespace. How many of the others are answered meanwhile depends on the machine."""
    path = Path(scenario(tmp_path, maxOvertaken=0))
    document = yaml.safe_load(path.read_text("utf-8"))
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    document["templates"]["beside"] = {"labels": {"app": "beside"}, "spec": {"affinity": affinity}}
    document["scheduler"] = {"podInitialBackoff": "50ms", "podMaxBackoff": "50ms"}
    document["steps"] = [
        {"arrive": {"template": "beside", "count": 1, "namespaces": "good"}},
        {"settle": {"calm": "100ms"}},
        {"arrive": {"template": "big", "count": 3, "namespaces": "bad"}},
        {"settle": {"calm": "100ms"}},
        {"arrive": {"template": "web", "count": 1, "namespaces": "good"}},
        {"settle": {"calm": "300ms"}},
        {"expect": {"placed": 2, "pending": 3}},
    ]
    path.write_text(yaml.safe_dump(document), "utf-8")
    assert main(["simulate", str(path)]) == 0


def test_each_round_is_a_pair_of_runs_and_their_median_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", scenario(tmp_path, rounds=2, maxOvertaken=0)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("filter without bad: 2 answers, p50 ") for line in lines) == 2
    assert sum(line.startswith("filter with these pods, for all other pods: 2 answers, p50 ") for line in lines) == 2
    assert any(
        re.match(
            r"p99 of processor time [\d.]+ times \(the median of [\d.]+, [\d.]+\), overtaken by 0, waiting [\d.]+ times, memory",
            line,
        )
        for line in lines
    )


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


def test_a_run_without_them_that_fails_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = scenario(tmp_path)
    Path(path).write_text(Path(path).read_text().replace("count: 3", "count: 0"))
    assert main(["simulate", path]) == 1
    assert "the run without bad has violations, failures or pending pods" in capsys.readouterr().err
