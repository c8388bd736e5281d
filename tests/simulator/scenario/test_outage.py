"""The shipped scenario of a lost zone: without the directive all pods wait that replace those of the zone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from extender.cli.main import main

SCENARIO = Path(__file__).parents[3] / "config" / "scenarios" / "outage.yaml"


@pytest.mark.parametrize(("directed", "waiting"), [(True, {"plain"}), (False, {"plain", "directed"})])
def test_pods_wait_where_no_directive_excludes_the_zone(
    *, directed: bool, waiting: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = SCENARIO.read_text("utf-8").partition("  - title: A rollout while")[0]
    assert "labels: {spread: directed}" in text
    (tmp_path / "outage.yaml").write_text(text if directed else text.replace("spread: directed", "spread: plain"))
    shutil.copytree(SCENARIO.with_suffix(""), tmp_path / "outage")
    shutil.copytree(SCENARIO.parent / "policies", tmp_path / "policies")
    code = main(["simulate", str(tmp_path / "outage.yaml"), "--short", "-o", "json"])
    report = json.loads(capsys.readouterr().out)
    assert {each["pod"].partition("/")[0] for each in report["waiting"]} == waiting
    assert report["pending"] == 10 * len(waiting)
    assert report["violations"] == []
    assert code == (not directed)
    injected = [each["injected"] for each in report["policies"]["acts"]] if directed else []
    assert injected == [["topologySpreadConstraints"]] * directed
