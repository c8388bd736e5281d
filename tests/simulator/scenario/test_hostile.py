"""Hostile tenants beside honest ones: the shipped scenario with fewer pods, and what a comparison prints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.cli.main import main

HOSTILE = Path(__file__).parents[3] / "config" / "scenarios" / "hostile.yaml"


def shortened(folder: Path) -> str:
    """The shipped scenario with a tenth of the honest pods, hardly a pause, and no bounds on times and memory."""
    text = HOSTILE.read_text("utf-8")
    for pattern, instead in (
        ("count: 1000", "count: 100"),
        ("placed: 1000", "placed: 100"),
        (r"rate: [\d.]+", "rate: 200"),
        (r"time: [\d.]+m?s", "time: 10ms"),
        (r"  max(Slowdown|Growth):.*\n", ""),
    ):
        text = re.sub(pattern, instead, text)
    path = folder / "hostile.yaml"
    path.write_text(text, "utf-8")
    return str(path)


@pytest.mark.parametrize("seed", ["1", "2"])
def test_honest_pods_are_placed_and_hostile_ones_wait(
    seed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", shortened(tmp_path), "--seed", seed]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "placed 100, pending 21, violations 0"
    waiting = [line for line in lines if line.startswith("pending: ")]
    assert waiting
    assert all(line.startswith("pending: hostile-") for line in waiting)
    assert any("spec.affinity: 200 terms of pods, limits.affinityTerms is 100" in line for line in waiting)
    assert (
        sum(line.startswith(("filter without hostile-*: 100 answers, p50 ", "filter with them")) for line in lines) == 2
    )


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


def test_a_run_without_them_that_fails_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = scenario(tmp_path)
    Path(path).write_text(Path(path).read_text().replace("count: 3", "count: 0"))
    assert main(["simulate", path]) == 1
    assert "the run without bad has violations, failures or pending pods" in capsys.readouterr().err
