"""The command of the bench: figures of both ways of playing, the bounds that were missed, the audit, and errors for people."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.cli.files import own_file
from extender.cli.main import CommandError
from tests.tools.bench.__main__ import main
from tests.tools.bench.results import decode_results
from tests.tools.bench.small_scenario import APART, document

PROCESS = {"filter.p50", "filter.p99", "echo.p50", "echoAll.p50", "share.decode", "share.decide", "share.encode"}
HTTP = {"filter.p50", "filter.p99", "echo.p50", "echoAll.p50", "requestsPerSecond", "bytesIn", "bytesOut", "ready"}
HTTP |= {"rss", "rssPeak", "pause.max", "pauseWall.max", "watch.eventsPerSecond", "relistPause.max"}
HTTP |= {"relabelPause.max", "busyShare", "bareEcho.p50", "bareEcho.p99", "beside.p50", "oneNameShare"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "small.yaml"


def write(path: Path, **parts: Any) -> str:
    path.write_text(yaml.safe_dump(document(**parts)), "utf-8")
    return str(path)


def test_it_plays_in_process_and_over_http_and_finds_no_drift(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measure = ["requests", "events", "relabel", "service"]
    case = {"labels": ["short"], "pods": [60], "selectors": [3], "names": [50], "measure": measure, "rate": 100}
    kept = tmp_path / "results.json"
    assert main([write(path, cases=[case]), "--label", "short", "--check", "--out", str(kept)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].startswith("audit: no drift (")
    assert lines[-1] == "bounds: 0 of 0 missed"
    assert any(line.startswith("Beside an echo without a framework") for line in lines)
    rows = {row.via: row.figures for row in decode_results(kept.read_bytes()).rows}
    assert rows["process"].keys() >= PROCESS
    assert rows["http"].keys() >= HTTP
    assert rows["http"]["rejectedShare"] < 1
    ours, echo, to_win = (rows["http"][name] for name in ("pod.cpu", "bareEcho.cpu", "toWin.cpu"))
    assert min(ours, echo) > 0
    assert to_win == ours - echo
    assert rows["http"]["oneNameShare"] == 1, "decisive placement"


def test_a_large_cluster_is_disturbed_and_a_standby_takes_over_without_a_list(path: Path, tmp_path: Path) -> None:
    case = {"labels": ["huge"], "nodes": 300, "pods": [60], "selectors": [3], "names": [50]}
    kept = tmp_path / "results.json"
    name = write(path, cases=[case | {"measure": ["service", "scale", "standby"]}])
    assert main([name, "--label", "huge", "--out", str(kept)]) == 0
    (row,) = decode_results(kept.read_bytes()).rows
    disturbances = ("relabelPods", "restorePods", "taintZones", "loseZones", "returnZones", "churn", "relist", "scrape")
    assert row.figures.keys() >= {f"{each}.max" for each in (*disturbances, "takeover", "listPause", "auditStep")}
    assert row.figures.keys() >= {"relist.peak", "readyCpu", "longestPause", "takeover.seconds", "takeover.cpu"}
    assert (row.figures["takeover.lists"], row.figures["lostNodes"], row.place["nodes"]) == (0, 150, 300)


def test_a_missed_bound_is_named_on_the_last_line_and_is_a_failure_of_the_check_only(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = write(path, bounds=[{"figure": "filter.p50", "atMost": 0}])
    assert main([name]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "bounds: 1 of 1 missed"
    assert main([name, "--check"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("missed: small via process (pods 30, selectors 3, names 10, answer decisive): filter.p50 is")
    assert last.endswith("expected at most 0")


def test_json_is_one_document_and_comparing_with_it_shows_ratios(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = write(path)
    assert main([name, "-o", "json"]) == 0
    printed = capsys.readouterr()
    earlier = json.loads(printed.out)
    for row in earlier["rows"]:
        row["figures"]["filter.p50"] /= 1000
    assert "audit: no drift" in printed.err
    old = tmp_path / "old.json"
    old.write_text(json.dumps(earlier), "utf-8")
    assert main([name, "--compare", str(old)]) == 0
    text = capsys.readouterr().out
    ratio = text[text.index("New / old") :].splitlines()[2].split()[6]
    assert float(ratio) > 10, "a thousand times what the file says, within what a machine varies"


BURST: dict[str, Any] = {
    "apiVersion": "placement.extender.dev/v1alpha1",
    "kind": "Scenario",
    "name": "burst",
    "cluster": {"nodes": [{"count": 20, "zones": 2}], "namespaces": [{"name": "team", "labels": {"team": "devops"}}]},
    "templates": {"web": {"labels": {"color": "green-{v}"}, "variants": 2, "spec": {"affinity": APART}}},
    "scheduler": {"bindDelay": ["0s", "50ms"]},
    "steps": [{"arrive": {"template": "web", "count": 1}}, {"settle": {"calm": "200ms", "timeout": "30s"}}],
}
MODES = {
    "apiVersion": "placement.extender.dev/v1alpha1",
    "kind": "ModesScenario",
    "name": "few",
    "burst": "burst.yaml",
    "cases": [{"labels": ["short"], "pods": [30]}],
    "bounds": [{"figure": "violations", "atMost": 0}, {"figure": "pending", "atMost": 0}],
}
MODE_FIGURES = {"bound.perSecond", "decided.perSecond", "boundOfDecisive", "decidedOfDecisive", "violations", "pending"}
MODE_FIGURES |= {"waited.share", "waited.mean", "waited.seconds", "waited.timeouts"}


def write_modes(path: Path, **parts: Any) -> str:
    (path.parent / "burst.yaml").write_text(yaml.safe_dump(BURST | parts), "utf-8")
    path.write_text(yaml.safe_dump(MODES), "utf-8")
    return str(path)


def test_one_burst_is_played_in_each_mode_and_one_that_breaks_a_constraint_fails_the_check_by_name(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [BURST["steps"][0], {"settle": {"calm": "200ms", "timeout": "3s"}}]  # which is never, for pods in excess
    name = write_modes(path, extender={"assumedPods": {"enabled": False}}, steps=steps)
    kept = tmp_path / "results.json"
    assert main([name, "--label", "short", "--check", "--out", str(kept)]) == 1
    missed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("missed: ")]
    assert any(line.startswith("missed: few via http (pods 30, mode decisive): violations is") for line in missed)
    rows = decode_results(kept.read_bytes()).rows
    assert [row.place for row in rows] == [{"pods": 30, "mode": mode} for mode in ("decisive", "bind", "cooperative")]
    assert all(row.figures.keys() >= MODE_FIGURES for row in rows)
    assert rows[0].figures["waited.share"] == 0


def test_a_burst_without_a_size_is_rejected_before_anything_is_played(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([write_modes(path, steps=[{"settle": {}}])]) == 1
    assert "burst: expected a scenario with exactly one step arrive" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("parts", "arguments", "problem"),
    [
        ({"cluster": {"node": 3}}, [], 'cluster.node: unknown field, did you mean "nodes"?'),
        ({}, ["--label", "weekly"], 'no case has the label "weekly"; the labels are short'),
        ({}, ["--compare", "no-such-file"], "no-such-file: No such file or directory"),
        ({}, ["--compare", __file__], "not the results of a bench"),
    ],
    ids=["a wrong field", "an unknown label", "no file to compare with", "another file to compare with"],
)
def test_wrong_use_is_reported_before_anything_is_played(
    path: Path, capsys: pytest.CaptureFixture[str], parts: dict[str, Any], arguments: list[str], problem: str
) -> None:
    assert main([write(path, **parts), *arguments]) == 1
    printed = capsys.readouterr()
    assert problem in printed.err
    assert not printed.out


def test_without_scenarios_it_finds_its_own_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--label", "no such"]) == 1
    assert (
        'no case has the label "no such"; the labels are gangs, huge, large, nightly, pairs, service, short'
        in capsys.readouterr().err
    )


def test_a_file_of_the_project_that_is_nowhere_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandError, match="config/scenarios/none: not in the working directory"):
        own_file("scenarios/none")


def test_two_scenarios_of_one_name_are_rejected(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = write(path)
    assert main([name, name]) == 1
    assert "small: two scenarios have this name" in capsys.readouterr().err


def test_each_scenario_with_a_control_is_printed_with_its_ratio_to_it(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """KEP-2249 and KEP-3022, "Test Plan": benchmark tests with the field against the same without it, in one run."""
    case = {"labels": ["short"], "pods": [30], "selectors": [3], "names": [10]}
    kept = tmp_path / "results.json"
    files = [write(path, control="plain", cases=[case | {"measure": ["control"]}])]
    files.append(write(tmp_path / "control.yaml", name="plain", cases=[case]))
    assert main([*files, "--out", str(kept)]) == 0
    lines = capsys.readouterr().out.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("Pairs: with / control"))
    assert lines[begin + 1].split()[-4:] == [f"ofControl.{each}" for each in ("cpu", "filter", "decide", "event")]
    pair, control = decode_results(kept.read_bytes()).rows
    assert (pair.scenario, control.scenario) == ("small", "plain")
    assert all(pair.figures[f"ofControl.{each}"] > 0 for each in ("cpu", "filter", "decide", "event"))
    assert not any(name.startswith("ofControl") for name in control.figures)


def test_a_scenario_without_its_control_is_rejected(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([write(path, control="plain")]) == 1
    assert "small: its control plain is not in this run" in capsys.readouterr().err
    case = {"labels": ["short"], "measure": ["control"]}
    assert main([write(path, cases=[case])]) == 1
    assert "cases[0].measure: control is measured where the scenario names its control" in capsys.readouterr().err
