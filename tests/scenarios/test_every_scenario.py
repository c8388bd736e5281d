"""Every scenario of config/ is played, and what it promises holds; a scenario that breaks its promise is noticed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from extender.simulator.scenario.language import Expect, parse_scenario
from tests.scenarios.__main__ import main
from tests.scenarios.playing import ROOT, SCENARIOS, Run, name_of, play, play_here, table

EACH = pytest.mark.parametrize("path", SCENARIOS, ids=name_of)


@EACH
def test_what_a_scenario_promises_holds(path: Path) -> None:
    run = play_here(path)
    assert run.problems == ()
    assert run.figures["violations"] == 0
    assert run.figures["placed"] + run.figures["pending"] > 0


def test_every_scenario_of_the_configuration_is_played() -> None:
    documents = ((path, yaml.safe_load_all(path.read_text("utf-8"))) for path in (ROOT / "config").rglob("*.yaml"))
    kinds = {path for path, found in documents for each in found if each and each.get("kind") == "Scenario"}
    assert kinds == set(SCENARIOS)
    assert len(SCENARIOS) > 10


@EACH
def test_the_last_step_of_a_scenario_is_what_it_expects(path: Path) -> None:
    last = parse_scenario(yaml.safe_load(path.read_text("utf-8"))).steps[-1].action
    assert isinstance(last, Expect)
    assert last != Expect()


def test_the_list_in_the_document_is_complete() -> None:
    listed = set(
        re.findall(r"^\| `([\w-]+\.yaml)` \|", (ROOT / "config/how-to/simulate.md").read_text("utf-8"), re.MULTILINE)
    )
    assert {path.name for path in SCENARIOS if path.parent.name == "scenarios"} <= listed


def test_the_table_has_every_run_and_every_broken_promise() -> None:
    figures = {"decisions": 1034, "placed": 34, "pending": 0, "violations": 2}
    runs = [
        Run("demo", 1, figures | {"violations": 0}, 8.26, ()),
        Run("burst-bind", 12, figures, 123.0, tuple(f"violation: pod-{number}" for number in range(12))),
        Run("mixed", None, {}, 0.5, ("no such file",)),
    ]
    lines = list(table(runs))
    assert lines[:4] == [
        "scenario    seed  decisions  placed  pending  violations  seconds  held",
        "demo           1       1034      34        0           0      8.3   yes",
        "burst-bind    12       1034      34        0           2    123.0    no",
        "mixed                     -       -        -           -      0.5    no",
    ]
    assert lines[4] == "burst-bind, seed 12: violation: pod-0"
    assert lines[-3:] == [
        "burst-bind, seed 12: and 2 more",
        "mixed, seed None: no such file",
        "3 runs, 2 of them did not hold what the scenario promises",
    ]


def test_a_scenario_that_cannot_be_played_is_not_held(tmp_path: Path) -> None:
    run = play(tmp_path / "absent.yaml")
    assert run.figures == {}
    assert "absent.yaml" in run.problems[0]


def test_the_command_plays_from_the_first_seed_and_ends_with_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "pending", "--seeds", "1", "--first", "8"]) == 0
    head, row, last = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["scenario", "seed"]
    assert row.split()[:6] == ["pending", "8", "0", "0", "10", "0"]
    assert last == "1 runs, 0 of them did not hold what the scenario promises"
